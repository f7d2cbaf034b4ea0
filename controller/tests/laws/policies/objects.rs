//! Namespaces and policies, as watches deliver them.

use std::sync::Arc;

use contract::{
    names::PolicyKey,
    namespace_annotation::{AclLogging, Severity},
};
use controller::{
    kinds::{
        egress_firewall::object::EgressFirewall,
        egress_qos::object::EgressQos,
        namespace::object::Namespace,
        network_policy::{object::Policy, wire::PolicyObject},
    },
    watch_event::{Seen, WatchEvent},
};
use serde_json::{Value, json};

use crate::running::all_namespaces;

pub(crate) fn namespace(number: u32) -> Arc<str> {
    format!("ns{number}").into()
}

/// A namespace with one of the labels, and logged if it is the second.
pub(crate) fn labelled(label: u32) -> Namespace {
    let labels = [("team".to_owned(), format!("t{label}"))].into();
    let deny = (label == 1).then_some(Severity::Alert);
    let logging = AclLogging { allow: None, deny };
    Namespace { uid: "uid".into(), labels, logging, ..Namespace::default() }
}

pub(crate) fn policy_key(number: u32) -> PolicyKey {
    PolicyKey::new(&namespace(number % 3), &format!("pol{number}")).unwrap()
}

/// A policy. `kind`: 0 to 7, by its peers and ports.
pub(crate) fn policy(number: u32, kind: u32) -> (PolicyKey, Policy) {
    let key = policy_key(number);
    let app = json!({"podSelector": {"matchLabels": {"app": "a1"}}});
    let team =
        json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["t1", "t2"]}]});
    let team = |pods: Value| match pods {
        Value::Null => json!({ "namespaceSelector": team }),
        pods => json!({ "namespaceSelector": team, "podSelector": pods }),
    };
    let selected =
        if kind.is_multiple_of(2) { json!({}) } else { json!({"matchLabels": {"app": "a0"}}) };
    let block = |except: Value| json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": except}});
    let spec = match kind {
        // Nothing is allowed.
        0 => json!({"policyTypes": ["Ingress", "Egress"]}),
        1 => json!({"ingress": [{"from": [app]}]}),
        2 => {
            json!({"ingress": [{"from": [team(json!(null))], "ports": [{"port": 80}, {"port": 90}]}]})
        }
        3 => {
            json!({"ingress": [{"from": [team(json!({"matchLabels": {"app": "a1"}}))], "ports": [{"port": "web"}]}]})
        }
        4 => {
            json!({"policyTypes": ["Egress"], "egress": [{"to": [app, block(json!([]))], "ports": [{"port": "web"}]}]})
        }
        5 => {
            json!({"ingress": [{"from": [block(json!(["10.0.1.0/24"])), block(json!(["10.0.2.0/24"]))]}],
            "egress": [{}]})
        }
        6 => {
            json!({"policyTypes": ["Egress"], "egress": [{"ports": [{"port": "web"}, {"port": 100, "endPort": 200},
            {"protocol": "UDP"}]}]})
        }
        // What cannot be used.
        _ => {
            json!({"ingress": [{"from": [{"ipBlock": {"cidr": "nonsense"}}], "ports": [{"port": "nobody"}]}]})
        }
    };
    let mut object = json!({
        "metadata": {"namespace": key.namespace(), "name": key.name(), "uid": format!("{number}")}, "spec": spec
    });
    object["spec"]["podSelector"] = selected;
    serde_json::from_value::<PolicyObject>(object).unwrap().into_policy().unwrap()
}

/// The name in the rules of EgressFirewalls.
pub(crate) const NAME: &str = "www.example.org";

/// An EgressFirewall. `kind`: 0 to 5, by its rules.
pub(crate) fn firewall(number: u32, kind: u32) -> (Arc<str>, EgressFirewall) {
    let to = |kind: &str, net: &str| json!({"type": kind, "to": {"cidrSelector": net}});
    let egress = match kind {
        0 => json!([to("Deny", "0.0.0.0/0")]),
        1 => json!([to("Allow", "192.0.2.0/24"), to("Deny", "10.0.0.0/7"), to("Deny", "nonsense")]),
        2 => {
            json!([{"type": "Allow", "to": {"nodeSelector": {}}, "ports": [{"protocol": "TCP", "port": 80}]},
                {"type": "Deny", "to": {"nodeSelector": {"matchLabels": {"no": "such"}}}}])
        }
        3 => json!([]),
        4 => json!([{"type": "Allow", "to": {"dnsName": NAME}}, to("Deny", "0.0.0.0/0")]),
        // What cannot be used.
        _ => json!([{"type": "Allow", "to": {"cidrSelector": "nonsense"}}]),
    };
    let spec = json!({ "egress": egress });
    (namespace(number), EgressFirewall::new("uid", spec, Value::Null))
}

/// An EgressQoS. `kind`: 0 to 4, by its rules.
pub(crate) fn qos(number: u32, kind: u32) -> (Arc<str>, EgressQos) {
    let of = |value: &str| json!({"matchLabels": {"app": value}});
    let egress = match kind {
        0 => json!([{"dscp": 10}]),
        1 => {
            json!([{"dscp": 20, "podSelector": of("a0")}, {"dscp": 30, "dstCIDR": "192.0.2.0/24"}])
        }
        // Another selector in the same place.
        2 => {
            json!([{"dscp": 20, "podSelector": of("a1")}, {"dscp": 64}, {"dscp": 40, "podSelector": of("a0")}])
        }
        3 => json!([]),
        // What cannot be used.
        _ => json!([{"dscp": 10, "dstCIDR": "nonsense"}]),
    };
    let namespace = namespace(number);
    let qos = EgressQos::new(&namespace, "uid", json!({ "egress": egress }), Value::Null);
    (namespace, qos)
}

/// The API server has the namespaces of pods, and no policies.
pub(crate) fn no_policies() -> Vec<WatchEvent> {
    let lists = [all_namespaces(), WatchEvent::Policies(Seen::All(Vec::new()))];
    lists.into_iter().chain(WatchEvent::no_optional_kinds()).collect()
}
