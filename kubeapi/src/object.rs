//! An object of the API that this project writes to, or reports events about.

use std::{fmt, sync::Arc};

use contract::names::PodKey;

/// A node or a pod, by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    Node(Arc<str>),
    Pod(PodKey),
}

impl Object {
    pub fn name(&self) -> &str {
        match self {
            Self::Node(name) => name,
            Self::Pod(pod) => pod.name(),
        }
    }

    /// `None` for an object of the cluster, such as a node.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Node(_) => None,
            Self::Pod(pod) => Some(pod.namespace()),
        }
    }

    /// `kind` in the API: `Node` or `Pod`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Node(_) => "Node",
            Self::Pod(_) => "Pod",
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
        }
    }
}
