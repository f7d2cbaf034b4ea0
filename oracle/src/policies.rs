//! What Kubernetes' API reference says about NetworkPolicies: a world of namespaces, pods and
//! policies, and who may connect to whom in it.
//!
//! | module | noun | what it is |
//! |---|---|---|
//! | here | [`World`], [`NetworkPolicy`] | the fields that decide |
//! | [`verdict`](mod@verdict) | [`World::allows`] | the model, which is the package `verdict` |
//! | [`cluster`] | [`cluster::ClusterPolicy`]: policies of the whole cluster | the same |
//! | [`manifest`] | the same as API objects | JSON |
//! | [`random`] | worlds for property tests | strategies that shrink |

use std::net::IpAddr;

pub use ::verdict::{Cidr, Direction, selector::Operator};

use crate::world::{Node, text_address};

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

pub type Labels = ::verdict::Labels<'static>;
pub type Namespace = ::verdict::Namespace<'static>;
pub type ContainerPort = ::verdict::ContainerPort<'static>;
pub type NetworkPolicy = ::verdict::NetworkPolicy<'static>;
pub type Selector = ::verdict::Selector<'static>;
pub type Expression = ::verdict::selector::Expression<'static>;
pub type Rule = ::verdict::network_policy::Rule<'static>;
pub type Peer = ::verdict::network_policy::Peer<'static>;
pub type Port = ::verdict::network_policy::Port<'static>;
pub type Number = ::verdict::network_policy::Number<'static>;

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

/// Names of the DNS, and what it has for them. One of them has the address of a pod, too.
pub fn names() -> Vec<(&'static str, Vec<IpAddr>)> {
    let all = [
        ("www.example.org", &["192.0.2.7", "2001:db8::7"][..]),
        ("api.example.org", &["198.51.100.1", "10.244.1.4"]),
        // No answer has an address of IPv4.
        ("v6.example.org", &["2001:db8:1::7"]),
    ];
    all.map(|(name, texts)| (name, texts.iter().map(|text| text_address(text)).collect())).into()
}

/// Addresses outside of the cluster, at the edges of what rules are about.
pub fn outside(world: &World) -> Vec<IpAddr> {
    let others =
        ["192.0.2.7", "192.0.2.130", "198.51.100.1", "2001:db8::7", "2001:db8:1::7", "10.245.0.1"];
    let nodes = world.nodes().into_iter().flat_map(|node| node.addresses());
    others.map(text_address).into_iter().chain(nodes).collect()
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
