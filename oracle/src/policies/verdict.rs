//! Who may connect to whom. Each function is a sentence of the API reference (`NetworkPolicySpec`,
//! `NetworkPolicyPeer`, `NetworkPolicyPort`, `LabelSelector`).

use std::net::IpAddr;

use super::{
    Cidr, Direction, End, Expression, Labels, NetworkPolicy, Number, Operator, Peer, Pod, Port, Rule,
    Selector, World,
    cluster::{Action, Tier},
};
use crate::world::Protocol;

/// Where a connection leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub is_ipv6: bool,
    pub protocol: Protocol,
    pub port: u16,
}

impl World {
    /// Whether `client` may connect to the pod: its own policies allow it to leave, and the pod's policies
    /// allow it to come in.
    pub fn allows(&self, client: End<'_>, server: &Pod, place: Place) -> bool {
        let leaves = match client {
            End::Pod(pod) => self.allows_in(Direction::Egress, pod, End::Pod(server), server, place),
            End::Node(_) => true,
        };
        // "if the traffic source is the pod's local node"
        let is_own_node = client == End::Node(server.node);
        leaves && (is_own_node || self.allows_in(Direction::Ingress, server, client, server, place))
    }

    /// The tiers in their order: "v1.NetworkPolicy always makes a final decision for selected pods." "If a given
    /// connection wasn't allowed or denied by any of the tiers", all pods can communicate.
    fn allows_in(&self, direction: Direction, pod: &Pod, peer: End<'_>, server: &Pod, place: Place) -> bool {
        let tier = |tier| self.decision(tier, direction, pod, peer, server, place);
        let decision = tier(Tier::Admin).map(|action| action == Action::Accept);
        let decision = decision.or_else(|| self.policies_allow(direction, pod, peer, server, place));
        decision.unwrap_or_else(|| tier(Tier::Baseline) != Some(Action::Deny))
    }

    /// None: no NetworkPolicy selects the pod.
    ///
    /// "Traffic is allowed if there are no NetworkPolicies selecting the pod, or if the traffic matches at
    /// least one rule across all of the NetworkPolicy objects whose podSelector matches the pod."
    fn policies_allow(
        &self,
        direction: Direction,
        pod: &Pod,
        peer: End<'_>,
        server: &Pod,
        place: Place,
    ) -> Option<bool> {
        let selecting = || {
            self.policies.iter().filter(|policy| {
                policy.namespace == pod.namespace
                    && policy.pod_selector.selects(&pod.labels)
                    && policy.affects(direction)
            })
        };
        let rules =
            || selecting().flat_map(|policy| policy.rules(direction).iter().map(move |rule| (policy, rule)));
        selecting().next()?;
        Some(rules().any(|(policy, rule)| {
            self.has_peer(policy, rule, peer, place.is_ipv6) && rule.has_port(server, place)
        }))
    }

    /// "If this field is empty or missing, this rule matches all."
    fn has_peer(&self, policy: &NetworkPolicy, rule: &Rule, end: End<'_>, is_ipv6: bool) -> bool {
        rule.peers.is_empty() || rule.peers.iter().any(|peer| self.is_peer(policy, peer, end, is_ipv6))
    }

    fn is_peer(&self, policy: &NetworkPolicy, peer: &Peer, end: End<'_>, is_ipv6: bool) -> bool {
        match (peer, end) {
            (Peer::Block { cidr, except }, end) => {
                let address = end.address(is_ipv6);
                cidr.contains(address) && !except.iter().any(|except| except.contains(address))
            }
            (Peer::Selectors { namespaces, pods }, End::Pod(pod)) => {
                let in_namespace = match namespaces {
                    Some(selector) => self.namespaces.iter().any(|namespace| {
                        namespace.name == pod.namespace && selector.selects(&namespace.labels)
                    }),
                    None => pod.namespace == policy.namespace,
                };
                in_namespace && pods.as_ref().is_none_or(|selector| selector.selects(&pod.labels))
            }
            (Peer::Selectors { .. }, End::Node(_)) => false,
        }
    }
}

impl NetworkPolicy {
    /// "If this field is not specified, it will default based on the existence of ingress or egress rules;
    /// policies that contain an egress section are assumed to affect egress, and all policies are assumed to
    /// affect ingress."
    fn affects(&self, direction: Direction) -> bool {
        if !self.policy_types.is_empty() {
            return self.policy_types.contains(&direction);
        }
        match direction {
            Direction::Ingress => true,
            Direction::Egress => !self.egress.is_empty(),
        }
    }

    fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

impl Rule {
    /// "If this field is empty or missing, this rule matches all ports."
    fn has_port(&self, server: &Pod, place: Place) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|port| port.is_at(server, place))
    }
}

impl Port {
    /// "This can either be a numerical or named port on a pod. If this field is not provided, this matches all
    /// port names and numbers. If present, only traffic on the specified protocol AND port will be matched."
    fn is_at(&self, server: &Pod, Place { protocol, port, .. }: Place) -> bool {
        let own = self.protocol.unwrap_or(Protocol::Tcp);
        let is_number = match self.number {
            None => true,
            Some(Number::Of(number)) => number == port,
            Some(Number::Range(first, last)) => (first..=last).contains(&port),
            Some(Number::Named(name)) => {
                server.ports.iter().any(|of| of.name == name && of.protocol == own && of.number == port)
            }
        };
        own == protocol && is_number
    }
}

impl Selector {
    /// "The result of matchLabels and matchExpressions are ANDed. An empty label selector matches all objects."
    pub fn selects(&self, labels: &Labels) -> bool {
        let value = |key: &str| labels.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        self.match_labels.iter().all(|(key, wanted)| value(key) == Some(*wanted))
            && self.match_expressions.iter().all(|Expression { key, operator, values }| {
                let is_one = value(key).is_some_and(|value| values.contains(&value));
                match operator {
                    Operator::In => is_one,
                    Operator::NotIn => !is_one,
                    Operator::Exists => value(key).is_some(),
                    Operator::DoesNotExist => value(key).is_none(),
                }
            })
    }
}

impl Cidr {
    pub(super) fn contains(self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 4),
            IpAddr::V6(v6) => (u128::from(v6), 6),
        };
        let ((own, of), (other, family)) = (bits(self.0), bits(address));
        let mask = u128::MAX.checked_shl(128 - u32::from(self.1)).unwrap_or(0);
        of == family && own & mask == other & mask
    }
}
