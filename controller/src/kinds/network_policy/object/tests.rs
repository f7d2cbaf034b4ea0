use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kinds::network_policy::wire::PolicyObject;

use super::*;

fn read(spec: Value) -> Policy {
    let object =
        json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u"}, "spec": spec});
    serde_json::from_value::<PolicyObject>(object).unwrap().into_policy().unwrap().1
}

fn unusable(spec: Value) -> String {
    read(spec).unusable.unwrap().to_string()
}

fn isolates(policy: &Policy) -> [bool; 2] {
    [policy.ingress.is_some(), policy.egress.is_some()]
}

#[test]
fn types_default_as_the_reference_says() {
    for empty in
        [json!(null), json!({}), json!({"podSelector": null, "ingress": null, "policyTypes": []})]
    {
        let policy = read(empty);
        assert_eq!((isolates(&policy), policy.unusable), ([true, false], None));
    }
    assert_eq!(isolates(&read(json!({"egress": []}))), [true, false]);
    assert_eq!(isolates(&read(json!({"egress": [{}]}))), [true, true]);
    assert_eq!(isolates(&read(json!({"policyTypes": ["Egress"], "ingress": [{}]}))), [false, true]);
}

/// A policy that cannot be understood closes all pods of its namespace, and says so.
#[test]
fn what_does_not_tell_its_pods_isolates_all_of_its_namespace() {
    let all = Selector::of_namespace("shop");
    let gt = json!({"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]});
    let policy = read(json!({"podSelector": gt, "ingress": [{}]}));
    assert_eq!((&policy.pods, isolates(&policy)), (&all, [true, false]));
    assert_eq!(policy.unusable.unwrap().reason(), "UnusableSelector");
    let policy = read(json!({"podSelector": 7, "ingress": [{}]}));
    assert_eq!((&policy.pods, isolates(&policy)), (&all, [true, true]));
    assert_eq!(policy.ingress.unwrap().len(), 0);
    assert_eq!(policy.unusable.unwrap().reason(), "UnreadableSpec");
    let policy = read(json!({"policyTypes": ["Sideways"]}));
    assert_eq!(
        (isolates(&policy), policy.unusable.unwrap().reason()),
        ([true, true], "UnknownPolicyType")
    );
}

/// A rule whose peers or ports cannot be used was as one without any, and allowed everything.
#[test]
fn what_cannot_be_used_allows_nothing_and_the_rest_is_used() {
    let rule = |rule: Value| read(json!({"ingress": [rule]}));
    let block = |cidr: &str, except: Value| json!({"ipBlock": {"cidr": cidr, "except": except}});
    let policy =
        rule(json!({"from": [block("nonsense", json!([])), block("10.1.2.3/8", json!([]))]}));
    let [Rule { peers: Some(peers), ports: None, .. }] = policy.ingress.as_deref().unwrap() else {
        panic!("{policy:?}")
    };
    assert_eq!(
        **peers,
        [Peer::Block(Block { net: "10.0.0.0/8".parse().unwrap(), except: [].into() })]
    );
    for peer in [
        block("nonsense", json!([])),
        block("10.0.0.0/8", json!(["nonsense"])),
        block("10.0.0.0/8", json!(["fd00::/64"])),
        json!({}),
        json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}),
        json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}),
    ] {
        let policy = rule(json!({ "from": [peer] }));
        assert_eq!(policy.ingress.unwrap()[0].peers.as_deref(), Some(&[][..]), "{peer}");
        assert!(policy.unusable.is_some(), "{peer}");
    }
    for port in [
        json!({"protocol": "QUIC"}),
        json!({"port": 0}),
        json!({"port": 65536}),
        json!({"port": ""}),
        json!({"port": 90, "endPort": 80}),
        json!({"port": "web", "endPort": 80}),
        json!({"endPort": 80}),
    ] {
        let policy = rule(json!({ "ports": [port] }));
        assert_eq!(policy.ingress.unwrap()[0].ports, Some(FrozenSet::default()), "{port}");
        assert!(policy.unusable.is_some(), "{port}");
    }
    assert_eq!(
        unusable(json!({"egress": [{"to": [block("10.0.0.0/8", json!(["10.0.0.0/99"]))]}]})),
        "its egress rule 0 has an ipBlock with the exception \"10.0.0.0/99\", which is no network of the \
         block's family; the block is left out"
    );
}

#[test]
fn sets_are_named_by_the_text_of_their_selectors_as_upstream_spells_it() {
    let of = |peer: Value| {
        let policy = read(json!({"ingress": [{ "from": [peer] }]}));
        let Some(Peer::Pods(peer)) = policy.peers().next().cloned() else { panic!("{policy:?}") };
        peer.text.to_string()
    };
    assert_eq!(
        of(json!({"podSelector": {"matchLabels": {"app": "cart"}}})),
        "shop_LS{ML:{app: cart,},}"
    );
    assert_eq!(of(json!({"podSelector": {}})), "shop_LS{}");
    let expressions = json!([{"key": "tier", "operator": "Exists"},
        {"key": "app", "operator": "In", "values": ["b", "a"]}]);
    assert_eq!(
        of(json!({"namespaceSelector": {"matchLabels": {"b": "2", "a": "1"}},
            "podSelector": {"matchExpressions": expressions}})),
        "LS{ML:{a: 1,b: 2,},}_LS{ME:{LSR{Key:app,Operator:In,Values:[a b],},\
         LSR{Key:tier,Operator:Exists,Values:[],}},}"
    );
}

/// As hostile as the API server lets it be.
#[test]
fn ten_thousand_blocks_and_a_thousand_values_are_read_at_once() {
    let blocks: Vec<Value> = (0..10_000_u32)
        .map(|number| json!({"ipBlock": {"cidr": format!("10.{}.{}.0/24", number / 256, number % 256)}}))
        .collect();
    let values: Vec<String> = (0..1000).map(|number| format!("v{number}")).collect();
    let selector =
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]});
    let begun = Instant::now();
    let policy = read(
        json!({"podSelector": selector, "ingress": [{"from": blocks}, {"from": [{"podSelector": selector}]}]}),
    );
    let took = begun.elapsed();
    assert_eq!((policy.peers().count(), policy.unusable), (10_001, None));
    assert!(took < Duration::from_secs(5), "{took:?}");
}
