//! The rows of an EgressQoS, in upstream's words.

use serde_json::json;

use crate::{
    custom::CustomObject as _,
    key::SetId,
    kinds::{
        egress_qos::{object::EgressQos, rows::egress_qos},
        tests::{config, page::column, store_of},
    },
    select::set_rows::set_name,
};
use kubeapi::services::Family;

use super::*;

fn store(dual: bool, egress: Json) -> Store {
    let node = |name: &str, subnet: &str| {
        json!({"metadata": {"name": name, "annotations": {
            "k8s.ovn.org/node-subnets": format!("{{\"default\":[\"{subnet}\"]}}"),
            "k8s.ovn.org/zone-name": "global"}}})
    };
    let nodes = json!({"items": [node("n1", "10.244.1.0/24"), node("n2", "10.244.2.0/24")]});
    let mut store = store_of(config(dual), &nodes, &json!({"items": []}));
    let qos = EgressQos::new("shop", "uid", json!({ "egress": egress }), json!({}));
    store.observe(WatchEvent::custom(Seen::Applied(("shop".into(), qos))), &mut |_, _| ());
    store
}

#[test]
fn each_rule_has_a_row_on_all_switches_with_the_sets_of_its_pods() {
    let selector = json!({"matchLabels": {"app": "cart"}});
    let egress = json!([
        {"dscp": 30, "dstCIDR": "192.0.2.0/24"},
        {"dscp": 99},
        {"dscp": 42, "podSelector": selector},
        {"dscp": 7, "dstCIDR": "2001:db8::/32"},
    ]);
    let everywhere = "ip4.dst == 0.0.0.0/0 || ip6.dst == ::/0";
    let hash = |id: &str| contract::ovn::hash(&format!("default-network-controller:{id}"));
    for dual in [false, true] {
        let store = store(dual, egress.clone());
        let of = |id: &str| {
            let of = |family| hash(&format!("{id}:{family}"));
            match dual {
                false => format!("ip4.src == ${}", of("v4")),
                true => format!("(ip4.src == ${} || ip6.src == ${})", of("v4"), of("v6")),
            }
        };
        let rows = egress_qos(&store, &"shop".into());
        let shown = rows.iter().map(|row| {
            let switches = row.member_of.iter().map(|set| &*set.of.name);
            assert_eq!(switches.collect::<Vec<_>>(), ["n1", "n2"]);
            assert_eq!(column(row, "direction"), "to-lport");
            format!("{} {}", column(row, "priority"), column(row, "match"))
        });
        let all = of("Namespace:shop");
        let some = of("EgressQoS:shop:998");
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                format!("1000 (ip4.dst == 192.0.2.0/24) && {all}"),
                format!("998 ({everywhere}) && {some}"),
                format!("997 (ip6.dst == 2001:db8::/32) && {all}"),
            ]
        );
        let ids: Vec<&str> = rows.iter().map(|row| &*row.id.name).collect();
        assert_eq!(ids[1], "default-network-controller:EgressQoS:998:shop");
        let of_rule = SetId::Pods("EgressQoS:shop:998".into());
        for set in [SetId::Namespace("shop".into()), of_rule] {
            let key = Key::Set(set.clone());
            assert!(store.keys().any(|own| own == key), "{key}");
            let first = &desired(&store, &key)[0];
            assert_eq!(first.id, set_name(&set, Family::V4));
        }
    }
}

#[test]
fn without_rules_or_switches_there_is_no_row_and_no_set() {
    let store = store(false, json!([{"dscp": 64}]));
    assert_eq!(egress_qos(&store, &"shop".into()), []);
    assert!(!store.is_set(&SetId::Namespace("shop".into())));
    assert_eq!(store.custom::<EgressQos>("shop").map(|qos| &**qos.uid()), Some("uid"));
}
