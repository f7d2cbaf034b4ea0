use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use contract::mtu::Mtu;
use serde_json::Value as Json;

use super::*;
use crate::{
    config::{ClusterConfig, ClusterSubnet, Zone},
    observation::{Observation, Seen},
    rows::{DesiredRow, Pairs, RowName, Table, Value},
    store::wire::{NodeObject, PodObject},
};

mod page;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn config(dual: bool) -> ClusterConfig {
    let of = |texts: &[&str]| nets(&texts[..if dual { 2 } else { 1 }]);
    let hosts = [24, 64];
    ClusterConfig {
        zone: Zone::default(),
        cluster_subnets: of(&["10.244.0.0/16", "fd00:10:244::/48"])
            .into_iter()
            .zip(hosts)
            .map(|(cidr, host_length)| ClusterSubnet { cidr, host_length })
            .collect(),
        service_cidrs: of(&["10.96.0.0/16", "fd00:10:96::/112"]),
        join_subnets: of(&["100.64.0.0/16", "fd98::/64"]),
        transit_subnets: of(&["100.88.0.0/16", "fd97::/64"]),
        hairpin_addresses: of(&["169.254.169.5/32", "fd69::5/128"]).iter().map(IpNet::addr).collect(),
        mtu: Mtu::DEFAULT,
        requested_chassis: true,
        legacy_annotations: false,
        acl_logging_rate_limit: 20,
    }
}

fn store_of(config: ClusterConfig, nodes: &Json, pods: &Json) -> Store {
    let mut store = Store::new(config);
    let nodes: Vec<NodeObject> = serde_json::from_value(nodes["items"].clone()).unwrap();
    let pods: Vec<PodObject> = serde_json::from_value(pods["items"].clone()).unwrap();
    store.observe(Observation::Nodes(Seen::All(nodes.into_iter().map(NodeObject::into_node).collect())));
    store.observe(Observation::Pods(Seen::All(pods.into_iter().map(|pod| pod.into_pod().unwrap()).collect())));
    store
}

fn all_rows(store: &Store) -> RowSet {
    store.keys().collect::<BTreeSet<Key>>().iter().flat_map(|key| desired(store, key)).collect()
}

/// A database of `tests/upstream`, by table and name.
struct Written(BTreeMap<(String, String), Json>);

impl Written {
    fn read(folder: &Path) -> Self {
        let file = |name: &str| serde_json::from_slice::<Json>(&std::fs::read(folder.join(name)).unwrap()).unwrap();
        let mut rows = BTreeMap::new();
        for (table, named) in file("northbound.json")["rows"].as_object().unwrap() {
            for (reference, row) in named.as_object().unwrap() {
                rows.insert((table.clone(), reference.clone()), row.clone());
            }
        }
        Self(rows)
    }

    fn of(&self, RowName { table, name }: &RowName) -> Option<(&str, &Json)> {
        self.0.iter().find_map(|((in_table, reference), row)| {
            let id = pairs(&row["external_ids"]).get("k8s.ovn.org/id").cloned();
            let its_name = if *table == Table::Acl { id } else { row["name"].as_str().map(str::to_owned) };
            (in_table == table.name() && its_name.as_ref() == Some(name)).then_some((reference.as_str(), row))
        })
    }

    /// The reference to the row, as columns hold it.
    fn reference(&self, row: &RowName) -> String {
        self.of(row).unwrap_or_else(|| panic!("upstream has no {row:?}")).0.to_owned()
    }

