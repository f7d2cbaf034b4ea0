//! The questions that can be asked of a world: who connects, and where to.

use std::{collections::BTreeSet, net::IpAddr};

use crate::world::{Node, Pod, Protocol, World};

/// Something that opens connections.
#[derive(Debug, Clone, PartialEq)]
pub struct Client {
    pub node: Node,
    /// The pod; none: the host of the node, or a pod in the host's network.
    pub pod: Option<Pod>,
}

/// A connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    pub client: Client,
    pub protocol: Protocol,
    pub address: IpAddr,
    pub port: u16,
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

/// Every question about a world: each client at each address and port that a Service mentions, and
/// beside them.
pub fn probes(world: &World) -> Vec<Probe> {
    let mut probes = Vec::new();
    for client in clients(world) {
        for (protocol, address, port) in places(world, &client.node) {
            probes.push(Probe { client: client.clone(), protocol, address, port });
        }
    }
    probes
}

/// The host of each node, and one pod on each node that has any: to a Service, pods of a node are
/// alike.
fn clients(world: &World) -> impl Iterator<Item = Client> {
    world.nodes.iter().flat_map(|node| {
        let pod = world.pods.iter().find(|pod| pod.node == node.number);
        let host = Client { node: node.clone(), pod: None };
        [Some(host), pod.map(|pod| Client { node: node.clone(), pod: Some(pod.clone()) })]
            .into_iter()
            .flatten()
    })
}

/// All that a client on the node may connect to.
///
/// Left out are other nodes' addresses: what their node ports answer is decided where the packet
/// arrives. So are the node's own addresses of families that a Service does not have: whether a
/// proxy refuses connections to its node port there, or leaves them to the host, is not said.
fn places(world: &World, node: &Node) -> BTreeSet<(Protocol, IpAddr, u16)> {
    let mut places = BTreeSet::new();
    for service in &world.services {
        let outside = service.external_ips.iter().copied();
        let outside = outside.chain(service.ingress.iter().map(|ingress| ingress.ip));
        let addresses: Vec<IpAddr> = service.cluster_ips.iter().copied().chain(outside).collect();
        let has_family =
            |host: &IpAddr| service.cluster_ips.iter().any(|ip| ip.is_ipv4() == host.is_ipv4());
        let hosts: Vec<IpAddr> = node.addresses().into_iter().filter(has_family).collect();
        for port in &service.ports {
            for number in [port.port].into_iter().chain(port.node_port) {
                let all = addresses.iter().chain(&hosts);
                places.extend(all.map(|address| (port.protocol, *address, number)));
            }
            // Other protocols of the port, and the next port, which no Service has.
            for address in addresses.iter().take(1) {
                places.extend(PROTOCOLS.map(|protocol| (protocol, *address, port.port)));
                places.insert((port.protocol, *address, port.port + 1));
            }
        }
    }
    places
}
