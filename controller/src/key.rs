//! Owners of rows of the northbound database, and how much of their rows a change concerns.
//!
//! `world/observe.rs` has the table of which change concerns which keys.

use std::{collections::BTreeSet, fmt, net::IpAddr, sync::Arc};

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, PodKey, PolicyKey, ServiceKey},
};
use kubeapi::services::Protocol;

/// Name of a Node object.
pub type NodeName = Arc<str>;

/// An owner of rows. Each row of this controller has exactly one.
///
/// Every row and every dirty key has one: three words. The larger ones are shared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Rows that exist once in a cluster: its router, the join switch, groups and meters.
    Cluster,
    /// A node's switch, its router port, its management port.
    Node(NodeName),
    /// A node's gateway router, the switch between it and the node's bridge, and what leads to it.
    Gateway(NodeName),
    /// A node on the switch between zones, and the ways to it from other zones.
    Transit(NodeName),
    /// The translation of a pod's address by its node's gateway router, where each pod has its own.
    SourceNat(Arc<Translated>),
    /// What isolates the selected pods of a namespace: a port group for each direction.
    Isolation(Arc<str>),
    /// A set of addresses that policies name.
    Set(SetId),
    /// What a NetworkPolicy allows its pods.
    Policy(PolicyKey),
    /// What a policy of the whole cluster does with connections of its pods.
    ClusterPolicy(Arc<ClusterPolicyKey>),
    /// The group of a namespace's pods, and their multicast.
    Namespace(Arc<str>),
    /// What the object of such a kind says about the pods of its namespace.
    Custom(Arc<CustomKey>),
    /// A pod's logical switch port.
    Pod(PodKey),
    /// A Service's load balancers.
    Service(ServiceKey),
    /// The variables of a chassis, by its name: what templates mean on it.
    Chassis(Arc<str>),
}

/// An address that the gateway router of a node translates for itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Translated {
    pub node: NodeName,
    pub address: IpAddr,
}

/// The object of a kind of which a namespace has one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomKey {
    pub kind: CustomKind,
    pub namespace: Arc<str>,
}

// A value of a map with one entry for each row, or two.
const _: () = assert!(size_of::<Key>() == 24);

impl Key {
    pub fn custom(kind: CustomKind, namespace: Arc<str>) -> Self {
        Self::Custom(Arc::new(CustomKey { kind, namespace }))
    }

    pub(crate) fn source_nat(node: NodeName, address: IpAddr) -> Self {
        Self::SourceNat(Arc::new(Translated { node, address }))
    }

    /// The node whose switch the key owns.
    pub(crate) fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Node(name) => Some(name),
            Self::Cluster
            | Self::Gateway(_)
            | Self::Transit(_)
            | Self::SourceNat(_)
            | Self::Isolation(_)
            | Self::Set(_)
            | Self::Policy(_)
            | Self::ClusterPolicy(_)
            | Self::Namespace(_)
            | Self::Custom(_)
            | Self::Pod(_)
            | Self::Service(_)
            | Self::Chassis(_) => None,
        }
    }
}

/// A policy of any kind, as a user of sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnyPolicy {
    Namespaced(PolicyKey),
    Cluster(ClusterPolicyKey),
    /// The object of such a kind in a namespace.
    Custom(CustomKind, Arc<str>),
    /// What a namespace's annotation says about multicast.
    Multicast(Arc<str>),
}

impl From<AnyPolicy> for Key {
    fn from(policy: AnyPolicy) -> Self {
        match policy {
            AnyPolicy::Namespaced(policy) => Self::Policy(policy),
            AnyPolicy::Cluster(policy) => policy.into(),
            AnyPolicy::Custom(kind, namespace) => Self::custom(kind, namespace),
            AnyPolicy::Multicast(namespace) => Self::Namespace(namespace),
        }
    }
}

impl From<ClusterPolicyKey> for Key {
    fn from(policy: ClusterPolicyKey) -> Self {
        Self::ClusterPolicy(Arc::new(policy))
    }
}

/// A set of addresses: of pods, of nodes, or of a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SetId {
    /// Of the pods of a namespace.
    Namespace(Arc<str>),
    /// Of the pods that selectors select, by the canonical text of these, or by the rule that the
    /// set is of: `EgressQoS:shop:999`.
    Pods(Arc<str>),
    /// Of the pods that have a port of this name and protocol with this number.
    Port(Arc<str>, Protocol, u16),
    /// Of those in this namespace.
    PortIn(Arc<PortIn>),
    /// Of a name of the DNS.
    Name(Arc<str>),
    /// Of the nodes that a selector selects, by its canonical text.
    Nodes(Arc<str>),
}