    fn check(&self, wanted: &DesiredRow) {
        let (reference, row) = self.of(&wanted.id).unwrap_or_else(|| panic!("upstream has no {:?}", wanted.id));
        for (column, value) in &wanted.columns {
            let (what, there) = (format!("{:?} {column}", wanted.id), &row[*column]);
            match value {
                Value::Datum(datum) => assert_eq!(atoms_of(datum), atoms(there), "{what}"),
                Value::Pairs(Pairs { with, without, .. }) => {
                    let there = pairs(there);
                    let with: BTreeMap<String, String> = with.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
                    assert_eq!(with, there, "{what}");
                    assert!(without.iter().all(|key| !there.contains_key(*key)), "{what}");
                }
                Value::References(rows) | Value::Including(rows) => {
                    assert_eq!(rows.iter().map(|row| self.reference(row)).collect::<BTreeSet<_>>(), atoms(there), "{what}");
                }
                Value::Parts { table, rows } => {
                    let there: Vec<_> = atoms(there).iter().map(|part| &self.0[&(table.name().to_owned(), part.clone())]).collect();
                    assert_eq!(there.len(), rows.len(), "{what}");
                    for (part, there) in rows.iter().zip(there) {
                        part.iter().for_each(|(column, datum)| assert_eq!(atoms_of(datum), atoms(&there[*column]), "{what} {column}"));
                    }
                }
            }
        }
        for membership in &wanted.member_of {
            let (_, holder) = self.of(&membership.of).unwrap_or_else(|| panic!("upstream has no {:?}", membership.of));
            assert!(atoms(&holder[membership.column]).contains(reference), "{:?} in {membership:?}", wanted.id);
        }
    }
}

/// The elements of a column as text; that of a default none.
fn atoms(column: &Json) -> BTreeSet<String> {
    let text = |atom: &Json| match atom {
        Json::Array(reference) => reference[1].as_str().unwrap().to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    match column {
        Json::Null => BTreeSet::new(),
        Json::Array(parts) if parts[0] == "set" => parts[1].as_array().unwrap().iter().map(text).collect(),
        single => BTreeSet::from([text(single)]),
    }
}

fn atoms_of(datum: &ovsdb::Datum) -> BTreeSet<String> {
    atoms(&serde_json::to_value(datum).unwrap()).into_iter().filter(|text| !text.is_empty()).collect()
}

fn pairs(column: &Json) -> BTreeMap<String, String> {
    let pairs = column.get(1).and_then(Json::as_array).into_iter().flatten();
    pairs.map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().unwrap().to_owned())).collect()
}

#[test]
fn rows_are_those_that_upstream_writes() {
    for (folder, dual) in [("central-v4", false), ("central-dual", true), ("shared-v4", false)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream").join(folder);
        let file = |name: &str| serde_json::from_slice::<Json>(&std::fs::read(folder.join(name)).unwrap()).unwrap();
        let written = Written::read(&folder);
        let mut store = store_of(config(dual), &file("nodes.json"), &file("pods.json"));
        let rows = all_rows(&store);
        rows.iter().for_each(|row| written.check(row));
        assert_eq!(store.take_annotations(), [], "{folder:?}");

        // And there is nothing of these kinds that we have not.
        let ours: BTreeSet<_> = rows.iter().map(|row| (row.id.table.name().to_owned(), written.reference(&row.id))).collect();
        for key in written.0.keys() {
            let later = ["Gateway", "GR_", "ext_", "Netpol", "NetworkPolicy", "Static", "br_", "physnet", "_namespace"];
            let kinds = ["Logical_Switch_Port", "Logical_Router_Port", "Logical_Switch", "Gateway_Chassis", "Meter", "Port_Group", "Copp"];
            let mine =
                kinds.contains(&key.0.as_str()) && !later.iter().any(|part| key.1.trim_start_matches("Gateway_Chassis").contains(part));
            assert!(!mine || ours.contains(key), "{folder:?}: only upstream has {key:?}");
        }
    }
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
        assert_eq!(desired(&store, &Key::Pod(contract::names::PodKey::new("b", "a").unwrap())), [], "{spec} {phase} {zone}");
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
    let names: Vec<String> = desired(&store, &Key::Node("n2".into())).into_iter().map(|row| row.id.name).collect();
    assert_eq!(names, ["n2", "stor-n2", "k8s-n2", "default-network-controller:NetpolNode:n2:fd00:10:244:2::2"]);
}
