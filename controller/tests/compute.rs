//! What the control plane computes without a database: from lists of all objects to all desired
//! rows.
//!
//! The world is that of Antrea's benchmark of its controller
//! (`TestInitXLargeScaleWithSmallNamespaces`): 25,000 namespaces with three policies and four pods
//! each, on 1,000 nodes. One policy isolates all pods of a namespace in both directions, the others
//! allow two of them to connect to each other. Antrea publishes 5.84 s and 1,522 MB. It counts its
//! heap; here it is the process, with all lists, the store and all rows. Addresses of pods are
//! assigned, too.
//!
//! ```text
//! cargo test --release -p controller --test compute -- --nocapture
//! ```
//!
//! With debug executables the world is smaller and has no goals.

#![expect(clippy::unwrap_used, reason = "parts of the tests, which fail by panicking")]

#[expect(dead_code, reason = "the laws use more of it")]
#[path = "laws/cluster.rs"]
mod cluster;

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use cluster::{all_nodes, config, node, node_name};
use controller::{
    key::Key,
    kinds::{
        desired, namespace::wire::NamespaceObject, network_policy::wire::PolicyObject,
        pod::wire::PodObject,
    },
    rows::{DesiredRow, RowSet, Table},
    watch_event::{Seen, WatchEvent},
    world::Store,
};
use nix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NAMESPACES: usize = if cfg!(debug_assertions) { 500 } else { 25_000 };
const NODES: usize = 1_000;
const PODS_OF_EACH: usize = 4;
/// The best of the three figures that Antrea publishes of its time, and of its memory.
const TIME: Duration = Duration::from_millis(5_800);
const MEMORY: usize = 1_500_000;

#[test]
fn the_rows_of_antreas_world_are_computed_in_less_time_and_memory() {
    let namespaces = (0..NAMESPACES).map(|number| {
        let name = namespace(number);
        let object =
            json!({"metadata": {"name": name, "uid": uid(1, number), "labels": {"app": name}}});
        read::<NamespaceObject>(&object).into_namespace()
    });
    let policies = (0..NAMESPACES).flat_map(|number| [0, 1, 2].map(|place| policy(number, place)));
    let policies = policies.map(|object| read::<PolicyObject>(&object).into_policy().unwrap());
    let pods = (0..NAMESPACES).flat_map(|number| [0, 1, 2, 3].map(|place| pod(number, place)));
    let pods = pods.map(|object| read::<PodObject>(&object).into_pod().unwrap());
    let begun = Instant::now();
    let mut lists = vec![
        all_nodes((1..).map(node).take(NODES)),
        WatchEvent::Namespaces(Seen::All(namespaces.collect())),
        WatchEvent::Policies(Seen::All(policies.collect())),
        WatchEvent::Pods(Seen::All(pods.collect())),
        WatchEvent::Services(Seen::All(Vec::new())),
        WatchEvent::Slices(Seen::All(Vec::new())),
    ];
    lists.extend(WatchEvent::no_optional_kinds());
    println!("lists: {:.2?}, {} kB", begun.elapsed(), peak_memory());

    let (begun, cpu) = (Instant::now(), computed());
    let (mut store, mut dirty) = (Store::new(config()), HashSet::<Key>::new());
    lists.into_iter().for_each(|list| store.observe(list, &mut |key, _| _ = dirty.insert(key)));
    println!(
        "store: {:.2?}, {:.2?} of CPU, {} kB",
        begun.elapsed(),
        computed() - cpu,
        peak_memory()
    );
    // As at the start of the control plane.
    dirty.extend(store.keys());
    let rows: Vec<(&Key, RowSet)> = dirty.iter().map(|key| (key, desired(&store, key))).collect();
    let (took, cpu, peak) = (begun.elapsed(), computed() - cpu, peak_memory());
    let count = rows.iter().map(|(_, rows)| rows.len()).sum::<usize>();
    println!("with {count} rows of {} keys: {took:.2?}, {cpu:.2?} of CPU, {peak} kB", dirty.len());

    let of_nodes = |key: &Key| matches!(key, Key::Cluster | Key::Node(_) | Key::Gateway(_));
    let mut tables = BTreeMap::<Table, usize>::new();
    let of_namespaces = rows.iter().filter(|(key, _)| !of_nodes(key)).flat_map(|(_, rows)| rows);
    of_namespaces.clone().for_each(|row| *tables.entry(row.id.table).or_default() += 1);
    // Of a namespace: the groups of both directions, which drop all but ARP, and of three policies,
    // two of which have a rule with a set of its own; its pods.
    let expected = [
        (Table::PortGroup, 5),
        (Table::Acl, 6),
        (Table::AddressSet, 2),
        (Table::LogicalSwitchPort, PODS_OF_EACH),
    ];
    assert_eq!(tables, expected.map(|(table, count)| (table, count * NAMESPACES)).into());
    // A pod is in the groups of both directions and of two policies.
    let groups = |row: &DesiredRow| {
        row.member_of.iter().filter(|set| set.of.table == Table::PortGroup).count()
    };
    let mut pods = of_namespaces.filter(|row| row.id.table == Table::LogicalSwitchPort);
    assert!(pods.all(|row| groups(row) == 4));
    // Processor time, because the machine may have other work.
    if !cfg!(debug_assertions) {
        assert!(
            cpu < TIME && peak < MEMORY,
            "{cpu:?} and {peak} kB, at most {TIME:?} and {MEMORY} kB"
        );
    }
}

/// Processor time of this thread, the only one.
fn computed() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn namespace(number: usize) -> String {
    format!("ns-{number:05}")
}

/// Both pods of a pair have the same label.
fn pair(number: usize) -> Value {
    json!({format!("app-{number}"): format!("scale-{number}")})
}

/// The first isolates the namespace; the others let a pair connect to each other.
fn policy(number: usize, place: usize) -> Value {
    let name = if place == 0 { "default-deny-all".to_owned() } else { format!("np-{place}") };
    let mut spec = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    if place > 0 {
        spec["podSelector"] = json!({"matchLabels": pair(place)});
        spec["ingress"] = json!([{"from": [{"podSelector": {"matchLabels": pair(place)}}]}]);
    }
    json!({"metadata": {"namespace": namespace(number), "name": name, "uid": uid(2, 3 * number + place)}, "spec": spec})
}

fn pod(number: usize, place: usize) -> Value {
    let pod = PODS_OF_EACH * number + place;
    let node = node_name(u32::try_from(1 + pod % NODES).unwrap());
    json!({
        "metadata": {
            "namespace": namespace(number), "name": format!("pod{}", 1 + place), "uid": uid(3, pod),
            "labels": pair(1 + place / 2),
        },
        "spec": {"nodeName": &*node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    })
}

fn uid(kind: usize, number: usize) -> String {
    format!("4b5f1c2e-000{kind}-4000-8000-{number:012}")
}

/// As from the API server: an object is text, and only its list is kept.
fn read<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_str(&object.to_string()).unwrap()
}

/// The peak resident memory, in kB (proc(5), `VmHWM`).
fn peak_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
