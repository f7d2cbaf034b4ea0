//! An object of the API that this project writes to, or reports events about.

use std::{fmt, sync::Arc};

use contract::names::{ClusterPolicyKey, EGRESS_FIREWALL_NAME, PodKey, PolicyKey, ServiceKey};

/// An object by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    Node(Arc<str>),
    Pod(PodKey),
    Service(ServiceKey),
    NetworkPolicy(PolicyKey),
    ClusterPolicy(ClusterPolicyKey),
    /// That of a namespace, which has at most one, by the name of the namespace.
    EgressFirewall(Arc<str>),
    Namespace(Arc<str>),
}

impl Object {
    pub fn name(&self) -> &str {
        match self {
            Self::Node(name) | Self::Namespace(name) => name,
            Self::Pod(pod) => pod.name(),
            Self::Service(service) => service.name(),
            Self::NetworkPolicy(policy) => policy.name(),
            Self::ClusterPolicy(policy) => policy.name(),
            Self::EgressFirewall(_) => EGRESS_FIREWALL_NAME,
        }
    }

    /// `None` for an object of the cluster, such as a node.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Node(_) | Self::Namespace(_) | Self::ClusterPolicy(_) => None,
            Self::Pod(pod) => Some(pod.namespace()),
            Self::Service(service) => Some(service.namespace()),
            Self::NetworkPolicy(policy) => Some(policy.namespace()),
            Self::EgressFirewall(namespace) => Some(namespace),
        }
    }

    /// `kind` in the API.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Node(_) => "Node",
            Self::Pod(_) => "Pod",
            Self::Service(_) => "Service",
            Self::NetworkPolicy(_) => "NetworkPolicy",
            Self::ClusterPolicy(policy) => policy.kind.as_str(),
            Self::EgressFirewall(_) => "EgressFirewall",
            Self::Namespace(_) => "Namespace",
        }
    }

    /// `apiVersion` of the kind.
    pub fn api_version(&self) -> &'static str {
        match self {
            Self::Node(_) | Self::Pod(_) | Self::Service(_) | Self::Namespace(_) => "v1",
            Self::NetworkPolicy(_) => "networking.k8s.io/v1",
            Self::ClusterPolicy(policy) => policy.kind.api_version(),
            Self::EgressFirewall(_) => "k8s.ovn.org/v1",
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
            Self::Service(service) => write!(f, "service {service}"),
            Self::NetworkPolicy(policy) => write!(f, "network policy {policy}"),
            Self::ClusterPolicy(policy) => policy.fmt(f),
            Self::EgressFirewall(namespace) => write!(f, "egress firewall of namespace {namespace}"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
        }
    }
}
