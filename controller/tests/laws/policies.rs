//! Policies are what Kubernetes' API reference says: random worlds, the controller's rows, what OVN
//! makes of them, and the package `oracle`, which knows the reference and not the product.
//!
//! Each world is asked for each pair of pods, and for the nodes' own connections, in both families,
//! at ports with and without names. `OVN_LAWS_CASES` sets the number of worlds; the default is a
//! few.

pub(crate) mod objects;

use std::{fmt, net::IpAddr};

use contract::{names::ClusterPolicyKind, policy_annotation::DRY_RUN};
use controller::{
    kinds::{
        cluster_policy::wire::{ClusterPolicyObject, OfAdmin, OfBaseline, OfCluster},
        namespace::wire::NamespaceObject,
        network_policy::wire::PolicyObject,
        node::wire::NodeObject,
        pod::wire::PodObject,
    },
    watch_event::{Seen, WatchEvent},
};
use oracle::{
    policies::{
        End, Pod, World,
        manifest::Manifests,
        names,
        random::{Passes, tiered_world, world},
        verdict::Place,
    },
    world::{Node, Protocol},
};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    leaving::{self, leaves, leaving},
    logical::delivered,
    reference::{nothing_differs, values},
    running::Running,
};

/// The host number of the router's port in a node's subnets.
const ROUTER: u8 = 1;
/// Where connections lead: the numbers that pods give to names, one in a range, one that nobody
/// names.
const PLACES: [(Protocol, u16); 6] = [
    (Protocol::Tcp, 80),
    (Protocol::Tcp, 8080),
    (Protocol::Tcp, 9999),
    (Protocol::Udp, 80),
    (Protocol::Udp, 8080),
    (Protocol::Sctp, 80),
];

/// What the product does differently from the model.
fn differences(bench: &Bench, world: &World) -> Vec<String> {
    bench.write(|controller| observe(controller, world, world.manifests()));
    let mut found = Vec::new();
    ask(bench, world, |client, server, place, trace| {
        found.extend(difference(world, client, server, place, trace));
    });
    found
}

/// The same, and of what leaves the cluster: the peers of policies of the cluster may be outside.
fn differences_with_outside(bench: &Bench, world: &World) -> Vec<String> {
    let mut found = differences(bench, world);
    // Of each protocol one port: which ports a rule is about, connections between pods show.
    let is_asked = |(_, _, place): &(&Pod, IpAddr, Place)| place.port == 80;
    let leaving: Vec<_> = leaving(world).into_iter().filter(is_asked).collect();
    let mut traces = bench.logical.traces(leaving.len());
    for (pod, to, place) in leaving {
        let (datapath, packet) = leaving::packet(pod, to, place);
        let trace = traces.of_packet(&datapath, &packet);
        let (expected, seen) = (world.lets_out(pod, to, place), leaves(&trace));
        if seen != expected {
            let what =
                if expected { "closed, and should be open" } else { "open, and should be closed" };
            found.push(format!("{pod:?}\n  to {to}\n  at {place:?} is {what}\n{trace}"));
        }
    }
    found
}

/// The same of a world in which some policies are dry runs: it is as if they were not there, and
/// what they would drop is logged, if there are tiers of ACLs.
fn differences_of_dry_runs(
    bench: &Bench,
    Staged { world, dry_runs }: &Staged,
    has_tiers: bool,
) -> Vec<String> {
    let mut manifests = world.manifests();
    for (manifest, is_dry_run) in manifests.policies.iter_mut().zip(dry_runs) {
        if *is_dry_run {
            manifest["metadata"]["annotations"] = json!({DRY_RUN: "true"});
        }
    }
    bench.write(|controller| observe(controller, world, manifests));
    let mut policies = world.policies.clone();
    let mut dry_runs = dry_runs.iter();
    policies.retain(|_| !dry_runs.next().expect("one for each"));
    let without = World { policies, ..world.clone() };
    let mut found = Vec::new();
    ask(bench, world, |client, server, place, trace| {
        found.extend(difference(&without, client, server, place, trace));
        let (now, then) =
            (without.allows(client, server, place), world.allows(client, server, place));
        let is_logged = trace.contains("DryRun:");
        let what = match (is_logged, now, then) {
            (true, _, true) => "is logged, and would not be dropped",
            (false, true, false) if has_tiers => "is not logged, and would be dropped",
            (true, _, false) if has_tiers => return,
            (true, _, false) => "is logged without tiers",
            (false, _, _) => return,
        };
        found.push(format!("{client:?}\n  to {server:?}\n  at {place:?} {what}\n{trace}"));
    });
    found
}

/// Passes the trace of each question to `answered`.
fn ask(bench: &Bench, world: &World, mut answered: impl FnMut(End<'_>, &Pod, Place, &str)) {
    let questions: Vec<(End<'_>, &Pod, Place)> = questions(world).collect();
    let mut traces = bench.logical.traces(questions.len());
    for (client, server, place) in questions {
        let (datapath, packet) = packet(client, server, place);
        answered(client, server, place, &traces.of_packet(&datapath, &packet));
    }
}

/// What the trace shows, if the model says something else.
fn difference(
    world: &World,
    client: End<'_>,
    server: &Pod,
    place: Place,
    trace: &str,
) -> Option<String> {
    let port = format!("{}_{}", server.namespace, server.name);
    let (seen, expected) = (delivered(trace) == Some(&port), world.allows(client, server, place));
    let what = if expected { "closed, and should be open" } else { "open, and should be closed" };
    (seen != expected)
        .then(|| format!("{client:?}\n  to {server:?}\n  at {place:?} is {what}\n{trace}"))
}

/// A world in which some policies are dry runs.
#[derive(Debug, Clone)]
struct Staged {
    world: World,
    /// For each of the world's policies.
    dry_runs: Vec<bool>,
}

impl fmt::Display for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}dry runs: {:?}", self.world, self.dry_runs)
    }
}

