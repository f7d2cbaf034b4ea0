//! What a process needs before it does what it is for (for a node: before a pod can have its network), and what of it is missing now.
//! Knows nothing of who asks: `/readyz`, STATUS and the log show the same list.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use tokio::sync::watch;

/// Something that has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Open vSwitch's database answers.
    OpenVSwitch,
    /// It is known where this node's tunnels end.
    TunnelAddress,
    /// The plugin is where runtimes look for it.
    Plugin,
    /// The socket is served.
    Socket,
    /// All pods of this node are known.
    Pods,
    /// The node and its pods reach each other.
    ManagementPort,
    /// Runtimes are told to use the plugin.
    CniConf,
    /// It is known who leads: this process, or another one.
    Election,
    /// All nodes and pods of the cluster are known.
    Cluster,
    /// OVN's northbound database answers.
    Northbound,
    /// OVN's northbound database has had everything that it should have, once; for who stands by: whenever it leads.
    Rows,
}

/// Why a part is missing that nothing has been heard of yet.
pub(crate) const NOT_STARTED: &str = "not started";

/// The parts that are waited for, each with the reason. Clones share one content.
#[derive(Debug, Clone)]
pub struct Conditions {
    parts: Arc<[Part]>,
    missing: Arc<watch::Sender<BTreeMap<Part, String>>>,
    remarks: Arc<watch::Sender<BTreeMap<Part, String>>>,
}

impl Part {
    /// What a node's server needs.
    pub const NODE: [Self; 7] =
        [Self::OpenVSwitch, Self::TunnelAddress, Self::Plugin, Self::Socket, Self::Pods, Self::ManagementPort, Self::CniConf];
    /// What the control plane's roles need, all together.
    pub const CONTROL_PLANE: [Self; 4] = [Self::Election, Self::Cluster, Self::Northbound, Self::Rows];

    /// As `/readyz` and the log name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenVSwitch => "open-vswitch",
            Self::TunnelAddress => "tunnel-address",
            Self::Plugin => "plugin",
            Self::Socket => "socket",
            Self::Pods => "pods",
            Self::ManagementPort => "management-port",
            Self::CniConf => "cni-configuration",
            Self::Election => "election",
            Self::Cluster => "cluster",
            Self::Northbound => "northbound-database",
            Self::Rows => "rows",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Default for Conditions {
    /// Those of a node's server.
    fn default() -> Self {
        Self::of(Part::NODE)
    }
}

impl Conditions {
    /// Everything is missing: nothing was started.
    pub fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        let parts: BTreeSet<Part> = parts.into_iter().collect();
        let missing = parts.iter().map(|part| (*part, NOT_STARTED.to_owned())).collect();
        let remarks = Arc::new(watch::Sender::new(BTreeMap::new()));
        Self { parts: parts.into_iter().collect(), missing: Arc::new(watch::Sender::new(missing)), remarks }
    }

    /// All that is waited for, in the order of the start.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// `part` is there.
    pub fn met(&self, part: Part) {
        self.missing.send_if_modified(|missing| missing.remove(&part).is_some());
    }

    /// `part` is missing, and why.
    pub fn missing(&self, part: Part, why: impl Into<String>) {
        let why = why.into();
        self.missing.send_if_modified(|missing| missing.insert(part, why.clone()).as_ref() != Some(&why));
    }

    /// What is worth knowing of `part` although it is there, for who asks for everything.
    pub fn remark(&self, part: Part, remark: impl Into<String>) {
        self.remarks.send_modify(|remarks| drop(remarks.insert(part, remark.into())));
    }

    /// The last remark on `part` no longer holds.
    pub fn unremark(&self, part: Part) {
        self.remarks.send_if_modified(|remarks| remarks.remove(&part).is_some());
    }

    /// What was last remarked of each part.
    pub fn all_remarks(&self) -> BTreeMap<Part, String> {
        self.remarks.borrow().clone()
    }

    /// What is missing now, with the reason.
    pub fn all_missing(&self) -> BTreeMap<Part, String> {
        self.missing.borrow().clone()
    }

    /// Every change from now on.
    pub fn watch(&self) -> watch::Receiver<BTreeMap<Part, String>> {
        self.missing.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_missing_until_it_is_met_and_only_changes_are_told() {
        let conditions = Conditions::default();
        assert_eq!(conditions.all_missing().len(), Part::NODE.len());
        let mut watch = conditions.watch();
        Part::NODE.into_iter().for_each(|part| conditions.met(part));
        assert!(watch.has_changed().unwrap() && watch.borrow_and_update().is_empty());

        conditions.missing(Part::Pods, "no answer");
        assert_eq!(conditions.all_missing(), [(Part::Pods, "no answer".to_owned())].into());
        assert!(watch.has_changed().unwrap());
        watch.mark_unchanged();
        conditions.missing(Part::Pods, "no answer");
        assert!(!watch.has_changed().unwrap());
    }
}
