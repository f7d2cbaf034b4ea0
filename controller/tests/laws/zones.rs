//! Two laws of zones, and laws 1 and 2 in one of several.
//!
//! *Locality*: a zone has no row of a pod of another zone, only its addresses, in address sets and
//! load balancers. *Independence*: without the API server, the cluster manager and the other zones,
//! a zone changes nothing.

use std::time::Duration;

use contract::{
    names::PodKey,
    node_annotation::{CHASSIS_ID, NODE_ID, NODE_SUBNETS, TRANSIT_ADDRESSES, ZONE},
    ovn,
};
use controller::{
    config::{ClusterConfig, Interconnect, Zone},
    kinds::{
        node::object::{Node, Unreadable},
        pod::object::Annotated,
    },
    watch_event::{Seen, WatchEvent},
};
use proptest::prelude::*;

use crate::{
    cluster::{self, all_nodes, config, node_name, pod, pod_key},
    database::Contents,
    guards::{Commit, Guard},
    histories::{kept_to_the_end, on, same},
    history::{Step, drift, interrupted},
    world::World,
};

/// The node of another zone.
const FAR: u32 = 3;

/// Zone `global`, connected with others.
fn connected() -> ClusterConfig {
    ClusterConfig { interconnect: Interconnect::On, ..config() }
}

/// The node, with what zones say of each other where they are connected.
pub(crate) fn node(number: u32, config: &ClusterConfig) -> Node {
    let node = cluster::node(number);
    if !config.is_connected() {
        return node;
    }
    let id = u16::try_from(number + 1).unwrap();
    let numbered = |subnet| ovn::nth(subnet, id.into()).unwrap();
    Node {
        uid: node_name(number),
        zone: Some(if number == FAR { Zone("far".to_owned()) } else { Zone::default() }),
        id: Some(id),
        transit: config.transit_subnets.iter().map(numbered).collect(),
        encap_ips: node.host_addresses.clone(),
        ..node
    }
}

/// Every third pod is always in the other zone, and no other pod ever is.
fn settled(step: Step) -> Step {
    match step {
        Step::Pod { pod, .. } if is_far(pod) => Step::Pod { pod, node: FAR },
        Step::Pod { pod, node } => Step::Pod { pod, node: 1 + node % 2 },
        other => other,
    }
}

fn is_far(pod: u32) -> bool {
    pod.is_multiple_of(3)
}

/// The port that a pod would have.
fn port(number: u32) -> String {
    let key: PodKey = pod_key(number);
    format!("{}_{}", key.namespace(), key.name())
}

/// The addresses of a pod of the other zone.
fn addresses_of(number: u32) -> Vec<String> {
    match pod(number, FAR, 0).1.annotated {
        Annotated::Network { network, .. } => {
            network.addresses.iter().map(|net| net.addr().to_string()).collect()
        }
        Annotated::Nothing | Annotated::Unusable(_) => Vec::new(),
    }
}

fn far_pods() -> impl Iterator<Item = u32> {
    (1..7).filter(|pod| is_far(*pod))
}

/// No port of a pod of the other zone, at any commit.
struct NoFarPort;

impl Guard for NoFarPort {
    fn broken(&self, commit: &Commit) -> Vec<String> {
        far_pods().map(port).filter(|port| commit.ports.contains_key(port)).collect()
    }
}

/// What there is of pods of the other zone beside addresses in sets and load balancers, and how
/// many of these there are.
fn traces(contents: &Contents) -> (Vec<String>, usize) {
    let addresses: Vec<String> = far_pods().flat_map(addresses_of).collect();
    let (mut traces, mut known) = (Vec::new(), 0);
    for ((table, name, _), row) in &contents.0 {
        for (column, text) in row {
            let words = || text.split(|c: char| !(c.is_alphanumeric() || "._-".contains(c)));
            let names = words().filter(|word| far_pods().map(port).any(|port| port == *word));
            let known_here = words().filter(|word| addresses.iter().any(|own| own == word)).count();
            let may_have = [("Address_Set", "addresses"), ("Load_Balancer", "vips")];
            traces.extend(names.map(|word| format!("{table} {name}: {column} names {word}")));
            if may_have.contains(&(table, column)) {
                known += known_here;
            } else if known_here > 0 {
                traces.push(format!("{table} {name}: {column} has an address: {text}"));
            }
        }
    }
    (traces, known)
}

