//! A world as API objects.

use std::fmt;

use serde_json::{Value, json};

use super::{
    Cidr, Expression, Labels, NetworkPolicy, Number, Operator, Peer, Pod, Port, Rule, Selector,
    World, cluster,
};
use crate::world::{self, Node};

/// The objects of a world, by kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifests {
    pub namespaces: Vec<Value>,
    pub pods: Vec<Value>,
    pub policies: Vec<Value>,
    pub cluster_policies: Vec<Value>,
}

/// One object a line, as JSON.
impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifests { namespaces, pods, policies, cluster_policies } = self.manifests();
        let mut all = namespaces.iter().chain(&pods).chain(&policies).chain(&cluster_policies);
        all.try_for_each(|object| writeln!(f, "{object}"))
    }
}

impl World {
    /// Its objects, as the API server would deliver them.
    pub fn manifests(&self) -> Manifests {
        let namespace = |namespace: &super::Namespace| {
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace.name, "uid": namespace.name, "labels": labels(&namespace.labels)}})
        };
        Manifests {
            namespaces: self.namespaces.iter().map(namespace).collect(),
            pods: self.pods.iter().map(pod).collect(),
            policies: self.policies.iter().map(policy).collect(),
            cluster_policies: self.cluster_policies.iter().map(cluster::manifest).collect(),
        }
    }

    /// The nodes of its pods.
    pub fn nodes(&self) -> Vec<Node> {
        let mut numbers: Vec<u8> = self.pods.iter().map(|pod| pod.node).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| Node { number, zone: None }).collect()
    }
}

fn labels(labels: &Labels) -> Value {
    labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn pod(pod: &Pod) -> Value {
    let node = Node { number: pod.node, zone: None };
    let lengths = ["24", "64"];
    let addresses: Vec<String> = [false, true]
        .into_iter()
        .zip(lengths)
        .map(|(is_ipv6, length)| format!("{}/{length}", pod.address(is_ipv6)))
        .collect();
    let network =
        json!({"default": {"mac_address": node.mac(pod.host), "ip_addresses": addresses}});
    let ports = pod.ports.iter().map(
        |port| json!({"name": port.name, "containerPort": port.number, "protocol": port.protocol.name()}),
    );
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": world::Pod { node: pod.node, host: pod.host }.uid(),
            "labels": labels(&pod.labels),
            "annotations": {"k8s.ovn.org/pod-networks": network.to_string()},
        },
        "spec": {"nodeName": node.name(), "containers": [{"name": "main", "ports": ports.collect::<Vec<_>>()}]},
        "status": {"phase": "Running"},
    })
}

fn policy(policy: &NetworkPolicy) -> Value {
    let types: Vec<&str> = policy.policy_types.iter().map(|direction| direction.name()).collect();
    let mut spec = json!({
        "podSelector": selector(&policy.pod_selector),
        "ingress": policy.ingress.iter().map(|of| rule(of, "from")).collect::<Vec<_>>(),
        "egress": policy.egress.iter().map(|of| rule(of, "to")).collect::<Vec<_>>(),
    });
    if !types.is_empty() {
        spec["policyTypes"] = json!(types);
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": policy.namespace, "name": policy.name, "uid": policy.name},
        "spec": spec,
    })
}

fn rule(Rule { peers, ports }: &Rule, side: &str) -> Value {
    json!({side: peers.iter().map(peer).collect::<Vec<_>>(), "ports": ports.iter().map(port).collect::<Vec<_>>()})
}

fn peer(peer: &Peer) -> Value {
    match peer {
        Peer::Selectors { namespaces, pods } => {
            let selector = |of: &Option<Selector>| of.as_ref().map(selector);
            json!({"namespaceSelector": selector(namespaces), "podSelector": selector(pods)})
        }
        Peer::Block { cidr, except } => {
            let text = |Cidr(address, length): &Cidr| format!("{address}/{length}");
            json!({"ipBlock": {"cidr": text(cidr), "except": except.iter().map(text).collect::<Vec<_>>()}})
        }
    }
}

fn port(Port { protocol, number }: &Port) -> Value {
    let (port, end) = match number {
        None => (Value::Null, None),
        Some(Number::Of(number)) => (json!(number), None),
        Some(Number::Range(first, last)) => (json!(first), Some(last)),
        Some(Number::Named(name)) => (json!(name), None),
    };
    json!({"protocol": protocol.map(|protocol| protocol.name()), "port": port, "endPort": end})
}

pub(super) fn selector(Selector { match_labels, match_expressions }: &Selector) -> Value {
    let expressions = match_expressions.iter().map(|Expression { key, operator, values }| {
        let operator = match operator {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
        };
        json!({"key": key, "operator": operator, "values": values})
    });
    json!({"matchLabels": labels(match_labels), "matchExpressions": expressions.collect::<Vec<_>>()})
}
