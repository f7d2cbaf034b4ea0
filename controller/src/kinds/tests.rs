//! Which objects have rows, and a page of all rows for reading.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::Value as Json;

use crate::{
    config::{ClusterConfig, ClusterSubnet},
    kinds::{namespace::object::Namespace, node::wire::NodeObject, pod::wire::PodObject},
    rows::{DesiredRow, Pairs, Value},
    watch_event::{Seen, WatchEvent},
};

use super::*;

mod egress_firewall;
mod egress_qos;
mod multicast;
mod page;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn config(dual: bool) -> ClusterConfig {
    let of = |texts: &[&str]| nets(&texts[..if dual { 2 } else { 1 }]);
    let hosts = [24, 64];
    ClusterConfig {
        cluster_subnets: of(&["10.244.0.0/16", "fd00:10:244::/48"])
            .into_iter()
            .zip(hosts)
            .map(|(cidr, host_length)| ClusterSubnet { cidr, host_length })
            .collect(),
        service_cidrs: of(&["10.96.0.0/16", "fd00:10:96::/112"]),
        join_subnets: of(&["100.64.0.0/16", "fd98::/64"]),
        transit_subnets: of(&["100.88.0.0/16", "fd97::/64"]),
        hairpin_addresses: of(&["169.254.169.5/32", "fd69::5/128"])
            .iter()
            .map(IpNet::addr)
            .collect(),
        ..ClusterConfig::default()
    }
}

fn store_of(config: ClusterConfig, nodes: &Json, pods: &Json) -> Store {
    let mut store = Store::new(config);
    let nodes: Vec<NodeObject> = serde_json::from_value(nodes["items"].clone()).unwrap();
    let pods: Vec<PodObject> = serde_json::from_value(pods["items"].clone()).unwrap();
    store.observe(
        WatchEvent::Nodes(Seen::All(nodes.into_iter().map(NodeObject::into_node).collect())),
        &mut |_, _| (),
    );
    let pods = pods.into_iter().map(|pod| pod.into_pod().unwrap()).collect();
    store.observe(WatchEvent::Pods(Seen::All(pods)), &mut |_, _| ());
    store.observe(WatchEvent::Services(Seen::All(Vec::new())), &mut |_, _| ());
    store.observe(WatchEvent::Slices(Seen::All(Vec::new())), &mut |_, _| ());
    let namespaces =
        ["shop", "a", "b", "default"].map(|name| (name.into(), Namespace::default())).into();
    store.observe(WatchEvent::Namespaces(Seen::All(namespaces)), &mut |_, _| ());
    store.observe(WatchEvent::Policies(Seen::All(Vec::new())), &mut |_, _| ());
    WatchEvent::no_optional_kinds()
        .into_iter()
        .for_each(|list| store.observe(list, &mut |_, _| ()));
    store
}

