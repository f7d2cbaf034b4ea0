//! Policies are what Kubernetes' API reference says: random worlds, the controller's rows, what OVN makes of
//! them, and the package `oracle`, which knows the reference and not the product.
//!
//! Each world is asked for each pair of pods, and for the nodes' own connections, in both families, at ports
//! with and without names. `OVN_LAWS_CASES` sets the number of worlds; the default is a few.

pub(crate) mod objects;

use contract::names::ClusterPolicyKind;
use controller::{
    observation::{Observation, Seen},
    store::wire::{
        ClusterPolicyObject, NamespaceObject, NodeObject, OfAdmin, OfBaseline, OfCluster, PodObject,
        PolicyObject,
    },
};
use oracle::{
    policies::{
        End, Pod, World,
        manifest::Manifests,
        random::{Passes, tiered_world, world},
        verdict::Place,
    },
    world::{Node, Protocol},
};
use ovsdb::Connection;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::{
    logical::{Logical, delivered},
    reference::{config, nothing_differs, values},
    running::Running,
};

/// The host number of the router's port in a node's subnets.
const ROUTER: u8 = 1;
/// Where connections lead: the numbers that pods give to names, one in a range, one that nobody names.
const PLACES: [(Protocol, u16); 6] = [
    (Protocol::Tcp, 80),
    (Protocol::Tcp, 8080),
    (Protocol::Tcp, 9999),
    (Protocol::Udp, 80),
    (Protocol::Udp, 8080),
    (Protocol::Sctp, 80),
];

/// The databases, and a connection to the northbound one.
struct Bench {
    runtime: Runtime,
    logical: Logical,
    connection: Connection,
}

impl Bench {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let logical = Logical::start();
        let connection = runtime.block_on(logical.northbound.open());
        Self { runtime, logical, connection }
    }

    /// What the product does differently from the model.
    fn differences(&self, world: &World) -> Vec<String> {
        self.runtime.block_on(async {
            self.logical.clear(&self.connection).await;
            let mut controller = Running::start(self.logical.northbound.endpoint(), config());
            observe(&controller, world);
            controller.converged().await;
            controller.stop().await;
        });
        let questions: Vec<(End<'_>, &Pod, Place)> = questions(world).collect();
        let mut traces = self.logical.traces(questions.len());
        let mut found = Vec::new();
        for (client, server, place) in questions {
            let (datapath, packet) = packet(client, server, place);
            let trace = traces.of_packet(&datapath, &packet);
            let port = format!("{}_{}", server.namespace, server.name);
            let (seen, expected) = (delivered(&trace) == Some(&port), world.allows(client, server, place));
            if seen != expected {
                let what = if expected { "closed, and should be open" } else { "open, and should be closed" };
                found.push(format!("{client:?}\n  to {server:?}\n  at {place:?} is {what}\n{trace}"));
            }
        }
        found
    }
}

fn questions(world: &World) -> impl Iterator<Item = (End<'_>, &Pod, Place)> {
    let nodes = world.nodes().into_iter().map(|node| End::Node(node.number));
    let clients: Vec<End<'_>> = world.pods.iter().map(End::Pod).chain(nodes).collect();
    let pairs = clients.into_iter().flat_map(|client| world.pods.iter().map(move |server| (client, server)));
    let pairs = pairs.filter(|(client, server)| *client != End::Pod(server));
    pairs.flat_map(|(client, server)| {
        let places = [false, true].into_iter().flat_map(|is_ipv6| {
            PLACES.into_iter().map(move |(protocol, port)| Place { is_ipv6, protocol, port })
        });
        places.map(move |place| (client, server, place))
    })
}

/// The first packet of the connection, and the switch where it enters.
fn packet(client: End<'_>, server: &Pod, Place { is_ipv6, protocol, port }: Place) -> (String, String) {
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

fn observe(controller: &Running, world: &World) {
    let Manifests { namespaces, pods, policies, cluster_policies } = world.manifests();
    let of_kind = |kind: ClusterPolicyKind| -> Vec<Value> {
        cluster_policies.iter().filter(|object| object["kind"] == kind.as_str()).cloned().collect()
    };
    let nodes = oracle::World { nodes: world.nodes(), ..oracle::World::default() }.manifests().nodes;
    controller.observe(Observation::Nodes(Seen::All(values::<NodeObject>(&nodes))));
    controller.observe(Observation::Namespaces(Seen::All(values::<NamespaceObject>(&namespaces))));
    controller.observe(Observation::Pods(Seen::All(values::<PodObject>(&pods))));
    controller.observe(Observation::Policies(Seen::All(values::<PolicyObject>(&policies))));
    for kind in ClusterPolicyKind::ALL {
        let objects = of_kind(kind);
        let read = match kind {
            ClusterPolicyKind::ClusterNetworkPolicy => values::<ClusterPolicyObject<OfCluster>>(&objects),
            ClusterPolicyKind::AdminNetworkPolicy => values::<ClusterPolicyObject<OfAdmin>>(&objects),
            ClusterPolicyKind::BaselineAdminNetworkPolicy => {
                values::<ClusterPolicyObject<OfBaseline>>(&objects)
            }
        };
        controller.observe(Observation::ClusterPolicies(kind, Seen::All(read)));
    }
    controller.observe(Observation::EgressFirewalls(Seen::All(Vec::new())));
    controller.observe(Observation::Services(Seen::All(Vec::new())));
    controller.observe(Observation::Slices(Seen::All(Vec::new())));
}

#[test]
fn policies_allow_what_kubernetes_reference_says_in_random_worlds() {
    let bench = Bench::new();
    nothing_differs(&world(), |world| bench.differences(world));
}

/// With an OVN that has tiers of ACLs, rules pass, too.
#[test]
fn the_tiers_decide_in_their_order_in_random_worlds() {
    let bench = Bench::new();
    let schema = std::fs::read_to_string("/usr/share/ovn/ovn-nb.ovsschema").unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let has_tiers = schema["tables"]["ACL"]["columns"]["tier"].is_object();
    let passes = if has_tiers { Passes::Yes } else { Passes::No };
    nothing_differs(&tiered_world(passes), |world| bench.differences(world));
}
