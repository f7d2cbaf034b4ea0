//! Events from the watches of the API server. Knows neither their receivers nor their effects.

use std::{fmt, sync::Arc};

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
    /// A NetworkPolicy whose rules were not in memory.
    Reread(PolicyKey, Box<Policy>),
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

/// What an observation is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Node(NodeName),
    Namespace(Arc<str>),
    Pod(PodKey),
    Policy(PolicyKey),
    ClusterPolicy(ClusterPolicyKey),
    EgressFirewall(Arc<str>),
    Name(DnsName),
    Connection(ServiceKey),
    Reread(PolicyKey),
    Service(ServiceKey),
    Slice(SliceKey),
    Range(RangeName),
    Cluster,
}

/// The key of the object; none for a list, and for none.
fn key<K: Clone, V>(seen: &Seen<K, V>, of: impl Fn(&V) -> &K) -> Option<K> {
    match seen {
        Seen::All(_) | Seen::Unlisted(_) => None,
        Seen::Applied(object) => Some(of(object).clone()),
        Seen::Deleted(key) => Some(key.clone()),
    }
}

impl Observation {
    /// Whether it is all objects of a kind.
    fn is_list(&self) -> bool {
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
            Self::Cluster(_) | Self::Name(..) | Self::Connection(_) | Self::Reread(..) => false,
        }
    }

    /// What it is about; none if it is about all objects of a kind. A later observation of the same says all
    /// that an earlier one did.
    pub(crate) fn subject(&self) -> Option<Subject> {
        match self {
            Self::Nodes(seen) => key(seen, |node| &node.name).map(Subject::Node),
            Self::Namespaces(seen) => key(seen, |(name, _)| name).map(Subject::Namespace),
            Self::Pods(seen) => key(seen, |(pod, _)| pod).map(Subject::Pod),
            Self::Policies(seen) => key(seen, |(policy, _)| policy).map(Subject::Policy),
            Self::ClusterPolicies(_, seen) => key(seen, |(policy, _)| policy).map(Subject::ClusterPolicy),
            Self::EgressFirewalls(seen) => key(seen, |(name, _)| name).map(Subject::EgressFirewall),
            Self::Services(seen) => key(seen, |(service, _)| service).map(Subject::Service),
            Self::Slices(seen) => key(seen, |(slice, _)| slice).map(Subject::Slice),
            Self::Ranges(seen) => key(seen, |(range, _)| range).map(Subject::Range),
            Self::Name(name, _) => Some(Subject::Name(name.clone())),
            Self::Connection(service) => Some(Subject::Connection(service.clone())),
            Self::Reread(policy, _) => Some(Subject::Reread(policy.clone())),
            Self::Cluster(_) => Some(Subject::Cluster),
        }
    }

    /// The empty lists of all optional kinds, as a cluster without their definitions has.
    pub fn no_optional_kinds() -> Vec<Self> {
        let policies = ClusterPolicyKind::ALL.map(|kind| Self::ClusterPolicies(kind, Seen::All(Vec::new())));
        policies.into_iter().chain([Self::EgressFirewalls(Seen::All(Vec::new()))]).collect()
    }

    /// Whether it is that there is no list of a kind.
    fn is_unlisted(&self) -> bool {
        match self {
            Self::ClusterPolicies(_, seen) => matches!(seen, Seen::Unlisted(_)),
            Self::EgressFirewalls(seen) => matches!(seen, Seen::Unlisted(_)),
            // They are in every cluster.
            Self::Nodes(_)
            | Self::Namespaces(_)
            | Self::Pods(_)
            | Self::Policies(_)
            | Self::Services(_)
            | Self::Slices(_)
            | Self::Ranges(_)
            | Self::Cluster(_)
            | Self::Name(..)
            | Self::Reread(..)
            | Self::Connection(_) => false,
        }
    }

    /// Whether the earlier one says nothing any more: a list replaces all that came before it. That there
    /// is none replaces only the same: it says nothing about objects.
    pub(crate) fn replaces(&self, earlier: &Self) -> bool {
        self.is_like(earlier) && (self.is_list() || self.is_unlisted() && earlier.is_unlisted())
    }

    /// Whether both are about objects of the same kind.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ClusterPolicies(own, _), Self::ClusterPolicies(other, _)) => own == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Kind {
    /// In the plural.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "Nodes",
            Self::Namespace => "Namespaces",
            Self::Pod => "Pods",
            Self::Policy => "NetworkPolicies",
            Self::ClusterPolicy(ClusterPolicyKind::ClusterNetworkPolicy) => "ClusterNetworkPolicies",
            Self::ClusterPolicy(ClusterPolicyKind::AdminNetworkPolicy) => "AdminNetworkPolicies",
            Self::ClusterPolicy(ClusterPolicyKind::BaselineAdminNetworkPolicy) => {
                "BaselineAdminNetworkPolicies"
            }
            Self::EgressFirewall => "EgressFirewalls",
            Self::Service => "Services",
            Self::Slice => "EndpointSlices",
            Self::Range => "ServiceCIDRs",
        })
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

    /// Whether an administrator defines the kind, so that the API server may not have it.
    pub(crate) fn is_defined(self) -> bool {
        match self {
            Self::ClusterPolicy(_) | Self::EgressFirewall => true,
            Self::Node
            | Self::Namespace
            | Self::Pod
            | Self::Policy
            | Self::Service
            | Self::Slice
            | Self::Range => false,
        }
    }

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
