//! Services are what Kubernetes' API reference says: random worlds, the controller's rows, what OVN
//! makes of them, and the package `oracle`, which knows the reference and not the product.
//!
//! Each world is asked as each client, pods and hosts of every node, at each address and port.
//! `OVN_LAWS_CASES` sets the number of worlds; the default is a few.

use std::{
    collections::BTreeSet,
    fmt::{Debug, Display},
    sync::Arc,
};

use controller::{
    config::{ClusterConfig, ClusterSubnet},
    kinds::{namespace::object::Namespace, node::wire::NodeObject, pod::wire::PodObject},
    watch_event::{Seen, WatchEvent},
};
use kubeapi::services::{ServiceObject, SliceObject};
use kubeapi::watch::Watched;
use oracle::{Answer, Probe, World, answer as model, probes, random::world};
use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    bench::Bench,
    logical::{answer, delivered, port_of},
    policies::objects::no_policies,
    running::Running,
};

/// Worlds of a run without `OVN_LAWS_CASES`.
const CASES: u32 = 12;
/// Differences that are printed of one world: more say the same.
const SHOWN: usize = 3;

/// What the product does differently from the model.
fn differences(bench: &Bench, world: &World) -> Vec<String> {
    bench.write(|controller| observe(controller, world));
    let probes: Vec<Probe> = probes(world).into_iter().filter(is_of_ovn).collect();
    let mut traces = bench.logical.traces(probes.len());
    let mut found = Vec::new();
    for probe in probes {
        let (expected, trace) = (model(world, &probe), traces.trace(&probe));
        let seen = answer(&trace);
        if seen.as_ref() != Ok(&expected) {
            found.push(format!("{probe:?}\n  is {seen:?}\n  and not {expected:?}\n{trace}"));
        } else if let Some(missed) = missed(world, &expected, &trace) {
            found.push(format!("{probe:?}\n  {missed}\n{trace}"));
        }
    }
    found
}

/// Whether OVN decides. A host's connections to its own addresses never leave it.
fn is_of_ovn(Probe { client, address, .. }: &Probe) -> bool {
    client.pod.is_some() || !client.node.addresses().contains(address)
}

/// How a connection fails to arrive at a pod, if all backends are pods. The trace follows one of
/// them.
fn missed(world: &World, expected: &Answer, trace: &str) -> Option<String> {
    // ovn-trace cannot follow what learns an affinity.
    let Answer::OneOf(backends) = expected else { return None };
    if trace.contains("commit_lb_aff(") {
        return None;
    }
    let ports: Option<Vec<String>> =
        backends.iter().map(|backend| port_of(&world.pods, backend.ip())).collect();
    let ports = ports?;
    let arrived = delivered(trace);
    let is_right = arrived.is_some_and(|arrived| ports.iter().any(|port| port == arrived));
    (!is_right).then(|| format!("arrives at {arrived:?}, which is none of {ports:?}"))
}

pub(crate) fn config() -> ClusterConfig {
    let subnet =
        |cidr: &str, host_length| ClusterSubnet { cidr: cidr.parse().unwrap(), host_length };
    let parse = |texts: [&str; 2]| texts.map(|text| text.parse().unwrap()).into();
    ClusterConfig {
        cluster_subnets: vec![subnet("10.244.0.0/16", 24), subnet("fd00:10:244::/48", 64)],
        service_cidrs: parse(["10.96.0.0/16", "fd00:10:96::/112"]),
        join_subnets: parse(["100.64.0.0/16", "fd98::/64"]),
        transit_subnets: parse(["100.88.0.0/16", "fd97::/64"]),
        hairpin_addresses: vec!["169.254.169.5".parse().unwrap(), "fd69::5".parse().unwrap()],
        ..ClusterConfig::default()
    }
}

fn observe(controller: &Running, world: &World) {
    let oracle::manifest::Manifests { nodes, pods, services, slices } = world.manifests();
    controller.observe(WatchEvent::Nodes(Seen::All(values::<NodeObject>(&nodes))));
    controller.observe(WatchEvent::Pods(Seen::All(values::<PodObject>(&pods))));
    controller.observe(WatchEvent::Services(Seen::All(values::<ServiceObject>(&services))));
    controller.observe(WatchEvent::Slices(Seen::All(values::<SliceObject>(&slices))));
    let of_pods = pods.iter().filter_map(|pod| pod["metadata"]["namespace"].as_str());
    let namespaces: BTreeSet<Arc<str>> = of_pods.map(Into::into).collect();
    let namespaces = namespaces.into_iter().map(|name| (name, Namespace::default())).collect();
    let others =
        no_policies().into_iter().filter(|list| !matches!(list, WatchEvent::Namespaces(_)));
    others.for_each(|list| controller.observe(list));
    controller.observe(WatchEvent::Namespaces(Seen::All(namespaces)));
}

pub(crate) fn values<T: Watched + DeserializeOwned>(objects: &[Value]) -> Vec<T::Value> {
    objects
        .iter()
        .map(|object| serde_json::from_str::<T>(&object.to_string()).unwrap().value().unwrap())
        .collect()
}

/// Random worlds in which the product does nothing differently from the model; prints the smallest
/// one in which it does.
pub(crate) fn nothing_differs<W: Display + Debug>(
    worlds: &impl Strategy<Value = W>,
    differences: impl Fn(&W) -> Vec<String>,
) {
    let cases = std::env::var("OVN_LAWS_CASES")
        .map_or(CASES, |cases| cases.parse().expect("OVN_LAWS_CASES is a number"));
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_time: 60_000,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(worlds, |world| {
        let differences = differences(&world);
        if differences.is_empty() {
            return Ok(());
        }
        Err(TestCaseError::fail(differences[..differences.len().min(SHOWN)].join("\n")))
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, world)) => {
            panic!("{reason}\nthe smallest world that was found:\n{world}")
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn services_answer_as_kubernetes_reference_says_in_random_worlds() {
    let bench = Bench::new();
    nothing_differs(&world(), |world| differences(&bench, world));
}
