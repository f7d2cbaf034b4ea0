//! Owners of rows of the northbound database, and which change makes which of them dirty.

use std::{fmt, sync::Arc};

use contract::names::PodKey;

/// Name of a Node object.
pub type NodeName = Arc<str>;

/// An owner of rows. Each row of this controller has exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Rows that exist once in a cluster: its router, the join switch, groups and meters.
    Cluster,
    /// A node's switch, its router port, its management port.
    Node(NodeName),
    /// A pod's logical switch port.
    Pod(PodKey),
}

/// A change of the store. Only [`dirtied`](Change::dirtied) knows which keys it affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node was added, changed or removed. `pods`: the rows of its pods may be affected, too.
    Node { name: NodeName, pods: bool },
    /// A pod was added, ended, moved or removed, or its addresses have changed.
    Pod(PodKey),
}

impl Change {
    /// The keys whose desired rows may have changed. `pods_of` lists the pods of a node.
    ///
    /// | change | dirty |
    /// |---|---|
    /// | node | the node |
    /// | a node's subnets, zone or chassis | the node and its pods |
    /// | pod | the pod |
    pub fn dirtied(self, pods_of: impl Fn(&str) -> Vec<PodKey>) -> Vec<Key> {
        match self {
            Self::Node { name, pods: false } => vec![Key::Node(name)],
            Self::Node { name, pods: true } => {
                let pods = pods_of(&name);
                std::iter::once(Key::Node(name)).chain(pods.into_iter().map(Key::Pod)).collect()
            }
            Self::Pod(key) => vec![Key::Pod(key)],
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
        }
    }
}
