//! `newcomers_page.txt`: all rows of a cluster with one node and one pod, as text for a newcomer.

use std::fmt::Write;

use kubeapi::{
    services::{ServiceObject, SliceObject},
    watch::Watched,
};

use crate::{key::SetId, kinds::network_policy::wire::PolicyObject, rows::acl::spelling::spelled};

use super::*;

/// The rows as text. Empty columns are left out.
fn page(rows: &[DesiredRow]) -> String {
    let mut page = String::new();
    for DesiredRow { id, columns, member_of, or_member_of: _, or_columns: _, needs: _ } in rows {
        let _ = writeln!(page, "{} {}", id.table.name(), id.name);
        for (column, value) in columns {
            let text = text(value);
            if !text.is_empty() {
                let _ = writeln!(page, "  {column}: {text}");
            }
        }
        for membership in member_of {
            let _ = writeln!(
                page,
                "  in {} of {} {}",
                membership.column,
                membership.of.table.name(),
                membership.of.name
            );
        }
    }
    page
}

/// A column of a row as text; a match in upstream's words.
pub(crate) fn column(row: &DesiredRow, name: &str) -> String {
    let (_, value) = row.columns.iter().find(|(column, _)| *column == name).unwrap();
    if let Value::Match(words) = value { words.clone() } else { text(value) }
}

fn text(value: &Value) -> String {
    let datum = |datum: &ovsdb::Datum| atoms_of(datum).into_iter().collect::<Vec<_>>().join(", ");
    match value {
        Value::Datum(value) => datum(value),
        Value::Match(words) => spelled(words).into_owned(),
        Value::Pairs(pairs) => {
            let Pairs { with, .. } = &**pairs;
            with.iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join(" ")
        }
        Value::Elements(texts) => texts.iter().map(|text| &**text).collect::<Vec<_>>().join(", "),
        Value::Entries(pairs) | Value::Lists(pairs) => pairs
            .iter()
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect::<Vec<_>>()
            .join(" "),
        Value::References(rows) | Value::Including(rows) => {
            rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>().join(", ")
        }
        Value::Parts { table, rows } => {
            let part = |columns: &Vec<(&str, ovsdb::Datum)>| {
                columns
                    .iter()
                    .map(|(column, value)| format!("{column}={:?}", datum(value)))
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            rows.iter()
                .map(|columns| format!("{} {}", table.name(), part(columns)))
                .collect::<Vec<_>>()
                .join(", ")
        }
    }
}

#[test]
fn a_newcomers_page() {
    let nodes = serde_json::json!({"items": [{"metadata": {"name": "n1", "annotations": {
        "k8s.ovn.org/node-subnets": r#"{"default":["10.244.1.0/24","fd00:10:244:1::/64"]}"#, "k8s.ovn.org/node-chassis-id": "c1"}}}]});
    let pods = serde_json::json!({"items": [{"metadata": {"name": "cart-0", "namespace": "shop", "uid": "u1", "labels": {"app": "cart"}},
        "spec": {"nodeName": "n1", "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]}}]});
    let mut store = store_of(config(true), &nodes, &pods);
    let mut text = String::new();
    let service = serde_json::json!({"metadata": {"name": "cart", "namespace": "shop"}, "spec": {"clusterIPs": ["10.96.0.7"],
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}]}});
    let slice = serde_json::json!({"metadata": {"name": "cart-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "cart"}},
        "addressType": "IPv4", "ports": [{"protocol": "TCP", "port": 8080}],
        "endpoints": [{"addresses": ["10.244.1.3"], "conditions": {"ready": true}, "nodeName": "n1"}]});
    let service: ServiceObject = serde_json::from_value(service).unwrap();
    let slice: SliceObject = serde_json::from_value(slice).unwrap();
    store.observe(WatchEvent::Services(Seen::Applied(service.value().unwrap())), &mut |_, _| ());
    store.observe(WatchEvent::Slices(Seen::Applied(slice.value().unwrap())), &mut |_, _| ());
    let policy = serde_json::json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {
        "podSelector": {"matchLabels": {"app": "cart"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}, {"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "ports": [{"port": "http"}, {"port": 9000, "endPort": 9010}]}]}});
    let policy: PolicyObject = serde_json::from_value(policy).unwrap();
    let (key, policy) = policy.value().unwrap();
    store.observe(WatchEvent::Policies(Seen::Applied((key.clone(), policy))), &mut |_, _| ());
    let sets = store.keys().find(|key| matches!(key, Key::Set(SetId::Pods(_)))).unwrap();
    for (title, key) in [
        ("The cluster", Key::Cluster),
        (
            "Node n1: subnets 10.244.1.0/24 and fd00:10:244:1::/64, chassis c1",
            Key::Node("n1".into()),
        ),
        (
            "Pod shop/cart-0 on n1",
            Key::Pod(contract::names::PodKey::new("shop", "cart-0").unwrap()),
        ),
        ("NetworkPolicy shop/web: web pods to cart pods", Key::Policy(key)),
        (
            "Isolation of the pods that policies of namespace shop select",
            Key::Isolation("shop".into()),
        ),
        ("The web pods of the namespace", sets),
        ("Service shop/cart with that pod behind it", Key::Service("shop/cart".parse().unwrap())),
    ] {
        let _ = writeln!(text, "# {title}\n\n{}", page(&desired(&store, &key)));
    }
    let _ = writeln!(text, "# And the pod's annotation\n");
    for annotation in store.take_annotations() {
        for (name, json) in annotation.annotations() {
            let lines = ["],", "},"]
                .iter()
                .fold(json, |text, end| text.replace(end, &format!("{end}\n  ")));
            let _ = writeln!(text, "{name}:\n  {lines}");
        }
    }
    let file = include_str!("newcomers_page.txt");
    assert!(
        text == file,
        "newcomers_page.txt is not what there is; if the difference is meant, it becomes:\n{text}"
    );
}
