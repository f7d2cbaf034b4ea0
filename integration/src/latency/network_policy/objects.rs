//! Pods without a kubelet, and policies in the shape of kube-burner's workload `network-policy`
//! with the numbers of Red Hat's tests. Pure.

use std::net::Ipv4Addr;

use integration::cluster::programs::AGNHOST;
use serde_json::{Value, json};

/// Label of a pod: its number in its namespace, from 0.
pub(super) const NUMBER: &str = "num";
/// Policies of a namespace.
pub(super) const POLICIES: u8 = 20;
/// Namespaces and pods in each that a policy allows, its blocks, ports and ranges of ports: so many
/// of each.
pub(super) const FIVE: u8 = 5;

/// A pod's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Whom a policy allows: pods by their numbers in these namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peers {
    pub(super) namespaces: Vec<String>,
    pub(super) numbers: Vec<u8>,
}

/// The directions in which a policy isolates and allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Directions {
    /// As kube-burner's, where it measures latency.
    Ingress,
    Both,
}

/// The first of the ports of policy `number`. Policies of a namespace have no port in common, so
/// that one of them alone allows a connection.
pub(super) fn port(number: u8) -> u16 {
    8_000 + 10 * u16::from(number)
}

/// Policy `number` of a namespace, for the pods that `selector` selects. Each rule has five ports
/// and five ranges; one rule is about pods, and five are about a block each.
pub(super) fn policy(number: u8, selector: &Value, peers: &Peers, directions: Directions) -> Value {
    let numbers: Vec<String> = peers.numbers.iter().map(u8::to_string).collect();
    let pods = json!({
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": peers.namespaces},
        ]},
        "podSelector": {"matchExpressions": [{"key": NUMBER, "operator": "In", "values": numbers}]},
    });
    let block = |index: u8| json!({"ipBlock": {"cidr": format!("{}/16", Ipv4Addr::new(20 + number, index, 0, 0))}});
    let single = |index: u8| json!({"protocol": "TCP", "port": port(number) + u16::from(index)});
    let range = |index: u8| {
        let first = 10_000 + 100 * u16::from(number) + 20 * u16::from(index);
        json!({"protocol": "TCP", "port": first, "endPort": first + 5})
    };
    let ports: Vec<Value> = (0..FIVE).map(single).chain((0..FIVE).map(range)).collect();
    let rules = |side: &str| {
        let peers = [pods.clone()].into_iter().chain((0..FIVE).map(block));
        peers.map(|peer| json!({side: [peer], "ports": ports})).collect::<Vec<Value>>()
    };
    let mut spec =
        json!({"podSelector": selector, "policyTypes": ["Ingress"], "ingress": rules("from")});
    if directions == Directions::Both {
        spec["policyTypes"] = json!(["Ingress", "Egress"]);
        spec["egress"] = json!(rules("to"));
    }
    named(&policy_name(number), &spec)
}

pub(super) fn policy_name(number: u8) -> String {
    format!("policy-{number:02}")
}

/// The policy that lets nobody in.
pub(super) fn deny_all() -> Value {
    named("deny-all", &json!({"podSelector": {}, "policyTypes": ["Ingress"]}))
}

fn named(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec,
    })
}

/// A pod that is bound to its node already, and stays there when the node is no longer ready.
pub(super) fn pod(name: &str, node: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": AGNHOST, "imagePullPolicy": "Never"}],
        },
    })
}

/// The collection of pods of a namespace.
pub(super) fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// That of its policies.
pub(super) fn policies(namespace: &str) -> String {
    format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_a_rule_for_pods_and_one_for_each_block_with_ten_ports() {
        let peers = Peers { namespaces: vec!["a".to_owned()], numbers: vec![3, 4] };
        let both = policy(2, &json!({}), &peers, Directions::Both);
        let [ingress, egress] =
            ["ingress", "egress"].map(|side| both["spec"][side].as_array().unwrap().clone());
        assert_eq!((ingress.len(), egress.len()), (6, 6));
        assert_eq!(
            egress[0]["to"][0]["podSelector"]["matchExpressions"][0]["values"],
            json!(["3", "4"])
        );
        assert_eq!(egress[5]["to"], json!([{"ipBlock": {"cidr": "22.4.0.0/16"}}]));
        assert_eq!(ingress[0]["ports"].as_array().unwrap().len(), 10);
        assert_eq!(
            ingress[5]["ports"][9],
            json!({"protocol": "TCP", "port": 10_280, "endPort": 10_285})
        );
        assert!(policy(2, &json!({}), &peers, Directions::Ingress)["spec"]["egress"].is_null());
    }
}
