//! An object of the API that this project writes to, or reports events about.

use std::{fmt, sync::Arc};

use contract::names::{PodKey, ServiceKey};

/// A node, a pod or a Service, by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    Node(Arc<str>),
    Pod(PodKey),
    Service(ServiceKey),
}

impl Object {
    pub fn name(&self) -> &str {
        match self {
            Self::Node(name) => name,
            Self::Pod(pod) => pod.name(),
            Self::Service(service) => service.name(),
        }
    }

    /// `None` for an object of the cluster, such as a node.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Node(_) => None,
            Self::Pod(pod) => Some(pod.namespace()),
            Self::Service(service) => Some(service.namespace()),
        }
    }

    /// `kind` in the API.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Node(_) => "Node",
            Self::Pod(_) => "Pod",
            Self::Service(_) => "Service",
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
            Self::Service(service) => write!(f, "service {service}"),
        }
    }
}
