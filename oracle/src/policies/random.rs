//! Worlds for property tests: small, and full of what is rare in real clusters. They shrink towards
//! fewer policies with fewer rules.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{
    Cidr, ContainerPort, Direction, Expression, Labels, Namespace, NetworkPolicy, Number, Operator,
    Peer, Pod, Port, Rule, Selector, World,
    cluster::{Action, ClusterPeer, ClusterPolicy, ClusterPort, ClusterRule, Kind, Tier},
};
use crate::world::{FIRST_POD, Protocol, text_address};

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const PODS: u8 = 9;
const NODES: u8 = 2;
const MOST_POLICIES: usize = 20;
const KEYS: [&str; 2] = ["app", "tier"];
const VALUES: [&str; 2] = ["a", "b"];

/// Three namespaces, nine pods on two nodes, and up to twenty policies.
pub fn world() -> impl Strategy<Value = World> {
    (vec(labels(), 3), vec(pod(), usize::from(PODS)), vec(policy(), 0..=MOST_POLICIES)).prop_map(
        |(namespaces, pods, policies)| {
            let namespaces = NAMESPACES.into_iter().zip(namespaces);
            let pods = (0..PODS).zip(pods).map(|(number, (labels, ports))| Pod {
                namespace: NAMESPACES[usize::from(number % 3)],
                name: format!("p{number}"),
                node: 1 + number % NODES,
                host: FIRST_POD + number / NODES,
                labels,
                ports,
            });
            let policies = policies.into_iter().enumerate();
            World {
                namespaces: namespaces.map(|(name, labels)| Namespace { name, labels }).collect(),
                pods: pods.collect(),
                policies: policies
                    .map(|(number, policy)| NetworkPolicy {
                        name: format!("policy{number}"),
                        ..policy
                    })
                    .collect(),
                cluster_policies: Vec::new(),
            }
        },
    )
}

/// A policy without a name.
pub fn policy() -> impl Strategy<Value = NetworkPolicy> {
    let types = prop_oneof![
        2 => Just(vec![]),
        2 => Just(vec![Direction::Ingress]),
        2 => Just(vec![Direction::Egress]),
        2 => Just(vec![Direction::Ingress, Direction::Egress]),
    ];
    (select(&NAMESPACES[..]), selector(), types, vec(rule(), 0..=2), vec(rule(), 0..=2)).prop_map(
        |(namespace, pod_selector, policy_types, ingress, egress)| NetworkPolicy {
            namespace,
            name: String::new(),
            pod_selector,
            policy_types,
            ingress,
            egress,
        },
    )
}

pub fn labels() -> impl Strategy<Value = Labels> {
    let value = || option::weighted(0.8, select(&VALUES[..]));
    (value(), value()).prop_map(|(app, tier)| {
        KEYS.into_iter().zip([app, tier]).filter_map(|(key, value)| Some((key, value?))).collect()
    })
}

fn pod() -> impl Strategy<Value = (Labels, Vec<ContainerPort>)> {
    let number = select(vec![80_u16, 8080]);
    let web = option::weighted(0.8, number.clone().prop_map(|number| (Protocol::Tcp, number)));
    // One name for two protocols.
    let dns = option::weighted(0.5, number.prop_map(|number| (Protocol::Udp, number)));
    (labels(), web, dns).prop_map(|(labels, web, dns)| {
        let ports = [web, dns].into_iter().flatten();
        (
            labels,
            ports
                .map(|(protocol, number)| ContainerPort { name: "web", protocol, number })
                .collect(),
        )
    })
}

