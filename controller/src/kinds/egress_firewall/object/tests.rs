use contract::limits::EGRESS_FIREWALL_RULES;
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;

fn read(egress: Value) -> EgressFirewall {
    EgressFirewall::new("uid", json!({ "egress": egress }), json!(null))
}

/// The only rule, and what could not be used.
fn rule(spec: Value) -> (Option<FirewallRule>, Option<Unusable>) {
    let read = read(json!([spec]));
    assert!(read.rules.len() <= 1, "{read:?}");
    (read.rules.first().cloned(), read.unusable.map(|unusable| *unusable))
}

fn everything() -> FirewallRule {
    FirewallRule { index: 0, action: FirewallAction::Deny, to: Destination::Anywhere, ports: None }
}

#[test]
fn rules_are_read_in_their_order() {
    let read = read(json!([
        {"type": "Allow", "to": {"cidrSelector": "1.2.3.4/24"}, "ports": [{"protocol": "UDP", "port": 55}]},
        {"type": "Deny", "to": {"cidrSelector": "::/0"}, "ports": []},
        {"type": "Deny", "to": {"nodeSelector": {"matchLabels": {"role": "edge"}}}},
    ]));
    let udp = FirewallPort { protocol: Protocol::Udp, number: Some(55) };
    let edge = LabelSelector {
        match_labels: Some([("role".to_owned(), "edge".to_owned())].into()),
        ..LabelSelector::default()
    };
    let rule = |index, action, to, ports| FirewallRule { index, action, to, ports };
    let expected = [
        rule(
            0,
            FirewallAction::Allow,
            Destination::Net("1.2.3.0/24".parse().unwrap()),
            Some([udp].into()),
        ),
        rule(1, FirewallAction::Deny, Destination::Net("::/0".parse().unwrap()), None),
        rule(2, FirewallAction::Deny, Destination::Nodes(NodePeer::new(&edge).unwrap()), None),
    ];
    assert_eq!(*read.rules, expected);
    assert_eq!(read.unusable, None);
}

#[test]
fn a_name_is_one_of_the_dns_and_has_no_wildcard() {
    for (name, reason) in [
        ("www.example.org", None),
        ("Example.ORG.", None),
        ("xn--bcher-kva.example", None),
        ("*.example.org", Some("Wildcard")),
        ("", Some("NoName")),
        (".", Some("NoName")),
        ("a..b", Some("NoName")),
        ("_dmarc.a_b.example", None),
        ("b\u{fc}cher.example", Some("NoName")),
        (&"a".repeat(64), Some("NoName")),
        (&"a.".repeat(128), Some("NoName")),
    ] {
        let (rule, unusable) = rule(json!({"type": "Allow", "to": {"dnsName": name}}));
        assert_eq!(unusable.map(|unusable| unusable.reason()), reason, "{name:?}");
        let to = rule.map(|rule| rule.to);
        // One name, however it is spelled.
        let canonical = || name.trim_end_matches('.').to_ascii_lowercase();
        assert_eq!(to, reason.is_none().then(|| Destination::Name(canonical().into())), "{name:?}");
    }
}

