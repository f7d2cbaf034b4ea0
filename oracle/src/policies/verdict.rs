//! Who may connect to whom in a world. What decides is the package `verdict`; here is which of the
//! world's objects are the two ends, and what holds for nodes.

use std::net::IpAddr;

pub use ::verdict::Place;
use ::verdict::{
    Cidr, Direction, Name, Policies,
    side::{Connection, Origin},
};

use super::{End, Pod, World};
use crate::world::{Node, text_address};

/// The networks of pods.
const PODS: [(&str, u8); 2] = [("10.244.0.0", 16), ("fd00:10:244::", 48)];

impl World {
    /// Whether `client` may connect to the pod: its own policies allow it to leave, and the pod's
    /// policies allow it to come in.
    pub fn allows(&self, client: End<'_>, server: &Pod, place: Place) -> bool {
        let is_ipv6 = place.is_ipv6;
        let origin =
            if client == End::Node(server.node) { Origin::OwnNode } else { Origin::Elsewhere };
        let (client, server) = (client.facts(is_ipv6), server.facts(is_ipv6));
        let connection = Connection { client, server, place, origin };
        self.side(Direction::Egress, connection) && self.side(Direction::Ingress, connection)
    }

    /// Whether the pod's policies let it connect to an address that is no pod's.
    pub fn lets_out(&self, pod: &Pod, address: IpAddr, place: Place) -> bool {
        let server = ::verdict::End { pod: None, address };
        let client = pod.facts(place.is_ipv6);
        self.side(
            Direction::Egress,
            Connection { client, server, place, origin: Origin::Elsewhere },
        )
    }

    fn side(&self, direction: Direction, connection: Connection<'_>) -> bool {
        let nodes: Vec<::verdict::Node<'_>> = self.nodes().iter().map(node).collect();
        let policies = Policies {
            namespaces: &self.namespaces,
            nodes: &nodes,
            names: &names(),
            policies: &self.policies,
            cluster_policies: &self.cluster_policies,
        };
        policies.side(direction, connection).allows
    }
}

pub(crate) fn node(node: &Node) -> ::verdict::Node<'static> {
    ::verdict::Node { labels: vec![("role", node.role())], addresses: node.addresses().into() }
}

/// What the DNS has, outside of the cluster.
fn names() -> Vec<Name<'static>> {
    let of_pod = |address: &IpAddr| {
        PODS.into_iter().any(|(net, length)| Cidr(text_address(net), length).contains(*address))
    };
    let all = super::names().into_iter();
    all.map(|(name, mut addresses)| {
        addresses.retain(|address| !of_pod(address));
        Name { name, addresses }
    })
    .collect()
}

impl Pod {
    fn facts(&self, is_ipv6: bool) -> ::verdict::End<'_> {
        let Self { namespace, name: _, node: _, host: _, labels, ports } = self;
        ::verdict::End {
            pod: Some(::verdict::Pod { namespace, labels, ports }),
            address: self.address(is_ipv6),
        }
    }
}

impl End<'_> {
    fn facts(&self, is_ipv6: bool) -> ::verdict::End<'_> {
        match self {
            Self::Pod(pod) => pod.facts(is_ipv6),
            Self::Node(_) => ::verdict::End { pod: None, address: self.address(is_ipv6) },
        }
    }
}