fn selector() -> impl Strategy<Value = Selector> {
    let pair = (select(&KEYS[..]), select(&VALUES[..]));
    let expression = prop_oneof![
        (select(&KEYS[..]), vec(select(&VALUES[..]), 1..=2)).prop_map(|(key, values)| (
            key,
            Operator::In,
            values
        )),
        (select(&KEYS[..]), vec(select(&VALUES[..]), 1..=2)).prop_map(|(key, values)| (
            key,
            Operator::NotIn,
            values
        )),
        select(&KEYS[..]).prop_map(|key| (key, Operator::Exists, vec![])),
        select(&KEYS[..]).prop_map(|key| (key, Operator::DoesNotExist, vec![])),
    ];
    let expression =
        expression.prop_map(|(key, operator, values)| Expression { key, operator, values });
    prop_oneof![
        2 => Just((vec![], vec![])),
        3 => pair.prop_map(|pair| (vec![pair], vec![])),
        2 => vec(expression, 1..=2).prop_map(|expressions| (vec![], expressions)),
    ]
    .prop_map(|(match_labels, match_expressions)| Selector { match_labels, match_expressions })
}

fn rule() -> impl Strategy<Value = Rule> {
    (vec(peer(), 0..=2), vec(port(), 0..=3)).prop_map(|(peers, ports)| Rule { peers, ports })
}

fn peer() -> impl Strategy<Value = Peer> {
    let blocks = vec![
        ("0.0.0.0/0", vec!["10.244.1.0/24"]),
        ("10.244.0.0/16", vec![]),
        ("10.244.1.0/24", vec!["10.244.1.4/32", "10.244.1.6/31"]),
        ("10.244.2.3/32", vec![]),
        ("::/0", vec!["fd00:10:244:2::/64"]),
        ("fd00:10:244:1::/64", vec![]),
        ("192.0.2.0/24", vec![]),
    ];
    prop_oneof![
        selector().prop_map(|pods| Peer::Selectors { namespaces: None, pods: Some(pods) }),
        selector()
            .prop_map(|namespaces| Peer::Selectors { namespaces: Some(namespaces), pods: None }),
        (selector(), selector()).prop_map(|(namespaces, pods)| Peer::Selectors {
            namespaces: Some(namespaces),
            pods: Some(pods)
        }),
        select(blocks).prop_map(|(net, except)| Peer::Block {
            cidr: cidr(net),
            except: except.into_iter().map(cidr).collect()
        }),
    ]
}

fn cidr(text: &str) -> Cidr {
    let (address, length) = text.split_once('/').expect("an address and a length");
    Cidr(text_address(address), length.parse().expect("a length"))
}

fn port() -> impl Strategy<Value = Port> {
    let protocol = option::of(select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp]));
    let number = option::weighted(
        0.8,
        prop_oneof![
            2 => select(vec![80_u16, 8080]).prop_map(Number::Of),
            1 => Just(Number::Range(79, 81)),
            1 => Just(Number::Range(81, 9000)),
            3 => Just(Number::Named("web")),
            1 => Just(Number::Named("nobody")),
        ],
    );
    (protocol, number).prop_map(|(protocol, number)| Port { protocol, number })
}

/// Priorities of policies of the cluster. No two policies of a world have the same one: their order
/// would not be defined.
const PRIORITIES: [u16; 6] = [500, 0, 1000, 1, 999, 37];

/// A world with up to six policies of the whole cluster besides. `passes`: whether the first tier
/// may leave connections to the next one.
pub fn tiered_world(passes: Passes) -> impl Strategy<Value = World> {
    (world(), vec(cluster_policy(passes), 0..=PRIORITIES.len())).prop_map(
        |(mut world, policies)| {
            // Fewer of them, so that pods without any are left for the last tier.
            world.policies.truncate(4);
            let mut has_baseline = false;
            let policies = PRIORITIES.into_iter().zip(policies).map(|(priority, policy)| {
                let kind = match policy.kind {
                    Kind::ClusterNetworkPolicy(tier, _) => {
                        Kind::ClusterNetworkPolicy(tier, priority)
                    }
                    Kind::AdminNetworkPolicy(_) => Kind::AdminNetworkPolicy(priority),
                    // There is one in a cluster.
                    Kind::BaselineAdminNetworkPolicy
                        if std::mem::replace(&mut has_baseline, true) =>
                    {
                        Kind::ClusterNetworkPolicy(Tier::Baseline, priority)
                    }
                    Kind::BaselineAdminNetworkPolicy => Kind::BaselineAdminNetworkPolicy,
                };
                ClusterPolicy { kind, name: format!("cluster{priority}"), ..policy }
            });
            world.cluster_policies = policies.collect();
            world
        },
    )
}

