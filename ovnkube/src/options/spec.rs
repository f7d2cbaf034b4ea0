//! The description of one option: its names in each source, its form, and its text in help and
//! manual.

use super::kind::Kind;

/// One option, with its name in every source.
#[derive(Debug)]
pub struct Spec {
    /// On the command line: `--name`.
    pub name: &'static str,
    /// Older names on the command line.
    pub aliases: &'static [&'static str],
    /// Its key in the file; `None` if it only makes sense on a command line.
    pub key: Option<Key>,
    /// Older keys in the file that mean the same.
    pub old_keys: &'static [OldKey],
    /// Environment variable.
    pub environment: Option<&'static str>,
    /// Key in `external_ids` of the `Open_vSwitch` table.
    pub external_id: Option<&'static str>,
    pub kind: Kind,
    /// The placeholder of the value in help.
    pub value_name: &'static str,
    /// The value if none is given; empty for none.
    pub default: &'static str,
    pub group: Group,
    /// One sentence, without a full stop.
    pub help: &'static str,
    pub effect: Effect,
}

/// A key of the file, in its modern spelling: lower case, with hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub section: &'static str,
    pub name: &'static str,
}

/// A place in the file that earlier programs read.
#[derive(Debug, Clone, Copy)]
pub struct OldKey {
    pub key: Key,
    /// Prepended to a value without a method (`unix:` for a path).
    pub prefix: &'static str,
    /// False for keys of the Python programs: their files give every default, also for connections
    /// that are not used. Such a value is ignored where it does not apply.
    pub insists: bool,
}

/// The subject of an option: its heading in help and manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Roles,
    Kubernetes,
    Pods,
    Gateway,
    Cni,
    OpenVSwitch,
    Databases,
    Cluster,
    ControlPlane,
    Logs,
    Endpoints,
    Later,
}

/// Whether an option that is given has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It does what its help says.
    Full,
    /// It is for a part that does not exist yet.
    Later(Part),
    /// It never has an effect. The text is the reason: the end of a sentence that begins with the
    /// option.
    Never(&'static str),
}

/// A part of OVN-Kubernetes that does not exist here yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Services,
    Policies,
    Egress,
    Routing,
    Gateway,
    ManagementPort,
    Networks,
    Offload,
    HybridOverlay,
    FlowExport,
    Metrics,
}

impl Spec {
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            aliases: &[],
            key: None,
            old_keys: &[],
            environment: None,
            external_id: None,
            value_name: kind.value_name(),
            default: "",
            kind,
            group: Group::Later,
            help: "",
            effect: Effect::Full,
        }
    }

    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub const fn key(mut self, section: &'static str, name: &'static str) -> Self {
        self.key = Some(Key { section, name });
        self
    }

    pub const fn old_keys(mut self, old_keys: &'static [OldKey]) -> Self {
        self.old_keys = old_keys;
        self
    }

    pub const fn environment(mut self, variable: &'static str) -> Self {
        self.environment = Some(variable);
        self
    }

    pub const fn external_id(mut self, key: &'static str) -> Self {
        self.external_id = Some(key);
        self
    }

    pub const fn value(mut self, name: &'static str) -> Self {
        self.value_name = name;
        self
    }

    pub const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    pub const fn under(mut self, group: Group) -> Self {
        self.group = group;
        self
    }

    pub const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    pub const fn later(mut self, part: Part) -> Self {
        self.effect = Effect::Later(part);
        self
    }

    pub const fn never(mut self, why: &'static str) -> Self {
        self.effect = Effect::Never(why);
        self
    }

    pub(super) fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret)
    }

    pub(super) fn is_switch(&self) -> bool {
        matches!(self.kind, Kind::Switch)
    }

    /// The option on a command line: `--name`.
    pub(super) fn flag(&self) -> String {
        format!("--{}", self.name)
    }
}

impl OldKey {
    /// A key under which a value means the same.
    pub const fn same(section: &'static str, name: &'static str) -> Self {
        Self { key: Key { section, name }, prefix: "", insists: true }
    }

    /// A key of the Python programs' file.
    pub const fn python(name: &'static str) -> Self {
        Self { key: Key { section: "default", name }, prefix: "", insists: false }
    }

    pub const fn prefix(mut self, prefix: &'static str) -> Self {
        self.prefix = prefix;
        self
    }
}

impl Group {
    pub const ALL: [Self; 12] = [
        Self::Roles,
        Self::Kubernetes,
        Self::Pods,
        Self::Gateway,
        Self::Cni,
        Self::OpenVSwitch,
        Self::Databases,
        Self::Cluster,
        Self::ControlPlane,
        Self::Logs,
        Self::Endpoints,
        Self::Later,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Roles => "What to be",
            Self::Kubernetes => "Kubernetes",
            Self::Pods => "Pods",
            Self::Gateway => "The node's gateway",
            Self::Cni => "CNI",
            Self::OpenVSwitch => "Open vSwitch and ovn-controller",
            Self::Databases => "OVN's databases",
            Self::Cluster => "The cluster's network",
            Self::ControlPlane => "The control plane",
            Self::Logs => "Logs",
            Self::Endpoints => "Health and measurements",
            Self::Later => "Accepted, without effect in this version",
        }
    }
}

impl Part {
    /// The end of a sentence that begins with "it is for".
    pub fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Policies => "network policies",
            Self::Egress => "how pods leave the cluster",
            Self::Routing => "routes that other routers are told",
            Self::Gateway => "the node's gateway",
            Self::ManagementPort => "the node's management port",
            Self::Networks => "networks beside the cluster's own",
            Self::Offload => "DPUs and other hardware offload",
            Self::HybridOverlay => "the hybrid overlay",
            Self::FlowExport => "the export of flow records",
            Self::Metrics => "further measurements (OVN, Open vSwitch, scale, packets)",
        }
    }
}