fn questions(world: &World) -> impl Iterator<Item = (End<'_>, &Pod, Place)> {
    let nodes = world.nodes().into_iter().map(|node| End::Node(node.number));
    let clients: Vec<End<'_>> = world.pods.iter().map(End::Pod).chain(nodes).collect();
    let pairs = clients
        .into_iter()
        .flat_map(|client| world.pods.iter().map(move |server| (client, server)));
    let pairs = pairs.filter(|(client, server)| *client != End::Pod(server));
    pairs.flat_map(|(client, server)| {
        let places = [false, true].into_iter().flat_map(|is_ipv6| {
            PLACES.into_iter().map(move |(protocol, port)| Place { is_ipv6, protocol, port })
        });
        places.map(move |place| (client, server, place))
    })
}

/// The first packet of the connection, and the switch where it enters.
fn packet(
    client: End<'_>,
    server: &Pod,
    Place { is_ipv6, protocol, port }: Place,
) -> (String, String) {
    let (number, host, inport) = match client {
        End::Pod(pod) => (pod.node, pod.host, format!("{}_{}", pod.namespace, pod.name)),
        End::Node(number) => (number, End::HOST, format!("k8s-node{number}")),
    };
    let node = Node { number, zone: None };
    let mac = if number == server.node { node.mac(server.host) } else { node.mac(ROUTER) };
    let (family, hops) = if is_ipv6 { ("ip6", "ip.ttl") } else { ("ip4", "ip.ttl") };
    let protocol = protocol.name().to_lowercase();
    let packet = format!(
        "inport == \"{inport}\" && eth.src == {} && eth.dst == {mac} && {family}.src == {} \
         && {family}.dst == {} && {hops} == 64 && {protocol} && {protocol}.src == 40000 \
         && {protocol}.dst == {port}",
        node.mac(host),
        client.address(is_ipv6),
        server.address(is_ipv6),
    );
    (node.name(), packet)
}

pub(crate) fn observe(controller: &Running, world: &World, manifests: Manifests) {
    let Manifests { namespaces, pods, policies, cluster_policies } = manifests;
    let of_kind = |kind: ClusterPolicyKind| -> Vec<Value> {
        cluster_policies.iter().filter(|object| object["kind"] == kind.as_str()).cloned().collect()
    };
    let nodes =
        oracle::World { nodes: world.nodes(), ..oracle::World::default() }.manifests().nodes;
    controller.observe(WatchEvent::Nodes(Seen::All(values::<NodeObject>(&nodes))));
    controller.observe(WatchEvent::Namespaces(Seen::All(values::<NamespaceObject>(&namespaces))));
    controller.observe(WatchEvent::Pods(Seen::All(values::<PodObject>(&pods))));
    controller.observe(WatchEvent::Policies(Seen::All(values::<PolicyObject>(&policies))));
    for kind in ClusterPolicyKind::ALL {
        let objects = of_kind(kind);
        let read = match kind {
            ClusterPolicyKind::ClusterNetworkPolicy => {
                values::<ClusterPolicyObject<OfCluster>>(&objects)
            }
            ClusterPolicyKind::AdminNetworkPolicy => {
                values::<ClusterPolicyObject<OfAdmin>>(&objects)
            }
            ClusterPolicyKind::BaselineAdminNetworkPolicy => {
                values::<ClusterPolicyObject<OfBaseline>>(&objects)
            }
        };
        controller.observe(WatchEvent::ClusterPolicies(kind, Seen::All(read)));
    }
    // However the objects spell it.
    for (name, addresses) in names() {
        let addresses = addresses.iter().copied().collect();
        controller.observe(WatchEvent::Name(name.into(), Ok(addresses)));
    }
    let others = WatchEvent::no_optional_kinds().into_iter();
    let others = others.filter(|list| matches!(list, WatchEvent::Custom(_)));
    others.for_each(|list| controller.observe(list));
    controller.observe(WatchEvent::Services(Seen::All(Vec::new())));
    controller.observe(WatchEvent::Slices(Seen::All(Vec::new())));
}

#[test]
fn policies_allow_what_kubernetes_reference_says_in_random_worlds() {
    let bench = Bench::new();
    nothing_differs(&world(), |world| differences(&bench, world));
}

/// With an OVN that has tiers of ACLs, rules pass, too.
#[test]
fn the_tiers_decide_in_their_order_in_random_worlds() {
    let bench = Bench::new();
    let passes = if has_tiers() { Passes::Yes } else { Passes::No };
    nothing_differs(&tiered_world(passes), |world| differences_with_outside(&bench, world));
}

/// A dry run that passed over what isolates a pod would open it; one in the way of a node's own
/// connections would close it.
#[test]
fn a_dry_run_changes_no_verdict_and_logs_what_it_would_drop_in_random_worlds() {
    let bench = Bench::new();
    let passes = if has_tiers() { Passes::Yes } else { Passes::No };
    let staged = tiered_world(passes).prop_flat_map(|world| {
        let dry_runs = vec(any::<bool>(), world.policies.len());
        dry_runs.prop_map(move |dry_runs| Staged { world: world.clone(), dry_runs })
    });
    nothing_differs(&staged, |staged| differences_of_dry_runs(&bench, staged, has_tiers()));
}

/// Whether the ACLs of this machine's OVN have tiers.
fn has_tiers() -> bool {
    let schema = std::fs::read_to_string("/usr/share/ovn/ovn-nb.ovsschema").unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    schema["tables"]["ACL"]["columns"]["tier"].is_object()
}