/// A number that pods of a namespace give to a port's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIn {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub number: u16,
}

impl SetId {
    /// The set of the pods that give a port's name this number: of a namespace, or of all.
    pub fn port(namespace: Option<&str>, name: &Arc<str>, protocol: Protocol, number: u16) -> Self {
        let name = Arc::clone(name);
        match namespace {
            Some(namespace) => Self::PortIn(Arc::new(PortIn {
                namespace: namespace.into(),
                name,
                protocol,
                number,
            })),
            None => Self::Port(name, protocol, number),
        }
    }
}

/// How much of a key's rows a change concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All rows, with all columns.
    Whole,
    /// These elements of sets and entries of maps, and nothing else. Boxed, because every dirty key
    /// has a scope, and almost all of them are whole.
    Parts(Box<BTreeSet<Part>>),
}

/// An element or entry of a large value, which is compared and written without the rest of the
/// value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// An address in an address set.
    Address(IpAddr),
    /// The entry of a map with this key.
    Entry(Arc<str>),
}

/// More parts than this are compared as a whole. A part costs a lookup in its value; beyond some
/// dozens, one pass over the value costs less, and a transaction stays short.
const MOST_PARTS: usize = 64;

/// Receives the keys that a change of the store concerns. A key may come several times.
pub type Dirty<'a> = dyn FnMut(Key, Scope) + 'a;

impl Scope {
    /// One part.
    pub fn part(part: Part) -> Self {
        Self::Parts(Box::new(BTreeSet::from([part])))
    }

    /// Extends this scope by another one.
    pub fn extend(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Parts(own), Self::Parts(more)) => {
                own.extend(*more);
                if own.len() > MOST_PARTS {
                    *self = Self::Whole;
                }
            }
            (Self::Whole, _) | (_, Self::Whole) => *self = Self::Whole,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Gateway(name) => write!(f, "gateway of node {name}"),
            Self::Transit(name) => write!(f, "transit of node {name}"),
            Self::SourceNat(of) => {
                let Translated { node, address } = &**of;
                write!(f, "source NAT of {address} on node {node}")
            }
            Self::Isolation(namespace) => write!(f, "isolation of namespace {namespace}"),
            Self::Set(set) => write!(f, "addresses of {set}"),
            Self::Policy(policy) => write!(f, "network policy {policy}"),
            Self::ClusterPolicy(policy) => policy.fmt(f),
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Custom(of) => {
                let CustomKey { kind, namespace } = &**of;
                write!(f, "{} of namespace {namespace}", kind.words())
            }
            Self::Pod(pod) => write!(f, "pod {pod}"),
            Self::Service(service) => write!(f, "service {service}"),
            Self::Chassis(name) => write!(f, "chassis {name}"),
        }
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Pods(text) => write!(f, "pods {text}"),
            Self::Port(name, protocol, number) => write!(f, "port {name} {protocol} {number}"),
            Self::PortIn(port) => {
                let PortIn { namespace, name, protocol, number } = &**port;
                write!(f, "port {name} {protocol} {number} in {namespace}")
            }
            Self::Name(name) => write!(f, "name {name}"),
            Self::Nodes(text) => write!(f, "nodes {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The parts of a scope; none if it is the whole.
    fn parts(scope: &Scope) -> Option<BTreeSet<Part>> {
        if let Scope::Parts(parts) = scope { Some((**parts).clone()) } else { None }
    }

    fn scope() -> impl Strategy<Value = Option<Vec<u8>>> {
        prop_oneof![1 => Just(None), 9 => prop::collection::vec(any::<u8>(), 1..30).prop_map(Some)]
    }

    proptest! {
        /// A scope that forgot a part would leave that part wrong for ever.
        #[test]
        fn scopes_add_up_and_too_many_parts_are_the_whole(scopes in prop::collection::vec(scope(), 1..6)) {
            let part = |number: u8| Part::Address(IpAddr::from([10, 0, 0, number]));
            let of = |numbers: &Option<Vec<u8>>| match numbers {
                None => Scope::Whole,
                Some(numbers) => Scope::Parts(Box::new(numbers.iter().copied().map(part).collect())),
            };
            let mut sum = of(&scopes[0]);
            scopes[1..].iter().for_each(|scope| sum.extend(of(scope)));
            let all: BTreeSet<Part> = scopes.iter().flatten().flatten().copied().map(part).collect();
            let is_whole = scopes.contains(&None) || all.len() > MOST_PARTS;
            prop_assert_eq!(parts(&sum), (!is_whole).then_some(all));
        }
    }
}
