//! The control plane's objects as the model of policies has them. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use contract::names::{ClusterPolicyKey, ClusterPolicyKind, PolicyKey};
use controller::{
    kinds::{
        cluster_policy::object::{ClusterPeer, ClusterPolicy, ClusterRule, PolicyTier, RuleAction},
        egress_firewall::object::{
            Destination, EgressFirewall, FirewallAction, FirewallPort, FirewallRule,
        },
        network_policy::object::{Peer, Policy, Rule, block::Block},
        node::object::Node,
    },
    select::{
        peer::{Direction, Number, Port},
        selector::{Requirement, Selector},
    },
};
use verdict::{
    cluster_policy as of_cluster, egress_firewall as firewall, network_policy as network, selector,
};

pub(super) fn pairs(labels: &BTreeMap<String, String>) -> verdict::Labels<'_> {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

pub(super) fn protocol(protocol: kubeapi::services::Protocol) -> verdict::Protocol {
    match protocol {
        kubeapi::services::Protocol::Tcp => verdict::Protocol::Tcp,
        kubeapi::services::Protocol::Udp => verdict::Protocol::Udp,
        kubeapi::services::Protocol::Sctp => verdict::Protocol::Sctp,
    }
}

pub(super) fn network_policy<'a>(
    key: &'a PolicyKey,
    policy: &'a Policy,
) -> network::NetworkPolicy<'a> {
    let types = [
        (Direction::Ingress, verdict::Direction::Ingress),
        (Direction::Egress, verdict::Direction::Egress),
    ];
    let rules = |direction| policy.rules(direction).into_iter().flatten().map(rule).collect();
    network::NetworkPolicy {
        namespace: key.namespace(),
        name: key.name().to_owned(),
        pod_selector: selector(&policy.pods),
        policy_types: types
            .into_iter()
            .filter(|(direction, _)| policy.rules(*direction).is_some())
            .map(|(_, of_model)| of_model)
            .collect(),
        ingress: rules(Direction::Ingress),
        egress: rules(Direction::Egress),
    }
}

/// Of a list whose elements cannot be used, nothing is left, and it allows nothing; to the model an
/// empty list is as none.
fn rule(Rule { index: _, peers, ports }: &Rule) -> network::Rule<'_> {
    const NOTHING: verdict::Cidr = verdict::Cidr(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let nobody = || network::Peer::Block { cidr: NOTHING, except: vec![NOTHING] };
    let nowhere = || network::Port { protocol: None, number: Some(network::Number::Range(1, 0)) };
    network::Rule {
        peers: match peers.as_deref() {
            None => Vec::new(),
            Some([]) => vec![nobody()],
            Some(peers) => peers.iter().map(peer).collect(),
        },
        ports: match ports {
            None => Vec::new(),
            Some(ports) if ports.is_empty() => vec![nowhere()],
            Some(ports) => ports.iter().map(port).collect(),
        },
    }
}

fn peer(peer: &Peer) -> network::Peer<'_> {
    match peer {
        Peer::Block(Block { net, except }) => {
            network::Peer::Block { cidr: cidr(net), except: except.iter().map(cidr).collect() }
        }
        Peer::Namespaces(namespaces) => {
            network::Peer::Selectors { namespaces: Some(selector(namespaces)), pods: None }
        }
        Peer::Pods(peer) => network::Peer::Selectors {
            namespaces: peer.namespaces.as_ref().map(selector),
            pods: Some(selector(&peer.pods)),
        },
    }
}

fn port(Port { protocol: of, number }: &Port) -> network::Port<'_> {
    let number = match number {
        Number::All => None,
        Number::Range(first, last) => Some(network::Number::Range(*first, *last)),
        Number::Named(name) => Some(network::Number::Named(name)),
    };
    network::Port { protocol: Some(protocol(*of)), number }
}

pub(super) fn cluster_policy<'a>(
    key: &'a ClusterPolicyKey,
    policy: &'a ClusterPolicy,
) -> Option<of_cluster::ClusterPolicy<'a>> {
    let effect = policy.effect.as_deref()?;
    let tier = match effect.tier {
        PolicyTier::Admin => of_cluster::Tier::Admin,
        PolicyTier::Baseline => of_cluster::Tier::Baseline,
    };
    let namespaces = effect.subject.namespaces.as_ref().map_or_else(everything, selector);
    let rules = |direction| effect.rules(direction).iter().map(cluster_rule).collect();
    Some(of_cluster::ClusterPolicy {
        kind: match key.kind {
            ClusterPolicyKind::ClusterNetworkPolicy => {
                of_cluster::Kind::ClusterNetworkPolicy(tier, effect.priority)
            }
            ClusterPolicyKind::AdminNetworkPolicy => {
                of_cluster::Kind::AdminNetworkPolicy(effect.priority)
            }
            ClusterPolicyKind::BaselineAdminNetworkPolicy => {
                of_cluster::Kind::BaselineAdminNetworkPolicy
            }
        },
        name: key.name().to_owned(),
        subject: (namespaces, Some(selector(&effect.subject.pods))),
        ingress: rules(Direction::Ingress),
        egress: rules(Direction::Egress),
    })
}