#[test]
fn a_rule_that_allows_and_cannot_be_used_allows_nothing() {
    for (spec, reason) in [
        (json!({"type": "Allow", "to": {"cidrSelector": "nonsense"}}), "NoNetwork"),
        (json!({"type": "Allow", "to": {"cidrSelector": "1.2.3.4"}}), "NoNetwork"),
        (json!({"type": "Allow", "to": {}}), "NoDestination"),
        (json!({"type": "Allow"}), "NoDestination"),
        (
            json!({"type": "Allow", "to": {"cidrSelector": "::/0", "dnsName": "a.example"}}),
            "NoDestination",
        ),
        (json!({"type": "Allow", "to": {"serviceSelector": {}}}), "NoDestination"),
        (
            json!({"type": "Allow", "to": {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}),
            "UnusableSelector",
        ),
        (
            json!({"type": "Allow", "to": {"cidrSelector": "::/0"}, "ports": [{"protocol": "ICMP", "port": 1}]}),
            "NoPort",
        ),
        (
            json!({"type": "Allow", "to": {"cidrSelector": "::/0"}, "ports": [{"protocol": "TCP", "port": 65536}]}),
            "NoPort",
        ),
        (
            json!({"type": "Allow", "to": {"cidrSelector": "::/0"}, "ports": [{"protocol": "TCP", "port": "web"}]}),
            "NoPort",
        ),
    ] {
        let (rule, unusable) = rule(spec.clone());
        assert_eq!(rule, None, "{spec}");
        assert_eq!(unusable.map(|unusable| unusable.reason()), Some(reason), "{spec}");
    }
}

#[test]
fn a_rule_that_denies_and_cannot_be_used_denies_more_and_not_less() {
    let port = FirewallPort { protocol: Protocol::Tcp, number: Some(80) };
    let with_port = FirewallRule { ports: Some([port].into()), ..everything() };
    let net = FirewallRule { to: Destination::Net("1.2.3.0/24".parse().unwrap()), ..everything() };
    let ports = json!([{"protocol": "TCP", "port": 80}]);
    for (spec, expected) in [
        (
            json!({"type": "Deny", "to": {"cidrSelector": "nonsense"}, "ports": ports}),
            with_port.clone(),
        ),
        (
            json!({"type": "Deny", "to": {"dnsName": "*.example.org"}, "ports": ports}),
            with_port.clone(),
        ),
        (json!({"type": "Deny", "to": {"serviceSelector": {}}, "ports": ports}), with_port),
        (
            json!({"type": "Deny", "to": {"cidrSelector": "1.2.3.0/24"}, "ports": [{"protocol": "tcp"}]}),
            net.clone(),
        ),
        (json!({"type": "Permit", "to": {"cidrSelector": "1.2.3.0/24"}}), net),
        (json!("nonsense"), everything()),
        (json!({"type": "Deny", "ports": {}}), everything()),
    ] {
        let (rule, unusable) = rule(spec.clone());
        assert_eq!(rule, Some(expected), "{spec}");
        assert!(unusable.is_some(), "{spec}");
    }
}

#[test]
fn a_spec_that_cannot_be_read_denies_everything() {
    for spec in [json!(null), json!({"egress": {}}), json!([])] {
        let read = EgressFirewall::new("uid", spec.clone(), json!({}));
        assert_eq!(*read.rules, [everything()], "{spec}");
        assert_eq!(
            read.unusable.map(|unusable| unusable.reason()),
            Some("UnreadableSpec"),
            "{spec}"
        );
    }
    let empty = EgressFirewall::new("uid", json!({}), json!({}));
    assert_eq!((empty.rules.len(), empty.unusable), (0, None));
}

#[test]
fn rules_without_a_priority_left_deny_everything() {
    let allow = json!({"type": "Allow", "to": {"cidrSelector": "1.2.3.0/24"}});
    let all = read(Value::Array(vec![allow.clone(); EGRESS_FIREWALL_RULES.most]));
    assert_eq!((all.rules.len(), all.unusable), (EGRESS_FIREWALL_RULES.most, None));
    let more = read(Value::Array(vec![allow; EGRESS_FIREWALL_RULES.most + 1]));
    assert_eq!(more.rules.len(), EGRESS_FIREWALL_RULES.most);
    assert_eq!(
        more.rules.last(),
        Some(&FirewallRule { index: EGRESS_FIREWALL_RULES.most - 1, ..everything() })
    );
    assert_eq!(more.unusable.map(|unusable| unusable.reason()), Some("TooLarge"));
}

#[test]
fn a_status_that_is_none_counts_as_none() {
    let status = |value| EgressFirewall::new("uid", json!({"egress": []}), value).status;
    let is = status(json!({"status": "ok", "messages": ["global: ok"], "more": 1}));
    assert_eq!(is.status.as_deref(), Some("ok"));
    assert_eq!(is.messages, Some(["global: ok".into()].into()));
    for value in [json!(null), json!(5), json!({"status": {}}), json!({"messages": "x"})] {
        assert_eq!(status(value.clone()), ObservedStatus::default(), "{value}");
    }
}

/// A value of any kind in any place.
fn any_rule() -> impl Strategy<Value = Value> {
    let value = || {
        select(vec![
            json!(null),
            json!(7),
            json!(-1),
            json!("TCP"),
            json!("10.0.0.0/8"),
            json!("a.example"),
            json!([]),
            json!([{}]),
            json!({}),
            json!({"cidrSelector": "::/0"}),
            json!({"cidrSelector": ["::/0"]}),
            json!({"dnsName": "a.example"}),
            json!({"nodeSelector": {"matchLabels": {"a": "b"}}}),
            json!({"nodeSelector": {"matchLabels": ["a"]}}),
            json!([{"protocol": "TCP", "port": 80}]),
            json!([{"protocol": "TCP", "port": 1e9}]),
        ])
    };
    let kind =
        prop_oneof![3 => select(vec![json!("Allow"), json!("Deny"), json!("deny")]), 1 => value()];
    (option::of(kind), option::of(value()), option::of(value())).prop_map(|(kind, to, ports)| {
        let fields = [("type", kind), ("to", to), ("ports", ports)];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(fields.collect())
    })
}

proptest! {
    #[test]
    fn whatever_is_in_a_rule_it_denies_in_its_place_unless_it_says_allow(specs in vec(any_rule(), 0..5)) {
        let read = read(Value::Array(specs.clone()));
        for (index, spec) in specs.iter().enumerate() {
            let rule = read.rules.iter().find(|rule| rule.index == index);
            let action = rule.map(|rule| rule.action);
            match spec["type"].as_str() {
                Some("Allow") => prop_assert!(
                    action != Some(FirewallAction::Deny) || rule == Some(&FirewallRule::deny_all(index)),
                    "{spec}"
                ),
                _ => prop_assert_eq!(action, Some(FirewallAction::Deny), "{}", spec),
            }
        }
        let is_ordered = read.rules.windows(2).all(|pair| pair[0].index < pair[1].index);
        prop_assert!(is_ordered, "{:?}", read.rules);
    }
}
