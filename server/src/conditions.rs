//! The conditions that a process waits for before it is ready (on a node: before a pod can get its
//! network), and which of them are missing now. Knows nothing of its readers: `/readyz`, the log
//! and the metrics show the same list.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::watch;

/// A condition. Those of the node's server are defined here; other parts of the process may define
/// their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    place: u8,
    name: &'static str,
}

/// The reason of a condition of which nothing is known yet.
pub const NOT_STARTED: &str = "not started";

/// The conditions, each missing one with the reason. Clones share their content.
#[derive(Debug, Clone)]
pub struct Conditions {
    parts: Arc<[Part]>,
    missing: Arc<watch::Sender<BTreeMap<Part, String>>>,
    remarks: Arc<watch::Sender<BTreeMap<Part, String>>>,
    is_leaving: Arc<AtomicBool>,
}

impl Part {
    /// Open vSwitch's database answers.
    pub const OPEN_VSWITCH: Self = Self::new(0, "open-vswitch");
    /// The address of this node's tunnel endpoint is known.
    pub const TUNNEL_ADDRESS: Self = Self::new(1, "tunnel-address");
    /// The plugin is installed where runtimes look for it.
    pub const PLUGIN: Self = Self::new(2, "plugin");
    /// The server listens on its socket.
    pub const SOCKET: Self = Self::new(3, "socket");
    /// All pods of this node are known.
    pub const PODS: Self = Self::new(4, "pods");
    /// The management port works: the node and its pods reach each other.
    pub const MANAGEMENT_PORT: Self = Self::new(5, "management-port");
    /// The CNI configuration that makes runtimes use the plugin is in place.
    pub const CNI_CONF: Self = Self::new(6, "cni-configuration");
    /// Always met: its remarks tell which Services the node does not reach over its management
    /// port.
    pub const SERVICES: Self = Self::new(7, "services");

    /// The node's gateway works: its pods and the world reach each other. Met on a node without
    /// one.
    pub const GATEWAY: Self = Self::new(8, "gateway");

    /// The node's subnets are in the cluster's, as the options give them.
    pub const CLUSTER_SUBNETS: Self = Self::new(9, "cluster-subnets");

    /// All conditions of a node's server.
    pub const NODE: [Self; 10] = [
        Self::OPEN_VSWITCH,
        Self::TUNNEL_ADDRESS,
        Self::PLUGIN,
        Self::SOCKET,
        Self::PODS,
        Self::MANAGEMENT_PORT,
        Self::CNI_CONF,
        Self::SERVICES,
        Self::GATEWAY,
        Self::CLUSTER_SUBNETS,
    ];

    /// `place` is the position in the order of the start, unique among all conditions. Values below
    /// 16 belong to the node's server.
    pub const fn new(place: u8, name: &'static str) -> Self {
        Self { place, name }
    }

    /// The name in `/readyz` and in the log.
    pub fn name(self) -> &'static str {
        self.name
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Default for Conditions {
    /// The conditions of a node's server.
    fn default() -> Self {
        Self::of(Part::NODE)
    }
}

impl Conditions {
    /// All of `parts` are missing: nothing has started yet.
    pub fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        let parts: BTreeSet<Part> = parts.into_iter().collect();
        let missing = parts.iter().map(|part| (*part, NOT_STARTED.to_owned())).collect();
        let remarks = Arc::new(watch::Sender::new(BTreeMap::new()));
        Self {
            parts: parts.into_iter().collect(),
            missing: Arc::new(watch::Sender::new(missing)),
            remarks,
            is_leaving: Arc::default(),
        }
    }

    /// All conditions, in the order of the start.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Marks `part` as met.
    pub fn met(&self, part: Part) {
        self.missing.send_if_modified(|missing| missing.remove(&part).is_some());
    }

    /// Marks `part` as missing, and says why.
    pub fn missing(&self, part: Part, why: impl Into<String>) {
        let why = why.into();
        // An unchanged reason wakes no watcher: each wake-up may become a log line.
        self.missing
            .send_if_modified(|missing| missing.insert(part, why.clone()).as_ref() != Some(&why));
    }

    /// Sets the remark on `part`: worth knowing although the condition is met. `/readyz?verbose`
    /// shows it.
    pub fn remark(&self, part: Part, remark: impl Into<String>) {
        self.remarks.send_modify(|remarks| drop(remarks.insert(part, remark.into())));
    }

    /// Removes the remark on `part`.
    pub fn unremark(&self, part: Part) {
        self.remarks.send_if_modified(|remarks| remarks.remove(&part).is_some());
    }

    /// Sets whether the node is about to go: no condition of readiness, but load balancers outside
    /// of the cluster should send no new connections to it.
    pub fn leave(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Relaxed);
    }

    /// Whether the node is about to go.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// The current remarks, by condition.
    pub fn all_remarks(&self) -> BTreeMap<Part, String> {
        self.remarks.borrow().clone()
    }

    /// The missing conditions, each with the reason.
    pub fn all_missing(&self) -> BTreeMap<Part, String> {
        self.missing.borrow().clone()
    }

    /// Receives every change of the missing conditions from now on.
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

        conditions.missing(Part::PODS, "no answer");
        assert_eq!(conditions.all_missing(), [(Part::PODS, "no answer".to_owned())].into());
        assert!(watch.has_changed().unwrap());
        watch.mark_unchanged();
        conditions.missing(Part::PODS, "no answer");
        assert!(!watch.has_changed().unwrap());
    }
}
