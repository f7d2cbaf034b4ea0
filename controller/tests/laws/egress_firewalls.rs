//! EgressFirewalls are what their definition says: random worlds, the controller's rows, what OVN
//! makes of them, and the package `oracle`.
//!
//! Each pod is asked for addresses outside of the cluster and for other pods, at ports of each
//! protocol. `OVN_LAWS_CASES` sets the number of worlds; the default is a few.

use contract::definition::CustomKind;
use controller::{
    kinds::{
        egress_firewall::object::EgressFirewallObject, namespace::wire::NamespaceObject,
        network_policy::wire::PolicyObject, node::wire::NodeObject, pod::wire::PodObject,
    },
    watch_event::{Seen, WatchEvent},
};
use oracle::{
    egress_firewall::{World, world},
    policies::{End, manifest::Manifests, verdict::Place},
    world::Protocol,
};

use crate::{
    bench::Bench,
    leaving::{leaves, leaving, packet},
    logical::delivered,
    reference::{nothing_differs, values},
    running::Running,
};

/// What the product does differently from the model.
fn differences(bench: &Bench, world: &World) -> Vec<String> {
    bench.write(|controller| observe(controller, world));
    let pods = &world.policies.pods;
    let leaving = leaving(&world.policies);
    // To the next one: NetworkPolicies alone decide.
    let inside = pods.iter().zip(pods.iter().cycle().skip(1));
    let inside: Vec<_> = inside
        .flat_map(|(pod, to)| [false, true].into_iter().map(move |is_ipv6| (pod, to, is_ipv6)))
        .collect();
    let mut traces = bench.logical.traces(leaving.len() + inside.len());
    let mut found = Vec::new();
    let mut compare = |question: String, expected: bool, seen: bool, trace: &str| {
        if seen != expected {
            let what =
                if expected { "closed, and should be open" } else { "open, and should be closed" };
            found.push(format!("{question} is {what}\n{trace}"));
        }
    };
    for (pod, to, place) in leaving {
        let (datapath, packet) = packet(pod, to, place);
        let trace = traces.of_packet(&datapath, &packet);
        let expected = world.may_leave(pod, to, place);
        compare(format!("{pod:?}\n  to {to} at {place:?}"), expected, leaves(&trace), &trace);
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

fn observe(controller: &Running, world: &World) {
    let Manifests { namespaces, pods, policies, cluster_policies: _ } = world.policies.manifests();
    let nodes = world.policies.nodes();
    let nodes = oracle::World { nodes, ..oracle::World::default() }.manifests().nodes;
    controller.observe(WatchEvent::Nodes(Seen::All(values::<NodeObject>(&nodes))));
    controller.observe(WatchEvent::Namespaces(Seen::All(values::<NamespaceObject>(&namespaces))));
    controller.observe(WatchEvent::Pods(Seen::All(values::<PodObject>(&pods))));
    controller.observe(WatchEvent::Policies(Seen::All(values::<PolicyObject>(&policies))));
    controller.observe(WatchEvent::Services(Seen::All(Vec::new())));
    controller.observe(WatchEvent::Slices(Seen::All(Vec::new())));
    let others = WatchEvent::no_optional_kinds().into_iter();
    let others = others.filter(|list| !matches!(list, WatchEvent::Custom(event) if event.kind() == CustomKind::EgressFirewall));
    others.for_each(|list| controller.observe(list));
    let firewalls = values::<EgressFirewallObject>(&world.manifests());
    controller.observe(WatchEvent::custom(Seen::All(firewalls)));
}

#[test]
fn what_leaves_the_cluster_is_what_the_definition_says_in_random_worlds() {
    let bench = Bench::new();
    nothing_differs(&world(), |world| differences(&bench, world));
}
