//! Policies of the whole cluster, in the tiers before and behind NetworkPolicies: ClusterNetworkPolicy
//! (v1alpha2), and AdminNetworkPolicy and BaselineAdminNetworkPolicy (v1alpha1) of
//! `policy.networking.k8s.io`.

use serde_json::{Value, json};

use super::{Cidr, Direction, End, Pod, Selector, World, manifest::selector, verdict::Place};
use crate::world::Protocol;

#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPolicy {
    pub kind: Kind,
    pub name: String,
    /// Namespaces and pods.
    pub subject: (Selector, Option<Selector>),
    pub ingress: Vec<ClusterRule>,
    pub egress: Vec<ClusterRule>,
}

/// The kind, with the priority if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    ClusterNetworkPolicy(Tier, u16),
    AdminNetworkPolicy(u16),
    BaselineAdminNetworkPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Admin,
    Baseline,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClusterRule {
    pub action: Action,
    /// `from` or `to`.
    pub peers: Vec<ClusterPeer>,
    pub ports: Vec<ClusterPort>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Accept,
    Deny,
    Pass,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ClusterPeer {
    Namespaces(Selector),
    Pods(Selector, Selector),
    /// Of egress rules.
    Networks(Vec<Cidr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterPort {
    Range(Protocol, u16, u16),
    Named(&'static str),
}

impl Kind {
    pub fn tier(self) -> Tier {
        match self {
            Self::ClusterNetworkPolicy(tier, _) => tier,
            Self::AdminNetworkPolicy(_) => Tier::Admin,
            Self::BaselineAdminNetworkPolicy => Tier::Baseline,
        }
    }

    /// "Policies with lower priority values have higher precedence." A policy without one is the default of
    /// defaults.
    fn place(self) -> u16 {
        match self {
            Self::ClusterNetworkPolicy(_, priority) | Self::AdminNetworkPolicy(priority) => priority,
            Self::BaselineAdminNetworkPolicy => u16::MAX,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ClusterNetworkPolicy(..) => "ClusterNetworkPolicy",
            Self::AdminNetworkPolicy(_) => "AdminNetworkPolicy",
            Self::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
        }
    }

    fn is_v1alpha1(self) -> bool {
        !matches!(self, Self::ClusterNetworkPolicy(..))
    }
}

impl World {
    /// "If Admin tier has made a final decision (Accept or Deny) on a connection, then no further evaluation is
    /// done." None: the tier has made no decision.
    pub(super) fn decision(
        &self,
        tier: Tier,
        direction: Direction,
        pod: &Pod,
        peer: End<'_>,
        server: &Pod,
        place: Place,
    ) -> Option<Action> {
        let mut policies: Vec<&ClusterPolicy> = self.cluster_policies.iter().collect();
        policies.retain(|policy| policy.kind.tier() == tier && self.is_about(policy, pod));
        policies.sort_by_key(|policy| policy.kind.place());
        // "A rule that appears at the top would take the highest precedence."
        let mut rules = policies.into_iter().flat_map(|policy| match direction {
            Direction::Ingress => &policy.ingress,
            Direction::Egress => &policy.egress,
        });
        let first = rules.find(|rule| {
            let has_peer = rule.peers.iter().any(|of| self.is_cluster_peer(of, peer, place.is_ipv6));
            has_peer && (rule.ports.is_empty() || rule.ports.iter().any(|port| port.is_at(server, place)))
        })?;
        // "Pass: skips all further rules in the current tier, and passes evaluation to the next tier."
        (first.action != Action::Pass).then_some(first.action)
    }

    fn is_about(&self, policy: &ClusterPolicy, pod: &Pod) -> bool {
        let (namespaces, pods) = &policy.subject;
        self.is_in(namespaces, pod) && pods.as_ref().is_none_or(|selector| selector.selects(&pod.labels))
    }

    fn is_in(&self, selector: &Selector, pod: &Pod) -> bool {
        let mut own = self.namespaces.iter().filter(|namespace| namespace.name == pod.namespace);
        own.any(|namespace| selector.selects(&namespace.labels))
    }

    fn is_cluster_peer(&self, peer: &ClusterPeer, end: End<'_>, is_ipv6: bool) -> bool {
        match (peer, end) {
            (ClusterPeer::Networks(nets), end) => nets.iter().any(|net| net.contains(end.address(is_ipv6))),
            (ClusterPeer::Namespaces(namespaces), End::Pod(pod)) => self.is_in(namespaces, pod),
            (ClusterPeer::Pods(namespaces, pods), End::Pod(pod)) => {
                self.is_in(namespaces, pod) && pods.selects(&pod.labels)
            }
            (ClusterPeer::Namespaces(_) | ClusterPeer::Pods(..), End::Node(_)) => false,
        }
    }
}

impl ClusterPort {
    fn is_at(self, server: &Pod, Place { protocol, port, .. }: Place) -> bool {
        match self {
            Self::Range(own, first, last) => own == protocol && (first..=last).contains(&port),
            // A name stands for a port of any protocol.
            Self::Named(name) => {
                server.ports.iter().any(|of| of.name == name && of.protocol == protocol && of.number == port)
            }
        }
    }
}

impl ClusterPolicy {
    /// As the API server would deliver it.
    pub fn manifest(&self) -> Value {
        let Self { kind, name, subject: (namespaces, pods), ingress, egress } = self;
        let subject = match pods {
            None => json!({"namespaces": selector(namespaces)}),
            Some(pods) => json!({"pods": pods_of(namespaces, pods)}),
        };
        let rules = |rules: &[ClusterRule], side| {
            rules.iter().map(|rule| rule.manifest(*kind, side)).collect::<Vec<_>>()
        };
        let mut spec =
            json!({"subject": subject, "ingress": rules(ingress, "from"), "egress": rules(egress, "to")});
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
}

impl ClusterRule {
    fn manifest(&self, kind: Kind, side: &str) -> Value {
        let Self { action, peers, ports } = self;
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
        });
        let mut rule = json!({"action": action, side: peers.collect::<Vec<_>>()});
        if !ports.is_empty() {
            let (field, port): (_, fn(&ClusterPort) -> Value) =
                if kind.is_v1alpha1() { ("ports", v1alpha1) } else { ("protocols", v1alpha2) };
            rule[field] = ports.iter().map(port).collect();
        }
        rule
    }
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
