//! What a pod costs in memory, from its object to the store. Measured in a process of its own, from what the kernel says.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::fs;

use controller::{
    config::{ClusterConfig, ClusterSubnet},
    observation::{Observation, Seen},
    store::{
        Store,
        wire::{NodeObject, PodObject},
    },
};
use serde_json::{Value, json};

const NODES: usize = 250;
const PODS_OF_NODE: usize = 56;
/// Bytes, with everything that is found by it: indexes, addresses, allocator.
const MOST: usize = 1024;

#[test]
fn a_pod_with_its_annotation_costs_less_than_a_kilobyte() {
    let mut store = Store::new(config());
    let nodes = (0..NODES).map(|number| {
        let subnets = json!({"default": [format!("10.{}.{}.0/24", 128 + number / 256, number % 256)]}).to_string();
        let node: NodeObject = object(&json!({"metadata": {"name": format!("node-{number}"), "annotations": {
            "k8s.ovn.org/node-subnets": subnets}}}));
        node.into_node()
    });
    store.observe(Observation::Nodes(Seen::All(nodes.collect())));
    store.observe(Observation::Pods(Seen::All(Vec::new())));

    let before = resident();
    for number in 0..NODES * PODS_OF_NODE {
        apply(&mut store, number, json!({}));
        let [annotation] = &store.take_annotations()[..] else { panic!("one annotation") };
        apply(&mut store, number, json!(annotation.annotations));
    }
    let each = resident().saturating_sub(before) / (NODES * PODS_OF_NODE);
    println!("{each} bytes for each pod");
    assert!(each > 100, "{each} bytes: this measures nothing");
    assert!(each < MOST, "{each} bytes for each pod");
}

fn apply(store: &mut Store, number: usize, annotations: Value) {
    let pod: PodObject = object(&json!({
        "metadata": {"name": format!("deployment-5f6d8c7b9-{number:05}"), "namespace": "benchmark",
            "uid": format!("4b5f1c2e-0000-4000-8000-{number:012}"), "annotations": annotations},
        "spec": {"nodeName": format!("node-{}", number % NODES), "containers": [{"name": "a", "image": "b"}]},
        "status": {"phase": "Running"},
    }));
    store.observe(Observation::Pods(Seen::Applied(pod.into_pod().unwrap())));
}

fn object<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_str(&object.to_string()).unwrap()
}

/// Bytes of this process that are in memory and not of files.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line RssAnon in /proc/self/status");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn config() -> ClusterConfig {
    ClusterConfig {
        cluster_subnets: vec![ClusterSubnet { cidr: "10.128.0.0/14".parse().unwrap(), host_length: 24 }],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        ..ClusterConfig::default()
    }
}
