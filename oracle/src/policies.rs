//! What Kubernetes' API reference says about NetworkPolicies: a world of namespaces, pods and policies, and
//! who may connect to whom in it.
//!
//! | module | noun | what it is |
//! |---|---|---|
//! | here | [`World`], [`NetworkPolicy`] | the fields that decide |
//! | [`verdict`] | [`World::allows`] | the model |
//! | [`cluster`] | [`cluster::ClusterPolicy`]: policies of the whole cluster | their part of the model |
//! | [`manifest`] | the same as API objects | JSON |
//! | [`random`] | worlds for property tests | strategies that shrink |

use std::net::IpAddr;

use crate::world::{Node, Protocol};

pub mod cluster;
pub mod manifest;
pub mod random;
pub mod verdict;

/// Everything that decides who may connect.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    pub namespaces: Vec<Namespace>,
    pub pods: Vec<Pod>,
    pub policies: Vec<NetworkPolicy>,
    pub cluster_policies: Vec<cluster::ClusterPolicy>,
}

pub type Labels = Vec<(&'static str, &'static str)>;

#[derive(Debug, Clone, PartialEq)]
pub struct Namespace {
    pub name: &'static str,
    pub labels: Labels,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub namespace: &'static str,
    pub name: String,
    /// The number of its node, and its host number in the node's subnets.
    pub node: u8,
    pub host: u8,
    pub labels: Labels,
    /// `containers[].ports[]` that have names.
    pub ports: Vec<ContainerPort>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerPort {
    pub name: &'static str,
    pub protocol: Protocol,
    pub number: u16,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPolicy {
    pub namespace: &'static str,
    pub name: String,
    pub pod_selector: Selector,
    /// `policyTypes`; empty if it is not set.
    pub policy_types: Vec<Direction>,
    pub ingress: Vec<Rule>,
    pub egress: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Ingress,
    Egress,
}

/// A label selector.
#[derive(Debug, Clone, PartialEq)]
pub struct Selector {
    pub match_labels: Labels,
    pub match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    pub key: &'static str,
    pub operator: Operator,
    pub values: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// `from` or `to`.
    pub peers: Vec<Peer>,
    pub ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Peer {
    Selectors {
        namespaces: Option<Selector>,
        pods: Option<Selector>,
    },
    /// A network and its exceptions, as addresses with a prefix length.
    Block {
        cidr: Cidr,
        except: Vec<Cidr>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cidr(pub IpAddr, pub u8);

#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// TCP if it is not set.
    pub protocol: Option<Protocol>,
    pub number: Option<Number>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Of(u16),
    /// `port` to `endPort`.
    Range(u16, u16),
    Named(&'static str),
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End<'a> {
    Pod(&'a Pod),
    /// The host of the node with this number, by its address in the subnet of its pods.
    Node(u8),
}

impl Pod {
    fn on(number: u8) -> Node {
        Node { number, zone: None }
    }

    pub fn address(&self, is_ipv6: bool) -> IpAddr {
        Self::on(self.node).subnet_address(self.host, is_ipv6)
    }
}

impl End<'_> {
    /// The number of a node's own address in the subnet of its pods.
    pub const HOST: u8 = 2;

    pub fn address(&self, is_ipv6: bool) -> IpAddr {
        match self {
            Self::Pod(pod) => pod.address(is_ipv6),
            Self::Node(number) => Pod::on(*number).subnet_address(Self::HOST, is_ipv6),
        }
    }
}
