//! Ids of rows that have no name of their own, and the names that are derived from them.
//!
//! The `external_ids` of such a row hold the program that owns it, its kind, what it is about, and all of
//! that as one text, the id. Port groups and address sets are named by a hash of the id, because OVN
//! restricts their names.

use std::collections::BTreeMap;

use crate::fnv1a::fnv1a;

/// The key of `external_ids` with the whole id.
pub const ID: &str = "k8s.ovn.org/id";
/// The key with the part of the control plane that owns the row.
pub const OWNER_CONTROLLER: &str = "k8s.ovn.org/owner-controller";
/// The key with the kind of the row.
pub const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";
/// The key with the kind of object that a load balancer serves: [`SERVICE`].
pub const KIND: &str = "k8s.ovn.org/kind";
/// The key with the object that a load balancer serves: `namespace/name`.
pub const OWNER: &str = "k8s.ovn.org/owner";
/// The [`KIND`] of a load balancer of a Service.
pub const SERVICE: &str = "Service";

/// The part of the control plane that serves the cluster's own network.
const CONTROLLER: &str = "default-network-controller";

/// The identity of a row. `Display` prints the id: `default-network-controller:NetpolNode:n1:10.244.1.2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectId {
    owner_type: &'static str,
    /// In the order in which the id lists them.
    keys: Vec<(&'static str, String)>,
}

impl ObjectId {
    /// `keys`: in the order that the kind prescribes. An empty value is part of the id, too.
    pub fn new(owner_type: &'static str, keys: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self { owner_type, keys: keys.into_iter().collect() }
    }

    /// A port group of the whole cluster.
    pub fn cluster_port_group(name: &str) -> Self {
        Self::new("Cluster", [("k8s.ovn.org/name", name.to_owned())])
    }

    /// The ACL that lets a node reach the pods of its switch.
    pub fn allow_from_node(node: &str, management: std::net::IpAddr) -> Self {
        Self::new("NetpolNode", [("k8s.ovn.org/name", node.to_owned()), ("ip", management.to_string())])
    }

    /// The `external_ids` of the row.
    pub fn external_ids(&self) -> BTreeMap<&'static str, String> {
        let fixed = [
            (ID, self.to_string()),
            (OWNER_CONTROLLER, CONTROLLER.to_owned()),
            (OWNER_TYPE, self.owner_type.to_owned()),
        ];
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

/// A name for any text: `a`, followed by the decimal 64-bit FNV-1a.
pub fn hash(text: &str) -> String {
    format!("a{}", fnv1a(text.bytes()))
}
