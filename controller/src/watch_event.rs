//! Events from the watches of the API server, and the kinds that are watched. Knows neither their
//! receivers nor their effects.

use std::{fmt, sync::Arc};

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, ClusterPolicyKind, PodKey, PolicyKey, ServiceKey, SliceKey},
};
use ipnet::IpNet;
use kubeapi::services::{Service, Slice};

use crate::{
    cluster_id::ClusterId,
    custom::{
        SeenCustom,
        registry::{CustomEvent, RegisteredKind},
    },
    key::{Key, NodeName},
    kinds::{
        cluster_policy::object::ClusterPolicy, namespace::object::Namespace,
        network_policy::object::Policy, node::object::Node, pod::object::Pod,
        service::ranges::RangeName,
    },
    select::names::{Answer, DnsName},
};

pub use kubeapi::watch::Seen;

/// A watch event, or the identity of the API server's cluster.
#[derive(Debug, Clone)]
pub enum WatchEvent {
    Nodes(Seen<NodeName, Node>),
    Namespaces(Seen<Arc<str>, (Arc<str>, Namespace)>),
    Pods(Seen<PodKey, (PodKey, Pod)>),
    Policies(Seen<PolicyKey, (PolicyKey, Policy)>),
    /// A NetworkPolicy whose rules were not in memory.
    Reread(PolicyKey, Box<Policy>),
    ClusterPolicies(ClusterPolicyKind, Seen<ClusterPolicyKey, (ClusterPolicyKey, ClusterPolicy)>),
    /// Of a kind of which a namespace has one object.
    Custom(CustomEvent),
    /// What the DNS says of a name.
    Name(DnsName, Answer),
    /// A client connects to a Service that is idled.
    Connection(ServiceKey),
    Services(Seen<ServiceKey, (ServiceKey, Service)>),
    Slices(Seen<SliceKey, (SliceKey, Slice)>),
    /// ServiceCIDRs.
    Ranges(Seen<RangeName, (RangeName, Box<[IpNet]>)>),
    /// The cluster of the API server. It is read before the first lists, and again before each
    /// second look while a list is held back.
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
    Custom(CustomKind, Arc<str>),
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

impl WatchEvent {
    /// What is seen of a kind of which a namespace has one object.
    pub fn custom<K: RegisteredKind>(seen: SeenCustom<K>) -> Self {
        Self::Custom(K::event(seen))
    }

    /// The objects whose owners ask when they are in force; and, of one object, that its owner does
    /// not. The latter says nothing while nobody asks: `is_any_known`.
    pub(crate) fn requests(&self, is_any_known: bool) -> Vec<(Key, bool)> {
        fn of<K: Clone, V>(
            seen: &Seen<K, (K, V)>,
            key: impl Fn(K) -> Key,
            asks: impl Fn(&V) -> bool,
            is_any_known: bool,
        ) -> Vec<(Key, bool)> {
            match seen {
                Seen::All(objects) => {
                    let asking = objects.iter().filter(|(_, object)| asks(object));
                    asking.map(|(name, _)| (key(name.clone()), true)).collect()
                }
                Seen::Applied((name, object)) if asks(object) || is_any_known => {
                    vec![(key(name.clone()), asks(object))]
                }
                Seen::Deleted(name) if is_any_known => vec![(key(name.clone()), false)],
                Seen::Applied(_) | Seen::Deleted(_) | Seen::Unlisted(_) => Vec::new(),
            }
        }
        match self {
            Self::Pods(seen) => of(seen, Key::Pod, |pod| pod.reports_applied, is_any_known),
            Self::Services(seen) => {
                of(seen, Key::Service, |service| service.reports_applied, is_any_known)
            }
            Self::Policies(seen) => {
                of(seen, Key::Policy, |policy| policy.reports_applied, is_any_known)
            }
            Self::ClusterPolicies(_, seen) => of(
                seen,
                |name| Key::ClusterPolicy(Arc::new(name)),
                |policy| policy.reports_applied,
                is_any_known,
            ),
            // Nobody asks of the others.
            _ => Vec::new(),
        }
    }

