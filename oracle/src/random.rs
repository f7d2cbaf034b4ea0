//! Worlds for property tests: small, and full of what is rare in real clusters. They shrink towards
//! fewer objects with fewer settings.

mod service;
mod slice;

use std::ops::RangeInclusive;

use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::world::{FIRST_POD, Node, Pod, Protocol, World};

const ZONES: [&str; 2] = ["east", "west"];
/// Services of one name are in both.
const NAMESPACES: [&str; 2] = ["a", "b"];
const MOST_SERVICES: usize = 4;

/// A world of two or three nodes, whose objects an API server would accept, except for addresses
/// that are not of their slice's family.
pub fn world() -> impl Strategy<Value = World> {
    world_of(2..=3)
}

/// The same with as many nodes.
pub fn world_of(nodes: RangeInclusive<usize>) -> impl Strategy<Value = World> {
    let zones = vec(option::of(select(&ZONES[..])), nodes);
    let pods = vec(any::<u8>(), 0..=4);
    let services = vec(service::sketch(), 1..=MOST_SERVICES);
    let slices = vec(slice::sketch(), 0..=6);
    (zones, pods, services, slices).prop_map(|(zones, pods, services, slices)| {
        let nodes: Vec<Node> =
            (1..).zip(zones).map(|(number, zone)| Node { number, zone }).collect();
        let count = u8::try_from(nodes.len()).expect("three at most");
        // Each node has a pod, as a client.
        let placed = (1..=count).chain(pods.into_iter().map(|pod| 1 + pod % count));
        let mut pods: Vec<Pod> = Vec::new();
        for node in placed {
            let before = pods.iter().filter(|pod| pod.node == node).count();
            pods.push(Pod {
                node,
                host: FIRST_POD + u8::try_from(before).expect("some pods at most"),
            });
        }
        let mut world = World { nodes, pods, ..World::default() };
        world.services = (0..).zip(services).map(|(index, sketch)| sketch.service(index)).collect();
        world.slices =
            (0..).zip(slices).map(|(index, sketch)| sketch.slice(index, &world)).collect();
        world
    })
}

/// The namespace and name of the Service with this index.
fn service_name(index: usize) -> (&'static str, String) {
    (NAMESPACES[index % 2], format!("s{}", index / 2))
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![3 => Just(Protocol::Tcp), 2 => Just(Protocol::Udp), 1 => Just(Protocol::Sctp)]
}