/// The elements of a column as text; none for a default value.
fn atoms(column: &Json) -> BTreeSet<String> {
    let text = |atom: &Json| match atom {
        Json::Array(reference) => reference[1].as_str().unwrap().to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    match column {
        Json::Null => BTreeSet::new(),
        Json::Array(parts) if parts[0] == "set" => {
            parts[1].as_array().unwrap().iter().map(text).collect()
        }
        single => BTreeSet::from([text(single)]),
    }
}

fn atoms_of(datum: &ovsdb::Datum) -> BTreeSet<String> {
    atoms(&serde_json::to_value(datum).unwrap())
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect()
}

#[test]
fn no_port_without_node_on_the_hosts_network_after_the_end_or_in_another_zone() {
    let annotations = serde_json::json!({
        "k8s.ovn.org/pod-networks": r#"{"default":{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24"]}}"#});
    for (spec, phase, zone) in [
        (serde_json::json!({}), "Running", "global"),
        (serde_json::json!({"nodeName": "n1", "hostNetwork": true}), "Running", "global"),
        (serde_json::json!({"nodeName": "n1"}), "Succeeded", "global"),
        (serde_json::json!({"nodeName": "n1"}), "Failed", "global"),
        (serde_json::json!({"nodeName": "n1"}), "Running", "n1"),
        (serde_json::json!({"nodeName": "n2"}), "Running", "global"),
    ] {
        let nodes = serde_json::json!({"items": [{"metadata": {"name": "n1", "annotations": {
            "k8s.ovn.org/node-subnets": r#"{"default":["10.244.1.0/24"]}"#, "k8s.ovn.org/zone-name": zone}}}]});
        let pods = serde_json::json!({"items": [{"metadata": {"name": "a", "namespace": "b", "uid": "u", "annotations": annotations},
            "spec": spec, "status": {"phase": phase}}]});
        let store = store_of(config(false), &nodes, &pods);
        assert_eq!(
            desired(&store, &Key::Pod(contract::names::PodKey::new("b", "a").unwrap())),
            [],
            "{spec} {phase} {zone}"
        );
    }
}

#[test]
fn a_node_without_subnet_has_nothing_and_without_chassis_no_router_port() {
    let nodes = serde_json::json!({"items": [
        {"metadata": {"name": "n1"}},
        {"metadata": {"name": "n2", "annotations": {"k8s.ovn.org/node-subnets": r#"{"default":["fd00:10:244:2::/64"]}"#}}},
    ]});
    let store = store_of(config(true), &nodes, &serde_json::json!({"items": []}));
    assert_eq!(desired(&store, &Key::Node("n1".into())), []);
    let names: Vec<String> = desired(&store, &Key::Node("n2".into()))
        .into_iter()
        .map(|row| row.id.name.to_string())
        .collect();
    assert_eq!(
        names,
        [
            "n2",
            "stor-n2",
            "k8s-n2",
            "default-network-controller:NetpolNode:n2:fd00:10:244:2::2",
            " ip_prefix=fd00:10:244:2::/64 nexthop=fd00:10:244:2::2 policy=src-ip"
        ]
    );
}

/// A second route of the same source would take half of the packets that leave through a gateway
/// router.
#[test]
fn pods_of_a_node_with_a_gateway_router_of_its_own_have_no_route_to_its_host() {
    for (mode, routes) in [
        (None, 1),
        (Some(r#"{"default":{"mode":"local","bridge-id":"br-ex"}}"#), 1),
        (Some(r#"{"default":{"mode":"shared","bridge-id":"br-ex"}}"#), 0),
        (Some(r#"{"default":{"mode":""}}"#), 0),
        (Some(r#"{"another":{"mode":"shared"}}"#), 1),
        (Some("nonsense"), 0),
        (Some(r#"{"default":{"mode":"of 2030"}}"#), 0),
    ] {
        let mut annotations =
            serde_json::json!({"k8s.ovn.org/node-subnets": r#"{"default":["10.244.1.0/24"]}"#});
        if let Some(mode) = mode {
            annotations["k8s.ovn.org/l3-gateway-config"] = mode.into();
        }
        let nodes = serde_json::json!({"items": [{"metadata": {"name": "n1", "annotations": annotations}}]});
        let store = store_of(config(false), &nodes, &serde_json::json!({"items": []}));
        let rows = desired(&store, &Key::Node("n1".into()));
        let found =
            rows.iter().filter(|row| row.id.table == crate::rows::Table::StaticRoute).count();
        assert_eq!(found, routes, "{mode:?}");
    }
}

/// What a host forwarded had the source that policies let in: there was no way back for another
/// one. A node that does not ask, as upstream's, has no row more.
#[test]
fn answers_to_what_a_host_forwards_have_a_way_back_where_the_node_asks_for_it() {
    let routes = |forwarded: Option<&str>, join: &str| {
        let mut annotations = serde_json::json!({
            "k8s.ovn.org/node-subnets": r#"{"default":["10.244.1.0/24","fd00:10:244:1::/64"]}"#,
            "k8s.ovn.org/l3-gateway-config": r#"{"default":{"mode":"shared","bridge-id":"br-ex"}}"#,
            "k8s.ovn.org/node-gateway-router-lrp-ifaddrs": join,
        });
        if let Some(forwarded) = forwarded {
            annotations["k8s.ovn.org/node-forwarded-source"] = forwarded.into();
        }
        let nodes = serde_json::json!({"items": [{"metadata": {"name": "n1", "annotations": annotations}}]});
        let store = store_of(config(true), &nodes, &serde_json::json!({"items": []}));
        let rows = desired(&store, &Key::Node("n1".into()));
        let routes = rows.iter().filter(|row| row.id.table == crate::rows::Table::StaticRoute);
        routes.map(|row| row.id.name.to_string()).collect::<Vec<_>>()
    };
    let join = r#"{"default":{"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}}"#;
    let found = routes(Some("join"), join);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("ip_prefix=100.64.255.253 nexthop=10.244.1.2"), "{found:?}");
    assert!(
        found[1].contains("ip_prefix=fd98::ffff:ffff:ffff:fffd nexthop=fd00:10:244:1::2"),
        "{found:?}"
    );
    assert_eq!(routes(None, join), [""; 0]);
    assert_eq!(routes(Some("10.244.2.2"), join), [""; 0], "a node names no address");
    // Another node's, if it could be chosen.
    assert_eq!(routes(Some("join"), r#"{"default":{"ipv4":"100.64.255.250/16"}}"#), [""; 0]);
}