    /// Whether it is all objects of a kind.
    pub(crate) fn is_list(&self) -> bool {
        match self {
            Self::Nodes(seen) => matches!(seen, Seen::All(_)),
            Self::Namespaces(seen) => matches!(seen, Seen::All(_)),
            Self::Pods(seen) => matches!(seen, Seen::All(_)),
            Self::Policies(seen) => matches!(seen, Seen::All(_)),
            Self::ClusterPolicies(_, seen) => matches!(seen, Seen::All(_)),
            Self::Custom(event) => event.is_list(),
            Self::Services(seen) => matches!(seen, Seen::All(_)),
            Self::Slices(seen) => matches!(seen, Seen::All(_)),
            Self::Ranges(seen) => matches!(seen, Seen::All(_)),
            Self::Cluster(_) | Self::Name(..) | Self::Connection(_) | Self::Reread(..) => false,
        }
    }

    /// What it is about; none if it is about all objects of a kind. A later observation of the same
    /// says all that an earlier one did.
    pub(crate) fn subject(&self) -> Option<Subject> {
        match self {
            Self::Nodes(seen) => key(seen, |node| &node.name).map(Subject::Node),
            Self::Namespaces(seen) => key(seen, |(name, _)| name).map(Subject::Namespace),
            Self::Pods(seen) => key(seen, |(pod, _)| pod).map(Subject::Pod),
            Self::Policies(seen) => key(seen, |(policy, _)| policy).map(Subject::Policy),
            Self::ClusterPolicies(_, seen) => {
                key(seen, |(policy, _)| policy).map(Subject::ClusterPolicy)
            }
            Self::Custom(event) => {
                event.namespace().map(|namespace| Subject::Custom(event.kind(), namespace))
            }
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
        let policies =
            ClusterPolicyKind::ALL.map(|kind| Self::ClusterPolicies(kind, Seen::All(Vec::new())));
        let custom = CustomKind::ALL.map(|kind| Self::Custom(CustomEvent::nothing(kind)));
        policies.into_iter().chain(custom).collect()
    }

    /// Whether it is that there is no list of a kind.
    fn is_unlisted(&self) -> bool {
        match self {
            Self::ClusterPolicies(_, seen) => matches!(seen, Seen::Unlisted(_)),
            Self::Custom(event) => event.is_unlisted(),
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

    /// Whether the earlier one says nothing any more: a list replaces all that came before it. That
    /// there is none replaces only the same: it says nothing about objects.
    pub(crate) fn replaces(&self, earlier: &Self) -> bool {
        self.is_like(earlier) && (self.is_list() || self.is_unlisted() && earlier.is_unlisted())
    }

    /// Whether both are about objects of the same kind.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ClusterPolicies(own, _), Self::ClusterPolicies(other, _)) => own == other,
            (Self::Custom(own), Self::Custom(other)) => own.kind() == other.kind(),
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
            Self::ClusterPolicy(ClusterPolicyKind::ClusterNetworkPolicy) => {
                "ClusterNetworkPolicies"
            }
            Self::ClusterPolicy(ClusterPolicyKind::AdminNetworkPolicy) => "AdminNetworkPolicies",
            Self::ClusterPolicy(ClusterPolicyKind::BaselineAdminNetworkPolicy) => {
                "BaselineAdminNetworkPolicies"
            }
            Self::Custom(kind) => kind.plural(),
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
    Custom(CustomKind),
    Service,
    Slice,
    /// ServiceCIDR
    Range,
}

impl Kind {
    /// In the order in which the watches start.
    pub const ALL: &[Self] = &{
        const SERVICES: usize = 7 + CustomKind::ALL.len();
        let mut all = [Self::Range; SERVICES + 3];
        [all[0], all[1], all[2], all[3]] = [Self::Node, Self::Namespace, Self::Pod, Self::Policy];
        all[4] = Self::ClusterPolicy(ClusterPolicyKind::ClusterNetworkPolicy);
        all[5] = Self::ClusterPolicy(ClusterPolicyKind::AdminNetworkPolicy);
        all[6] = Self::ClusterPolicy(ClusterPolicyKind::BaselineAdminNetworkPolicy);
        let mut custom = 0;
        while custom < CustomKind::ALL.len() {
            all[7 + custom] = Self::Custom(CustomKind::ALL[custom]);
            custom += 1;
        }
        [all[SERVICES], all[SERVICES + 1]] = [Self::Service, Self::Slice];
        all
    };

    /// Whether an administrator defines the kind, so that the API server may not have it.
    pub(crate) fn is_defined(self) -> bool {
        match self {
            Self::ClusterPolicy(_) | Self::Custom(_) => true,
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
            | Self::Custom(_)
            | Self::Service
            | Self::Slice => true,
            // The control plane of an upgraded cluster may lack the right to read them.
            Self::Range => false,
        }
    }
}
