//! Connections of pods to addresses that are no pod's.

use std::net::IpAddr;

use oracle::{
    policies::{Pod, World, outside, verdict::Place},
    world::{Node, Protocol},
};

/// The host number of the router's port in a node's subnets.
const ROUTER: u8 = 1;
const PORTS: [(Protocol, u16); 4] =
    [(Protocol::Tcp, 80), (Protocol::Tcp, 8080), (Protocol::Udp, 80), (Protocol::Sctp, 8080)];

/// Each pod's connections to each address outside of the cluster.
pub(crate) fn leaving(world: &World) -> Vec<(&Pod, IpAddr, Place)> {
    let pairs =
        world.pods.iter().flat_map(|pod| outside(world).into_iter().map(move |to| (pod, to)));
    pairs.flat_map(|(pod, to)| places(to).map(move |at| (pod, to, at))).collect()
}

fn places(to: IpAddr) -> impl Iterator<Item = Place> {
    PORTS.into_iter().map(move |(protocol, port)| Place { is_ipv6: to.is_ipv6(), protocol, port })
}

/// The first packet of the connection, and the switch where it enters.
pub(crate) fn packet(
    pod: &Pod,
    to: IpAddr,
    Place { is_ipv6, protocol, port }: Place,
) -> (String, String) {
    let node = Node { number: pod.node, zone: None };
    let is_on_switch = |host: &u8| node.subnet_address(*host, is_ipv6) == to;
    let mac = node.mac((ROUTER + 1..=u8::MAX).find(is_on_switch).unwrap_or(ROUTER));
    let family = if is_ipv6 { "ip6" } else { "ip4" };
    let protocol = protocol.name().to_lowercase();
    let packet = format!(
        "inport == \"{}_{}\" && eth.src == {} && eth.dst == {mac} && {family}.src == {} && {family}.dst == {to} \
         && ip.ttl == 64 && {protocol} && {protocol}.src == 40000 && {protocol}.dst == {port}",
        pod.namespace,
        pod.name,
        node.mac(pod.host),
        pod.address(is_ipv6),
    );
    (node.name(), packet)
}

/// Whether the packet of the trace comes to the cluster's router.
pub(crate) fn leaves(trace: &str) -> bool {
    trace.contains("ingress(dp=\"ovn_cluster_router\"")
}
