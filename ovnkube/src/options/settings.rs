//! The given values of each option, their sources, and which of them counts.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use super::spec::Spec;

/// The source of a value. The first of these that has one wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    CommandLine,
    File {
        path: PathBuf,
        line: usize,
    },
    /// An environment variable.
    Environment(&'static str),
    /// A file that the kubelet mounts into every pod.
    ServiceAccount(PathBuf),
    /// Variables that the kubelet sets in every container.
    InCluster,
    /// A key of `external_ids` in the `Open_vSwitch` table.
    ExternalId(&'static str),
    Default,
}

/// One value of one option.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// Never empty: an empty value counts as none, as in the Go programs.
    pub value: String,
    pub origin: Origin,
    /// False for a default in a file of the Python programs: it is ignored where it does not apply.
    pub insists: bool,
}

/// All values of all options, those of the best source first.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings(BTreeMap<&'static str, Vec<Setting>>);

impl Settings {
    /// Adds a value after those of better sources, and of the same.
    pub(super) fn add(&mut self, spec: &Spec, setting: Setting) {
        if setting.value.is_empty() {
            return;
        }
        let of_option = self.0.entry(spec.name).or_default();
        let rank = setting.origin.rank();
        // After those of equal rank: of one source, the first value wins.
        let position = of_option.partition_point(|other| other.origin.rank() <= rank);
        of_option.insert(position, setting);
    }

    /// Adds a value of the file. The last line of an option wins, except that a value which does
    /// not insist never replaces one that does.
    pub(super) fn add_of_file(&mut self, spec: &Spec, setting: Setting) {
        let weaker = !setting.insists
            && self
                .0
                .get(spec.name)
                .is_some_and(|all| all.iter().any(|other| other.is_of_file() && other.insists));
        if setting.value.is_empty() || weaker {
            return;
        }
        self.0.entry(spec.name).or_default().retain(|other| !other.is_of_file());
        self.add(spec, setting);
    }

    /// These settings, and those of `options` in `external_ids`, except the keys that this program
    /// wrote itself.
    #[must_use]
    pub(super) fn with_external_ids(
        mut self,
        external_ids: &BTreeMap<String, String>,
        options: impl IntoIterator<Item = &'static Spec>,
    ) -> Self {
        // A key that the server wrote came from an option: it must not outlive it.
        let external_ids = server::node::of_administrator(external_ids);
        for spec in options {
            if let Some((key, value)) =
                spec.external_id.and_then(|key| Some((key, external_ids.get(key)?)))
            {
                self.add(
                    spec,
                    Setting {
                        value: value.clone(),
                        origin: Origin::ExternalId(key),
                        insists: true,
                    },
                );
            }
        }
        self
    }

    /// The value that counts, unless that is the default.
    pub(super) fn given(&self, spec: &Spec) -> Option<&Setting> {
        self.0.get(spec.name)?.first()
    }

    /// Every value, best first.
    pub(super) fn every(&self, spec: &Spec) -> &[Setting] {
        self.0.get(spec.name).map_or(&[], Vec::as_slice)
    }

    /// The value that counts, and where it comes from.
    pub(super) fn value(&self, spec: &'static Spec) -> Setting {
        let default =
            || Setting { value: spec.default.to_owned(), origin: Origin::Default, insists: false };
        self.given(spec).cloned().unwrap_or_else(default)
    }
}

impl Origin {
    /// The smallest wins.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::CommandLine => 0,
            Self::File { .. } => 1,
            Self::Environment(_) => 2,
            Self::ServiceAccount(_) | Self::InCluster => 3,
            Self::ExternalId(_) => 4,
            Self::Default => 5,
        }
    }

    /// The name of an option in messages, by its source: `--mtu`, `FILE:3: mtu`.
    pub(super) fn names(&self, spec: &Spec) -> String {
        match self {
            Self::CommandLine | Self::Default => spec.flag(),
            Self::File { path, line } => {
                format!("{}:{line}: {}", path.display(), spec.key.map_or(spec.name, |key| key.name))
            }
            Self::Environment(variable) => format!("environment variable {variable}"),
            Self::ServiceAccount(path) => path.display().to_string(),
            Self::InCluster => "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT".to_owned(),
            Self::ExternalId(key) => format!("external_ids:{key} in Open vSwitch"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = |path: &Path| path.display().to_string();
        match self {
            Self::CommandLine => f.write_str("command line"),
            Self::File { path, line } => write!(f, "{}:{line}", file(path)),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::ServiceAccount(_) => f.write_str("service account"),
            Self::InCluster => f.write_str("service account (KUBERNETES_SERVICE_HOST)"),
            Self::ExternalId(key) => write!(f, "external_ids:{key}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Setting {
    fn is_of_file(&self) -> bool {
        matches!(self.origin, Origin::File { .. })
    }

    /// The option and its value in messages. The value of a secret is left out.
    pub(super) fn names(&self, spec: &Spec) -> String {
        if spec.is_secret() {
            self.origin.names(spec)
        } else {
            format!("{} {:?}", self.origin.names(spec), super::kind::shown(&self.value))
        }
    }
}

/// Without the value, which may be a secret.
impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting").field("origin", &self.origin).finish_non_exhaustive()
    }
}
