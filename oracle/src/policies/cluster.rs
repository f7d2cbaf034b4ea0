//! Policies of the whole cluster as API objects: ClusterNetworkPolicy (v1alpha2), and
//! AdminNetworkPolicy and BaselineAdminNetworkPolicy (v1alpha1) of `policy.networking.k8s.io`.

use serde_json::{Value, json};

pub use ::verdict::cluster_policy::{Action, Kind, Tier};

use super::{Cidr, Selector, manifest::selector};

pub type ClusterPolicy = ::verdict::ClusterPolicy<'static>;
pub type ClusterRule = ::verdict::cluster_policy::ClusterRule<'static>;
pub type ClusterPeer = ::verdict::cluster_policy::ClusterPeer<'static>;
pub type ClusterPort = ::verdict::cluster_policy::ClusterPort<'static>;

/// As the API server would deliver it.
pub fn manifest(policy: &ClusterPolicy) -> Value {
    let ClusterPolicy { kind, name, subject: (namespaces, pods), ingress, egress } = policy;
    let subject = match pods {
        None => json!({"namespaces": selector(namespaces)}),
        Some(pods) => json!({"pods": pods_of(namespaces, pods)}),
    };
    let rules = |rules: &[ClusterRule], side| {
        rules.iter().map(|of| rule(of, *kind, side)).collect::<Vec<_>>()
    };
    let mut spec = json!({"subject": subject, "ingress": rules(ingress, "from"), "egress": rules(egress, "to")});
    match kind {
        Kind::ClusterNetworkPolicy(tier, priority) => {
            spec["tier"] = json!(format!("{tier:?}"));
            spec["priority"] = json!(priority);
        }
        Kind::AdminNetworkPolicy(priority) => spec["priority"] = json!(priority),
        Kind::BaselineAdminNetworkPolicy => {}
    }
    let version = if kind.is_v1alpha1() { "v1alpha1" } else { "v1alpha2" };
    json!({
        "apiVersion": format!("policy.networking.k8s.io/{version}"),
        "kind": kind.name(),
        "metadata": {"name": name, "uid": name, "generation": 1},
        "spec": spec,
    })
}

fn rule(rule: &ClusterRule, kind: Kind, side: &str) -> Value {
    let ClusterRule { action, peers, ports } = rule;
    let action = match (action, kind.is_v1alpha1()) {
        (Action::Accept, false) => "Accept",
        (Action::Accept, true) => "Allow",
        (Action::Deny, _) => "Deny",
        (Action::Pass, _) => "Pass",
    };
    let peers = peers.iter().map(|peer| match peer {
        ClusterPeer::Namespaces(namespaces) => json!({"namespaces": selector(namespaces)}),
        ClusterPeer::Pods(namespaces, pods) => json!({"pods": pods_of(namespaces, pods)}),
        ClusterPeer::Networks(nets) => {
            let nets = nets.iter().map(|Cidr(address, length)| format!("{address}/{length}"));
            json!({"networks": nets.collect::<Vec<_>>()})
        }
        ClusterPeer::Nodes(nodes) => json!({"nodes": selector(nodes)}),
        ClusterPeer::DomainNames(names) => json!({"domainNames": names}),
    });
    let mut rule = json!({"action": action, side: peers.collect::<Vec<_>>()});
    if !ports.is_empty() {
        let (field, port): (_, fn(&ClusterPort) -> Value) =
            if kind.is_v1alpha1() { ("ports", v1alpha1) } else { ("protocols", v1alpha2) };
        rule[field] = ports.iter().map(port).collect();
    }
    rule
}

fn pods_of(namespaces: &Selector, pods: &Selector) -> Value {
    json!({"namespaceSelector": selector(namespaces), "podSelector": selector(pods)})
}

fn v1alpha1(port: &ClusterPort) -> Value {
    match port {
        ClusterPort::Named(name) => json!({"namedPort": name}),
        ClusterPort::Range(protocol, port, last) if port == last => {
            json!({"portNumber": {"protocol": protocol.name(), "port": port}})
        }
        ClusterPort::Range(protocol, start, end) => {
            json!({"portRange": {"protocol": protocol.name(), "start": start, "end": end}})
        }
    }
}

fn v1alpha2(port: &ClusterPort) -> Value {
    match port {
        ClusterPort::Named(name) => json!({"destinationNamedPort": name}),
        ClusterPort::Range(protocol, start, end) => {
            let port = if start == end {
                json!({"number": start})
            } else {
                json!({"range": {"start": start, "end": end}})
            };
            json!({protocol.name().to_lowercase(): {"destinationPort": port}})
        }
    }
}
