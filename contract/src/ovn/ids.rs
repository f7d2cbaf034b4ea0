//! Ids of rows that have no name of their own, and the names made from them.
//!
//! Such a row says in `external_ids` which program owns it, of what kind it is, what it is about, and all of that as one text, the id.
//! Port groups and address sets, whose names OVN restricts, are named by a hash of it.

use std::collections::BTreeMap;

use crate::fnv1a::fnv1a;

/// The key of `external_ids` with the whole id.
pub const ID: &str = "k8s.ovn.org/id";
pub const OWNER_CONTROLLER: &str = "k8s.ovn.org/owner-controller";
pub const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";

/// The part of the control plane that serves the cluster's own network.
const CONTROLLER: &str = "default-network-controller";

/// What a row is about. `Display` is the id: `default-network-controller:NetpolNode:n1:10.244.1.2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectId {
    owner_type: &'static str,
    /// In the order of the id.
    keys: Vec<(&'static str, String)>,
}

impl ObjectId {
    /// `keys` in the order that the kind prescribes; an empty value is part of the id too.
    pub fn new(owner_type: &'static str, keys: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self { owner_type, keys: keys.into_iter().collect() }
    }

    /// A group of ports that the cluster has once.
    pub fn cluster_port_group(name: &str) -> Self {
        Self::new("Cluster", [("k8s.ovn.org/name", name.to_owned())])
    }

    /// The rule that lets a node reach the pods of its switch.
    pub fn allow_from_node(node: &str, management: std::net::IpAddr) -> Self {
        Self::new("NetpolNode", [("k8s.ovn.org/name", node.to_owned()), ("ip", management.to_string())])
    }

    /// What the row's `external_ids` hold.
    pub fn external_ids(&self) -> BTreeMap<&'static str, String> {
        let fixed = [(ID, self.to_string()), (OWNER_CONTROLLER, CONTROLLER.to_owned()), (OWNER_TYPE, self.owner_type.to_owned())];
        fixed.into_iter().chain(self.keys.iter().cloned()).collect()
    }

    /// The name of a port group or address set with this id.
    pub fn hashed(&self) -> String {
        hash(&self.to_string())
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{CONTROLLER}:{}", self.owner_type)?;
        self.keys.iter().try_for_each(|(_, value)| write!(f, ":{value}"))
    }
}

/// A name from any text: `a` and the decimal FNV-1a of 64 bits.
pub fn hash(text: &str) -> String {
    format!("a{}", fnv1a(text.bytes()))
}
