//! An object of the API that this project writes to, or speaks about.

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

    /// None: it is the cluster's own.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Node(_) => None,
            Self::Pod(pod) => Some(pod.namespace()),
        }
    }

    /// As the API calls what it is.
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