/// Whether rules of the first tier may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    Yes,
    No,
}

/// A policy of the cluster without a name, and of the highest priority.
pub fn cluster_policy(passes: Passes) -> impl Strategy<Value = ClusterPolicy> {
    let kind = select(vec![
        Kind::ClusterNetworkPolicy(Tier::Admin, 0),
        Kind::ClusterNetworkPolicy(Tier::Baseline, 0),
        Kind::AdminNetworkPolicy(0),
        Kind::BaselineAdminNetworkPolicy,
    ]);
    kind.prop_flat_map(move |kind| {
        let actions = match (kind, passes) {
            (Kind::BaselineAdminNetworkPolicy, _) => vec![Action::Accept, Action::Deny],
            (_, Passes::No) if kind.tier() == Tier::Admin => vec![Action::Accept, Action::Deny],
            _ => vec![Action::Accept, Action::Deny, Action::Pass],
        };
        let rules = |is_egress| {
            // BaselineAdminNetworkPolicies have no names.
            let has_names = is_egress && kind != Kind::BaselineAdminNetworkPolicy;
            vec(cluster_rule(actions.clone(), is_egress, has_names), 0..=4)
        };
        let subject = (selector(), option::of(selector()));
        (subject, rules(false), rules(true)).prop_map(move |(subject, ingress, egress)| {
            ClusterPolicy { kind, name: String::new(), subject, ingress, egress }
        })
    })
}

fn cluster_rule(
    actions: Vec<Action>,
    is_egress: bool,
    has_names: bool,
) -> impl Strategy<Value = ClusterRule> {
    let nets = vec!["0.0.0.0/0", "10.244.1.0/24", "10.244.2.3/32", "::/0", "fd00:10:244:1::/64"];
    let pods =
        (selector(), selector()).prop_map(|(namespaces, pods)| ClusterPeer::Pods(namespaces, pods));
    let pods = prop_oneof![selector().prop_map(ClusterPeer::Namespaces), pods].boxed();
    let peer = match is_egress {
        false => pods,
        true => {
            let nets = vec(select(nets).prop_map(cidr), 1..=3).prop_map(ClusterPeer::Networks);
            let nodes = option::of(select(vec!["edge", "inner", "none"])).prop_map(|role| {
                let match_labels = role.map(|role| ("role", role)).into_iter().collect();
                ClusterPeer::Nodes(Selector { match_labels, match_expressions: Vec::new() })
            });
            prop_oneof![3 => pods, 1 => nets, 2 => nodes].boxed()
        }
    };
    let named = select(vec![
        "www.example.org",
        "WWW.Example.org",
        "api.example.org",
        "v6.example.org",
        "unknown.example",
    ]);
    let named = vec(named, 1..=2).prop_map(ClusterPeer::DomainNames);
    let accepts =
        if has_names { prop_oneof![2 => peer.clone(), 1 => named].boxed() } else { peer.clone() };
    let protocol = select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
    let range = select(vec![(80_u16, 80_u16), (8080, 8080), (79, 81), (81, 9000), (1, 65535)]);
    let port = prop_oneof![
        2 => (protocol, range).prop_map(|(protocol, (first, last))| ClusterPort::Range(protocol, first, last)),
        1 => Just(ClusterPort::Named("web")),
        1 => Just(ClusterPort::Named("nobody")),
    ];
    (select(actions), vec(port, 0..=3)).prop_flat_map(move |(action, ports)| {
        // Only rules that accept may have names.
        let peers = if action == Action::Accept { accepts.clone() } else { peer.clone() };
        vec(peers, 1..=2).prop_map(move |peers| ClusterRule { action, peers, ports: ports.clone() })
    })
}
