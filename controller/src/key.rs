//! What owns rows of the northbound database, and which change makes whose rows worth a second look.

use std::{fmt, sync::Arc};

use contract::names::PodKey;

/// Name of a Node object.
pub type NodeName = Arc<str>;

/// An owner of rows. Each row of ours has exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// What the cluster has once: its router, the join switch, groups and meters.
    Cluster,
    /// A node's switch, its router port, its management port.
    Node(NodeName),
    /// A pod's logical switch port.
    Pod(PodKey),
}

/// What became different in the store. The only place that knows what follows from it is [`dirtied`](Change::dirtied).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node came, went, or is not as it was: `pods` if its pods' rows may be concerned.
    Node { name: NodeName, pods: bool },
    /// A pod came, went, ended, moved, or has other addresses.
    Pod(PodKey),
}

impl Change {
    /// The keys whose rows may have to follow. `pods_of` names the pods of a node.
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