/// Law 13, and 1 and 2: whatever happens in a cluster of zones, to pods of this one and of another.
#[test]
fn law_13_a_zone_has_nothing_of_another_zones_pods_but_addresses() {
    let steps = prop_oneof![8 => interrupted(), 1 => drift().prop_map(Step::Drift)];
    on(10, 30, steps.prop_map(settled), async |history| {
        let mut world = World::with(connected()).await;
        let mut watcher = world.watched_by(vec![Box::new(NoFarPort)]);
        for step in history {
            world.happen(step).await;
        }
        // What makes sets with addresses of all pods, so that there is something to find.
        world.happen(Step::Node(1)).await;
        world.happen(Step::Node(FAR)).await;
        world.happen(Step::Pod { pod: FAR, node: FAR }).await;
        for policy in 0..6 {
            world.happen(Step::Policy { policy, kind: policy }).await;
        }
        world.rest().await;
        let before = world.contents().await;
        let (traces, known) = traces(&before);
        assert!(traces.is_empty(), "{traces:#?}");
        assert!(known > 0, "no set has an address of a pod of the other zone: nothing was tried");
        world.restart(true).await;
        world.rest().await;
        let written = world.controller.counted("ovnkube_controller_nb_transactions_total");
        assert_eq!(written, 0.0, "transactions of the new controller");
        same(&world.contents().await, &before);
        kept_to_the_end(&mut world, &mut watcher).await;
        world.end().await;
    });
}

/// Law 14. The cluster manager and the other zones are known by annotations of nodes alone: theirs
/// are lost, garbled, or nothing is heard of them.
#[test]
fn law_14_a_zone_alone_changes_nothing() {
    on(6, 20, interrupted().prop_map(settled), async |history| {
        let mut world = World::with(connected()).await;
        for step in history.into_iter().chain((1..4).map(Step::Node)) {
            world.happen(step).await;
        }
        world.rest().await;
        let before = world.contents().await;
        let far = node(FAR, &connected());
        let lost = Node { uid: far.uid.clone(), ..Node::named(&far.name) };
        let why = |annotation| Unreadable { annotation, why: "not JSON".to_owned() };
        let of_others = [NODE_ID, NODE_SUBNETS, TRANSIT_ADDRESSES, ZONE, CHASSIS_ID];
        let garbled = Node { unreadable: of_others.map(why).into(), ..lost.clone() };
        for silent in [lost.clone(), garbled] {
            world.controller.observe(WatchEvent::Nodes(Seen::Applied(silent)));
        }
        // The watch breaks, and another API server knows nobody yet.
        world.controller.observe(all_nodes([]));
        // Nothing is heard any more: neither by this controller nor by the next one.
        tokio::time::sleep(Duration::from_millis(100)).await;
        same(&world.contents().await, &before);
        world.replace().await;
        world.controller.reaches("the database is read", |progress| progress.loaded).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        same(&world.contents().await, &before);
        // It hears of its own nodes and of one that has lost all annotations.
        let own = (1..FAR).map(|number| node(number, &connected()));
        world.controller.observe(all_nodes(own.chain([lost])));
        tokio::time::sleep(Duration::from_millis(100)).await;
        same(&world.contents().await, &before);
        let written = world.controller.counted("ovnkube_controller_nb_transactions_total");
        assert_eq!(written, 0.0, "transactions of the new controller");
        world.end().await;
    });
}