fn cluster_rule(rule: &ClusterRule) -> of_cluster::ClusterRule<'_> {
    let peers = rule.peers.as_deref().map(|peers| peers.iter().map(cluster_peer).collect());
    let all = |address| verdict::Cidr(address, 0);
    let everyone = || {
        let [v4, v6] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        vec![of_cluster::ClusterPeer::Networks(vec![all(v4), all(v6)])]
    };
    let ports = rule.ports.iter().flatten();
    of_cluster::ClusterRule {
        action: match rule.action {
            RuleAction::Accept => of_cluster::Action::Accept,
            RuleAction::Deny => of_cluster::Action::Deny,
            RuleAction::Pass => of_cluster::Action::Pass,
        },
        peers: peers.unwrap_or_else(everyone),
        ports: ports
            .map(|Port { protocol: of, number }| match number {
                Number::All => of_cluster::ClusterPort::Range(protocol(*of), 0, u16::MAX),
                Number::Range(first, last) => {
                    of_cluster::ClusterPort::Range(protocol(*of), *first, *last)
                }
                Number::Named(name) => of_cluster::ClusterPort::Named(name),
            })
            .collect(),
    }
}

fn cluster_peer(peer: &ClusterPeer) -> of_cluster::ClusterPeer<'_> {
    match peer {
        ClusterPeer::Network(net) => of_cluster::ClusterPeer::Networks(vec![cidr(net)]),
        ClusterPeer::Nodes(peer) => of_cluster::ClusterPeer::Nodes(selector(&peer.nodes)),
        ClusterPeer::Name(name) => of_cluster::ClusterPeer::DomainNames(vec![name]),
        ClusterPeer::Pods(peer) => of_cluster::ClusterPeer::Pods(
            peer.namespaces.as_ref().map_or_else(everything, selector),
            selector(&peer.pods),
        ),
    }
}

pub(super) fn node(node: &Node) -> verdict::Node<'_> {
    verdict::Node { labels: pairs(&node.labels), addresses: node.host_addresses.clone() }
}

pub(super) fn egress_firewall(of: &EgressFirewall) -> firewall::EgressFirewall<'_> {
    firewall::EgressFirewall { rules: of.rules.iter().map(firewall_rule).collect() }
}

fn firewall_rule(
    FirewallRule { index, action, to, ports }: &FirewallRule,
) -> firewall::FirewallRule<'_> {
    let ports = ports.iter().flatten();
    firewall::FirewallRule {
        index: *index,
        action: match action {
            FirewallAction::Allow => firewall::FirewallAction::Allow,
            FirewallAction::Deny => firewall::FirewallAction::Deny,
        },
        to: match to {
            Destination::Anywhere => firewall::Destination::Anywhere,
            Destination::Net(net) => firewall::Destination::Net(cidr(net)),
            Destination::Nodes(of) => firewall::Destination::Nodes(selector(&of.nodes)),
            Destination::Name(name) => firewall::Destination::Name(name),
        },
        ports: ports
            .map(|FirewallPort { protocol: of, number }| (protocol(*of), *number))
            .collect(),
    }
}

fn everything<'a>() -> selector::Selector<'a> {
    selector::Selector { match_labels: Vec::new(), match_expressions: Vec::new() }
}

fn selector(selector: &Selector) -> verdict::Selector<'_> {
    let match_expressions = selector.requirements().map(expression).collect();
    verdict::Selector { match_labels: Vec::new(), match_expressions }
}

fn expression(requirement: &Requirement) -> selector::Expression<'_> {
    let (key, operator, values) = match requirement {
        Requirement::In(key, of) => (key, selector::Operator::In, texts(of)),
        Requirement::NotIn(key, of) => (key, selector::Operator::NotIn, texts(of)),
        Requirement::Exists(key) => (key, selector::Operator::Exists, Vec::new()),
        Requirement::DoesNotExist(key) => (key, selector::Operator::DoesNotExist, Vec::new()),
    };
    selector::Expression { key, operator, values }
}

fn texts(values: &[Box<str>]) -> Vec<&str> {
    values.iter().map(|value| &**value).collect()
}

fn cidr(net: &ipnet::IpNet) -> verdict::Cidr {
    verdict::Cidr(net.addr(), net.prefix_len())
}
