//! Policies of the whole cluster, in the tiers before and behind NetworkPolicies:
//! ClusterNetworkPolicy (v1alpha2), and AdminNetworkPolicy and BaselineAdminNetworkPolicy
//! (v1alpha1) of `policy.networking.k8s.io`.

use crate::{
    Name, Namespace, Node, Selector,
    connection::{Cidr, Direction, End, Place, Pod, Protocol},
};

#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPolicy<'a> {
    pub kind: Kind,
    pub name: String,
    /// Namespaces and pods.
    pub subject: (Selector<'a>, Option<Selector<'a>>),
    pub ingress: Vec<ClusterRule<'a>>,
    pub egress: Vec<ClusterRule<'a>>,
}

/// The kind, with the priority if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    ClusterNetworkPolicy(Tier, u16),
    AdminNetworkPolicy(u16),
    BaselineAdminNetworkPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Admin,
    Baseline,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClusterRule<'a> {
    pub action: Action,
    /// `from` or `to`.
    pub peers: Vec<ClusterPeer<'a>>,
    pub ports: Vec<ClusterPort<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Accept,
    Deny,
    Pass,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ClusterPeer<'a> {
    Namespaces(Selector<'a>),
    Pods(Selector<'a>, Selector<'a>),
    /// The peers below are those of egress rules.
    Networks(Vec<Cidr>),
    Nodes(Selector<'a>),
    DomainNames(Vec<&'a str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterPort<'a> {
    Range(Protocol, u16, u16),
    Named(&'a str),
}

impl Kind {
    pub fn tier(self) -> Tier {
        match self {
            Self::ClusterNetworkPolicy(tier, _) => tier,
            Self::AdminNetworkPolicy(_) => Tier::Admin,
            Self::BaselineAdminNetworkPolicy => Tier::Baseline,
        }
    }

    /// "Policies with lower priority values have higher precedence." A policy without one is the
    /// default of defaults.
    pub(crate) fn place(self) -> u16 {
        match self {
            Self::ClusterNetworkPolicy(_, priority) | Self::AdminNetworkPolicy(priority) => {
                priority
            }
            Self::BaselineAdminNetworkPolicy => u16::MAX,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterNetworkPolicy(..) => "ClusterNetworkPolicy",
            Self::AdminNetworkPolicy(_) => "AdminNetworkPolicy",
            Self::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
        }
    }

    pub fn is_v1alpha1(self) -> bool {
        !matches!(self, Self::ClusterNetworkPolicy(..))
    }
}

impl ClusterPolicy<'_> {
    pub(crate) fn is_about(&self, pod: Pod<'_>, namespaces: &[Namespace<'_>]) -> bool {
        let (of, pods) = &self.subject;
        is_in(of, pod, namespaces)
            && pods.as_ref().is_none_or(|selector| selector.selects(pod.labels))
    }

    pub fn rules(&self, direction: Direction) -> &[ClusterRule<'_>] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

impl ClusterRule<'_> {
    pub(crate) fn has_peer(
        &self,
        end: End<'_>,
        namespaces: &[Namespace<'_>],
        nodes: &[Node<'_>],
        names: &[Name<'_>],
    ) -> bool {
        self.peers.iter().any(|peer| peer.is(end, namespaces, nodes, names))
    }

    pub(crate) fn has_port(&self, server: End<'_>, place: Place) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|port| port.is_at(server, place))
    }
}

impl ClusterPeer<'_> {
    fn is(
        &self,
        end: End<'_>,
        namespaces: &[Namespace<'_>],
        nodes: &[Node<'_>],
        names: &[Name<'_>],
    ) -> bool {
        match (self, end.pod) {
            (Self::Networks(nets), _) => nets.iter().any(|net| net.contains(end.address)),
            // "It selects the nodeIPs as the peer type by matching on the IPs present in the node."
            (Self::Nodes(of), None) => {
                let mut selected = nodes.iter().filter(|node| of.selects(&node.labels));
                selected.any(|node| node.addresses.contains(&end.address))
            }
            (Self::DomainNames(of), None) => {
                let is_named =
                    |name: &Name<'_>| of.iter().any(|own| own.eq_ignore_ascii_case(name.name));
                names.iter().any(|name| is_named(name) && name.addresses.contains(&end.address))
            }
            (Self::Namespaces(of), Some(pod)) => is_in(of, pod, namespaces),
            (Self::Pods(of, pods), Some(pod)) => {
                is_in(of, pod, namespaces) && pods.selects(pod.labels)
            }
            (Self::Namespaces(_) | Self::Pods(..), None)
            | (Self::Nodes(_) | Self::DomainNames(_), Some(_)) => false,
        }
    }
}

impl ClusterPort<'_> {
    fn is_at(&self, server: End<'_>, place: Place) -> bool {
        match *self {
            Self::Range(own, first, last) => {
                own == place.protocol && (first..=last).contains(&place.port)
            }
            // A name stands for a port of any protocol.
            Self::Named(name) => server.pod.is_some_and(|pod| pod.names(name, place)),
        }
    }
}

fn is_in(selector: &Selector<'_>, pod: Pod<'_>, namespaces: &[Namespace<'_>]) -> bool {
    namespaces.iter().any(|of| of.name == pod.namespace && selector.selects(&of.labels))
}
