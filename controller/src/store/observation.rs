//! Events from the watches of the API server. Knows neither their receivers nor their effects.

use std::sync::Arc;

use contract::names::{ClusterPolicyKey, ClusterPolicyKind, PodKey, PolicyKey, ServiceKey, SliceKey};
use ipnet::IpNet;
pub use kubeapi::watch::Seen;

use crate::{
    cluster_id::ClusterId,
    key::NodeName,
    store::{
        Answer, ClusterPolicy, DnsName, EgressFirewall, Namespace, Node, Pod, Policy, RangeName, Service,
        Slice,
    },
};

/// A watch event, or the identity of the API server's cluster.
#[derive(Debug, Clone)]
pub enum Observation {
    Nodes(Seen<NodeName, Node>),
    Namespaces(Seen<Arc<str>, (Arc<str>, Namespace)>),
    Pods(Seen<PodKey, (PodKey, Pod)>),
    Policies(Seen<PolicyKey, (PolicyKey, Policy)>),
    ClusterPolicies(ClusterPolicyKind, Seen<ClusterPolicyKey, (ClusterPolicyKey, ClusterPolicy)>),
    /// By their namespaces, each of which has at most one.
    EgressFirewalls(Seen<Arc<str>, (Arc<str>, EgressFirewall)>),
    /// What the DNS says of a name.
    Name(DnsName, Answer),
    /// A client connects to a Service that is idled.
    Connection(ServiceKey),
    Services(Seen<ServiceKey, (ServiceKey, Service)>),
    Slices(Seen<SliceKey, (SliceKey, Slice)>),
    /// ServiceCIDRs.
    Ranges(Seen<RangeName, (RangeName, Box<[IpNet]>)>),
    /// The cluster of the API server. It is read before the first lists, and again before each second look
    /// while a list is held back.
    Cluster(ClusterId),
}

impl Observation {
    /// Whether it is all objects of a kind.
    pub(crate) fn is_list(&self) -> bool {
        match self {
            Self::Nodes(seen) => matches!(seen, Seen::All(_)),
            Self::Namespaces(seen) => matches!(seen, Seen::All(_)),
            Self::Pods(seen) => matches!(seen, Seen::All(_)),
            Self::Policies(seen) => matches!(seen, Seen::All(_)),
            Self::ClusterPolicies(_, seen) => matches!(seen, Seen::All(_)),
            Self::EgressFirewalls(seen) => matches!(seen, Seen::All(_)),
            Self::Services(seen) => matches!(seen, Seen::All(_)),
            Self::Slices(seen) => matches!(seen, Seen::All(_)),
            Self::Ranges(seen) => matches!(seen, Seen::All(_)),
            Self::Cluster(_) | Self::Name(..) | Self::Connection(_) => false,
        }
    }

    /// The empty lists of all optional kinds, as a cluster without their definitions has.
    pub fn no_optional_kinds() -> Vec<Self> {
        let policies = ClusterPolicyKind::ALL.map(|kind| Self::ClusterPolicies(kind, Seen::All(Vec::new())));
        policies.into_iter().chain([Self::EgressFirewalls(Seen::All(Vec::new()))]).collect()
    }

    /// Whether both are about objects of the same kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ClusterPolicies(own, _), Self::ClusterPolicies(other, _)) => own == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// A kind of objects that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Node,
    Namespace,
    Pod,
    /// NetworkPolicy
    Policy,
    ClusterPolicy(ClusterPolicyKind),
    EgressFirewall,
    Service,
    Slice,
    /// ServiceCIDR
    Range,
}

impl Kind {
    /// In the order in which the watches start.
    pub const ALL: &[Self] = &[
        Self::Node,
        Self::Namespace,
        Self::Pod,
        Self::Policy,
        Self::ClusterPolicy(ClusterPolicyKind::ClusterNetworkPolicy),
        Self::ClusterPolicy(ClusterPolicyKind::AdminNetworkPolicy),
        Self::ClusterPolicy(ClusterPolicyKind::BaselineAdminNetworkPolicy),
        Self::EgressFirewall,
        Self::Service,
        Self::Slice,
        Self::Range,
    ];

    /// Whether rows follow from objects of the kind, so that none is removed before the first list.
    pub(crate) fn justifies_rows(self) -> bool {
        match self {
            Self::Node
            | Self::Namespace
            | Self::Pod
            | Self::Policy
            | Self::ClusterPolicy(_)
            | Self::EgressFirewall
            | Self::Service
            | Self::Slice => true,
            // The control plane of an upgraded cluster may lack the right to read them.
            Self::Range => false,
        }
    }
}
