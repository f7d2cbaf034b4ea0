//! An object of the API that this project writes to, or reports events about.

use std::{fmt, sync::Arc};

use contract::{
    definition::{CUSTOM_NAME, CustomKind, Definition},
    names::{ClusterPolicyKey, PodKey, PolicyKey, ServiceKey},
};

/// An object by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    Node(Arc<str>),
    Pod(PodKey),
    Service(ServiceKey),
    NetworkPolicy(PolicyKey),
    ClusterPolicy(ClusterPolicyKey),
    /// That of a namespace, which has at most one, by the name of the namespace.
    Custom(CustomKind, Arc<str>),
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
            Self::Custom(..) => CUSTOM_NAME,
        }
    }

    /// `None` for an object of the cluster, such as a node.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Node(_) | Self::Namespace(_) | Self::ClusterPolicy(_) => None,
            Self::Pod(pod) => Some(pod.namespace()),
            Self::Service(service) => Some(service.namespace()),
            Self::NetworkPolicy(policy) => Some(policy.namespace()),
            Self::Custom(_, namespace) => Some(namespace),
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
            Self::Custom(kind, _) => kind.as_str(),
            Self::Namespace(_) => "Namespace",
        }
    }

    /// `apiVersion` of the kind. Of one that an administrator defines, this version of it.
    pub fn api_version(&self, version: impl Fn(&'static Definition) -> &'static str) -> String {
        let of = |definition: &'static Definition| definition.api_version(version(definition));
        match self {
            Self::Node(_) | Self::Pod(_) | Self::Service(_) | Self::Namespace(_) => "v1".to_owned(),
            Self::NetworkPolicy(_) => "networking.k8s.io/v1".to_owned(),
            Self::ClusterPolicy(policy) => of(policy.kind.definition()),
            Self::Custom(kind, _) => of(kind.definition()),
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
            Self::Custom(kind, namespace) => {
                write!(f, "{} of namespace {namespace}", kind.words())
            }
            Self::Namespace(name) => write!(f, "namespace {name}"),
        }
    }
}
