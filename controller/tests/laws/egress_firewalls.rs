//! EgressFirewalls are what their definition says: random worlds, the controller's rows, what OVN makes of them,
//! and the package `oracle`.
//!
//! Each pod is asked for addresses outside of the cluster and for other pods, at ports of each protocol.
//! `OVN_LAWS_CASES` sets the number of worlds; the default is a few.

use std::net::IpAddr;

use controller::{
    observation::{Observation, Seen},
    store::wire::{EgressFirewallObject, NamespaceObject, NodeObject, PodObject, PolicyObject},
};
use oracle::{
    egress_firewall::{World, outside, world},
    policies::{End, Pod, manifest::Manifests, verdict::Place},
    world::{Node, Protocol},
};

use crate::{
    bench::Bench,
    logical::delivered,
    reference::{nothing_differs, values},
    running::Running,
};

/// The host number of the router's port in a node's subnets.
const ROUTER: u8 = 1;
const PORTS: [(Protocol, u16); 4] =
    [(Protocol::Tcp, 80), (Protocol::Tcp, 8080), (Protocol::Udp, 80), (Protocol::Sctp, 8080)];

/// What the product does differently from the model.
fn differences(bench: &Bench, world: &World) -> Vec<String> {
    bench.write(|controller| observe(controller, world));
    let pods = &world.policies.pods;
    let leaving = pods.iter().flat_map(|pod| outside(world).into_iter().map(move |to| (pod, to)));
    let leaving: Vec<_> = leaving.flat_map(|(pod, to)| places(to).map(move |at| (pod, to, at))).collect();
    // To the next one: NetworkPolicies alone decide.
    let inside = pods.iter().zip(pods.iter().cycle().skip(1));
    let inside: Vec<_> = inside
        .flat_map(|(pod, to)| [false, true].into_iter().map(move |is_ipv6| (pod, to, is_ipv6)))
        .collect();
    let mut traces = bench.logical.traces(leaving.len() + inside.len());
    let mut found = Vec::new();
    let mut compare = |question: String, expected: bool, seen: bool, trace: &str| {
        if seen != expected {
            let what = if expected { "closed, and should be open" } else { "open, and should be closed" };
            found.push(format!("{question} is {what}\n{trace}"));
        }
    };
    for (pod, to, place) in leaving {
        let (datapath, packet) = packet(pod, to, place);
        let trace = traces.of_packet(&datapath, &packet);
        let seen = trace.contains("ingress(dp=\"ovn_cluster_router\"");
        compare(format!("{pod:?}\n  to {to} at {place:?}"), world.may_leave(pod, to, place), seen, &trace);
    }
    for (pod, to, is_ipv6) in inside {
        let place = Place { is_ipv6, protocol: Protocol::Tcp, port: 80 };
        let (datapath, packet) = packet(pod, to.address(is_ipv6), place);
        let trace = traces.of_packet(&datapath, &packet);
        let seen = delivered(&trace) == Some(&format!("{}_{}", to.namespace, to.name));
        let expected = world.policies.allows(End::Pod(pod), to, place);
        compare(format!("{pod:?}\n  to {to:?} at {place:?}"), expected, seen, &trace);
    }
    found
}

fn places(to: IpAddr) -> impl Iterator<Item = Place> {
    PORTS.into_iter().map(move |(protocol, port)| Place { is_ipv6: to.is_ipv6(), protocol, port })
}

/// The first packet of the connection, and the switch where it enters.
fn packet(pod: &Pod, to: IpAddr, Place { is_ipv6, protocol, port }: Place) -> (String, String) {
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

fn observe(controller: &Running, world: &World) {
    let Manifests { namespaces, pods, policies, cluster_policies: _ } = world.policies.manifests();
    let nodes = world.policies.nodes();
    let mut nodes = oracle::World { nodes, ..oracle::World::default() }.manifests().nodes;
    world.label(&mut nodes);
    controller.observe(Observation::Nodes(Seen::All(values::<NodeObject>(&nodes))));
    controller.observe(Observation::Namespaces(Seen::All(values::<NamespaceObject>(&namespaces))));
    controller.observe(Observation::Pods(Seen::All(values::<PodObject>(&pods))));
    controller.observe(Observation::Policies(Seen::All(values::<PolicyObject>(&policies))));
    controller.observe(Observation::Services(Seen::All(Vec::new())));
    controller.observe(Observation::Slices(Seen::All(Vec::new())));
    let others = Observation::no_optional_kinds().into_iter();
    let others = others.filter(|list| !matches!(list, Observation::EgressFirewalls(_)));
    others.for_each(|list| controller.observe(list));
    let firewalls = values::<EgressFirewallObject>(&world.manifests());
    controller.observe(Observation::EgressFirewalls(Seen::All(firewalls)));
}

#[test]
fn what_leaves_the_cluster_is_what_the_definition_says_in_random_worlds() {
    let bench = Bench::new();
    nothing_differs(&world(), |world| differences(&bench, world));
}
