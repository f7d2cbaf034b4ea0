//! A policy of the whole cluster: a ClusterNetworkPolicy (v1alpha2), or an AdminNetworkPolicy or
//! BaselineAdminNetworkPolicy (v1alpha1), which are read as one. Knows no other object.
//!
//! What cannot be used fails closed, as the API reference of `policy.networking.k8s.io` has it, and the first
//! such value is named: a rule that accepts is left out, and a rule that denies or passes denies all. A policy
//! that does not tell its pods, its tier or its priority has no effect.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::ClusterPolicyKind;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubeapi::services::Protocol;
use serde::Deserialize;

use super::{
    conditions::Condition,
    policy::{Block, Direction, Number, Peer, PodPeer, Port, net, shown},
    selector::{Selector, SelectorError},
};

/// The largest number of a priority, which comes last.
const LAST_PRIORITY: u16 = 1000;
/// The priority of a BaselineAdminNetworkPolicy, which has none: behind all policies with one.
const BEHIND_ALL: u16 = LAST_PRIORITY + 1;

/// A policy of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPolicy {
    pub uid: Arc<str>,
    /// `metadata.generation`
    pub generation: i64,
    /// None if it has no effect.
    pub effect: Option<Box<Effect>>,
    /// The first of its values that cannot be used.
    pub unusable: Option<Box<Unusable>>,
    /// What its status says of zones.
    pub conditions: Box<[Condition]>,
}

/// What a policy does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    pub tier: PolicyTier,
    /// Within the tier, lower numbers come first.
    pub priority: u16,
    /// The pods that it is about.
    pub subject: PodPeer,
    pub ingress: Box<[ClusterRule]>,
    pub egress: Box<[ClusterRule]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyTier {
    /// Before NetworkPolicies.
    Admin,
    /// Behind them, for pods that none isolates.
    Baseline,
}

/// What is done with connections. The first rule that fits decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRule {
    pub action: RuleAction,
    /// None: everything.
    pub peers: Option<Box<[Peer]>>,
    /// None: all ports of all protocols.
    pub ports: Option<BTreeSet<Port>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    Accept,
    Deny,
    /// The next tier decides.
    Pass,
}

/// A value of a policy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("its spec cannot be read ({0}); the policy has no effect")]
    Spec(Box<str>),
    #[error("its tier {0:?} is unknown; the policy has no effect")]
    Tier(Box<str>),
    #[error("its priority {0} is not in 0 to {LAST_PRIORITY}; the policy has no effect")]
    Priority(i64),
    #[error("its subject needs either namespaces or pods; the policy has no effect")]
    Subject,
    #[error("the selector of its subject cannot be used ({0}); the policy has no effect")]
    SubjectSelector(SelectorError),
    #[error("its {place} rule {rule} has the action {value:?}, which is unknown; it denies all")]
    Action { place: Direction, rule: usize, value: Box<str> },
    #[error("its {place} rule {rule} {what}; {}", closed(*action))]
    Rule { place: Direction, rule: usize, action: RuleAction, what: What },
    #[error(
        "its {place} rules change their action more than {most} times; the policy has no effect: \
         divide it into several"
    )]
    TooManyChanges { place: Direction, most: usize },
}

/// A part of a rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum What {
    #[error("has no peers")]
    NoPeers,
    #[error("has a peer of {0:?}, which is not supported in this place")]
    Peer(Box<str>),
    #[error("has a selector that cannot be used ({0})")]
    Selector(SelectorError),
    #[error("has the network {0:?}, which is none")]
    Network(Box<str>),
    #[error("has a port or protocol that cannot be used: {0}")]
    Port(Box<str>),
}

fn closed(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Accept => "the rule is left out",
        RuleAction::Deny | RuleAction::Pass => "the rule denies all",
    }
}

impl Unusable {
    /// One word for an event's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Spec(_) => "UnreadableSpec",
            Self::Tier(_) => "UnknownTier",
            Self::Priority(_) => "UnusablePriority",
            Self::Subject => "NoSubject",
            Self::SubjectSelector(_) => "UnusableSelector",
            Self::Action { .. } => "UnknownAction",
            Self::Rule { what: What::Selector(_), .. } => "UnusableSelector",
            Self::Rule { what: What::NoPeers | What::Peer(_), .. } => "UnusablePeer",
            Self::Rule { what: What::Network(_), .. } => "NoNetwork",
            Self::Rule { what: What::Port(_), .. } => "NoPort",
            Self::TooManyChanges { .. } => "TooManyChanges",
        }
    }
}

impl ClusterPolicy {
    /// The policy of this kind with this specification.
    pub fn new(kind: ClusterPolicyKind, uid: &str, generation: i64, spec: serde_json::Value) -> Self {
        let mut reader = Reader { unusable: None };
        let effect = serde_json::from_value::<Spec>(spec)
            .map_err(|error| Unusable::Spec(shown(&error.to_string())))
            .and_then(|spec| reader.effect(kind, spec));
        let (effect, unusable) = match effect {
            Ok(effect) => (Some(Box::new(effect)), reader.unusable),
            Err(why) => (None, Some(Box::new(why))),
        };
        Self { uid: uid.into(), generation, effect, unusable, conditions: [].into() }
    }

    /// The policy with these conditions in its status.
    #[must_use]
    pub fn with_conditions(mut self, conditions: Box<[Condition]>) -> Self {
        self.conditions = conditions;
        self
    }

    /// Whether nothing but the status differs.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self { uid, generation, effect, unusable, conditions: _ } = self;
        (uid, generation, effect, unusable) == (&other.uid, &other.generation, &other.effect, &other.unusable)
    }

    pub fn rules(&self, direction: Direction) -> &[ClusterRule] {
        self.effect.as_ref().map_or(&[], |effect| effect.rules(direction))
    }

    /// The peers of all rules.
    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.all_rules().filter_map(|rule| rule.peers.as_deref()).flatten()
    }

    /// The names of ports in all rules.
    pub(super) fn port_names(&self) -> impl Iterator<Item = (&Arc<str>, Protocol)> {
        self.all_rules().filter_map(|rule| rule.ports.as_ref()).flatten().filter_map(Port::name)
    }

    fn all_rules(&self) -> impl Iterator<Item = &ClusterRule> {
        Direction::ALL.into_iter().flat_map(|direction| self.rules(direction))
    }
}

impl Effect {
    pub fn rules(&self, direction: Direction) -> &[ClusterRule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    /// The rules of a direction with their levels. Among neighbours with one action the order has no effect, so
    /// that they share a level.
    pub fn levels(&self, direction: Direction) -> impl Iterator<Item = (usize, &ClusterRule)> {
        let mut level = 0;
        let mut before = None;
        self.rules(direction).iter().map(move |rule| {
            level += usize::from(before.is_some_and(|before| before != rule.action));
            before = Some(rule.action);
            (level, rule)
        })
    }

    /// The number of its levels, of the direction with more of them.
    pub fn depth(&self) -> usize {
        let last = |direction| self.levels(direction).last().map_or(0, |(level, _)| level + 1);
        Direction::ALL.map(last).into_iter().max().unwrap_or_default()
    }

    /// Whether it leaves connections to the tier behind it, which only the tier before NetworkPolicies does:
    /// behind the last tier everything is allowed.
    pub fn passes(&self) -> bool {
        let mut rules = self.ingress.iter().chain(&self.egress);
        self.tier == PolicyTier::Admin && rules.any(|rule| rule.action == RuleAction::Pass)
    }
}

/// Levels of a policy. With one more, the priorities of ACLs would not be enough for 1001 policies with so
/// many levels, beside those of NetworkPolicies.
pub const MOST_LEVELS: usize = 31;

/// `spec` of all three kinds.
#[derive(Debug, Deserialize)]
struct Spec {
    tier: Option<String>,
    priority: Option<i64>,
    subject: Option<SubjectSpec>,
    #[serde(default)]
    ingress: Option<Vec<RuleSpec>>,
    #[serde(default)]
    egress: Option<Vec<RuleSpec>>,
}

#[derive(Debug, Deserialize)]
struct SubjectSpec {
    namespaces: Option<LabelSelector>,
    pods: Option<PodsSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodsSpec {
    namespace_selector: LabelSelector,
    pod_selector: LabelSelector,
}

#[derive(Debug, Deserialize)]
struct RuleSpec {
    #[serde(default)]
    action: String,
    from: Option<Vec<PeerSpec>>,
    to: Option<Vec<PeerSpec>>,
    /// Of v1alpha2.
    protocols: Option<Vec<serde_json::Value>>,
    /// Of v1alpha1.
    ports: Option<Vec<serde_json::Value>>,
}

/// A peer with fields of any kind: one that this program does not know is found, too.
type PeerSpec = serde_json::Map<String, serde_json::Value>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum ProtocolSpec {
    Tcp(PortOf),
    Udp(PortOf),
    Sctp(PortOf),
    DestinationNamedPort(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PortOf {
    destination_port: Option<NumberSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum NumberSpec {
    Number(i64),
    Range { start: i64, end: i64 },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum PortSpec {
    PortNumber { protocol: Option<String>, port: i64 },
    PortRange { protocol: Option<String>, start: i64, end: i64 },
    NamedPort(String),
}

/// Reads the parts of one policy.
struct Reader {
    unusable: Option<Box<Unusable>>,
}

impl Reader {
    fn effect(&mut self, kind: ClusterPolicyKind, spec: Spec) -> Result<Effect, Unusable> {
        let Spec { tier, priority, subject, ingress, egress } = spec;
        let priority = || {
            let number = priority.unwrap_or(-1);
            let read = u16::try_from(number).ok().filter(|number| *number <= LAST_PRIORITY);
            read.ok_or(Unusable::Priority(number))
        };
        let (tier, priority) = match kind {
            ClusterPolicyKind::AdminNetworkPolicy => (PolicyTier::Admin, priority()?),
            ClusterPolicyKind::BaselineAdminNetworkPolicy => (PolicyTier::Baseline, BEHIND_ALL),
            ClusterPolicyKind::ClusterNetworkPolicy => match tier.as_deref().unwrap_or_default() {
                "Admin" => (PolicyTier::Admin, priority()?),
                "Baseline" => (PolicyTier::Baseline, priority()?),
                unknown => return Err(Unusable::Tier(shown(unknown))),
            },
        };
        let subject = match subject {
            Some(SubjectSpec { namespaces: Some(namespaces), pods: None }) => {
                of_namespaces(&namespaces, &LabelSelector::default())
            }
            Some(SubjectSpec { namespaces: None, pods: Some(pods) }) => {
                of_namespaces(&pods.namespace_selector, &pods.pod_selector)
            }
            Some(SubjectSpec { .. }) | None => return Err(Unusable::Subject),
        };
        let subject = subject.map_err(Unusable::SubjectSelector)?;
        let ingress = self.rules(Direction::Ingress, kind, ingress.unwrap_or_default());
        let egress = self.rules(Direction::Egress, kind, egress.unwrap_or_default());
        let effect = Effect { tier, priority, subject, ingress, egress };
        for place in Direction::ALL {
            if effect.levels(place).any(|(level, _)| level >= MOST_LEVELS) {
                return Err(Unusable::TooManyChanges { place, most: MOST_LEVELS - 1 });
            }
        }
        Ok(effect)
    }

    fn rules(
        &mut self,
        place: Direction,
        kind: ClusterPolicyKind,
        rules: Vec<RuleSpec>,
    ) -> Box<[ClusterRule]> {
        let rules = rules.into_iter().enumerate();
        rules.filter_map(|(number, rule)| self.rule(place, number, kind, rule)).collect()
    }

    fn rule(
        &mut self,
        place: Direction,
        rule: usize,
        kind: ClusterPolicyKind,
        spec: RuleSpec,
    ) -> Option<ClusterRule> {
        const DENY_ALL: ClusterRule = ClusterRule { action: RuleAction::Deny, peers: None, ports: None };
        let RuleSpec { action, from, to, protocols, ports } = spec;
        let action = match (action.as_str(), kind) {
            ("Accept", ClusterPolicyKind::ClusterNetworkPolicy) => RuleAction::Accept,
            (
                "Allow",
                ClusterPolicyKind::AdminNetworkPolicy | ClusterPolicyKind::BaselineAdminNetworkPolicy,
            ) => RuleAction::Accept,
            ("Deny", _) => RuleAction::Deny,
            ("Pass", ClusterPolicyKind::ClusterNetworkPolicy | ClusterPolicyKind::AdminNetworkPolicy) => {
                RuleAction::Pass
            }
            (unknown, _) => {
                self.unusable(Unusable::Action { place, rule, value: shown(unknown) });
                return Some(DENY_ALL);
            }
        };
        let peers = match place {
            Direction::Ingress => from,
            Direction::Egress => to,
        };
        let ports = match kind {
            ClusterPolicyKind::ClusterNetworkPolicy => read_ports(protocols, of_protocol),
            ClusterPolicyKind::AdminNetworkPolicy | ClusterPolicyKind::BaselineAdminNetworkPolicy => {
                read_ports(ports, of_port)
            }
        };
        match (read_peers(place, peers.unwrap_or_default()), ports) {
            (Ok(peers), Ok(ports)) => Some(ClusterRule { action, peers: Some(peers), ports }),
            (Err(what), _) | (_, Err(what)) => {
                self.unusable(Unusable::Rule { place, rule, action, what });
                match action {
                    RuleAction::Accept => None,
                    RuleAction::Deny | RuleAction::Pass => Some(DENY_ALL),
                }
            }
        }
    }

    fn unusable(&mut self, what: Unusable) {
        self.unusable.get_or_insert_with(|| Box::new(what));
    }
}

fn of_namespaces(namespaces: &LabelSelector, pods: &LabelSelector) -> Result<PodPeer, SelectorError> {
    PodPeer::new("", Some(namespaces), pods)
}

fn read_peers(place: Direction, peers: Vec<PeerSpec>) -> Result<Box<[Peer]>, What> {
    if peers.is_empty() {
        return Err(What::NoPeers);
    }
    let mut read = Vec::new();
    for peer in peers {
        // Exactly one field must be there.
        let named = || shown(&peer.keys().cloned().collect::<Vec<_>>().join(" "));
        let only = || if peer.len() == 1 { peer.iter().next() } else { None };
        let Some((field, value)) = only() else { return Err(What::Peer(named())) };
        let unreadable = |_| What::Peer(named());
        match (field.as_str(), place) {
            ("namespaces", _) => {
                let selector: LabelSelector = serde_json::from_value(value.clone()).map_err(unreadable)?;
                let peer = of_namespaces(&selector, &LabelSelector::default()).map_err(What::Selector)?;
                read.push(Peer::Pods(peer));
            }
            ("pods", _) => {
                let pods: PodsSpec = serde_json::from_value(value.clone()).map_err(unreadable)?;
                let peer = of_namespaces(&pods.namespace_selector, &pods.pod_selector);
                read.push(Peer::Pods(peer.map_err(What::Selector)?));
            }
            ("networks", Direction::Egress) => {
                let nets: Vec<String> = serde_json::from_value(value.clone()).map_err(unreadable)?;
                if nets.is_empty() {
                    return Err(What::Peer(named()));
                }
                for text in nets {
                    let net: IpNet = net(&text).ok_or_else(|| What::Network(shown(&text)))?;
                    read.push(Peer::Block(Block { net, except: [].into() }));
                }
            }
            _ => return Err(What::Peer(named())),
        }
    }
    Ok(read.into())
}

fn read_ports(
    specs: Option<Vec<serde_json::Value>>,
    read: fn(serde_json::Value) -> Option<Vec<Port>>,
) -> Result<Option<BTreeSet<Port>>, What> {
    // An empty list is as none.
    let Some(specs) = specs.filter(|specs| !specs.is_empty()) else { return Ok(None) };
    let mut ports = BTreeSet::new();
    for spec in specs {
        let text = spec.to_string();
        ports.extend(read(spec).ok_or_else(|| What::Port(shown(&text)))?);
    }
    Ok(Some(ports))
}

fn range(protocol: Protocol, first: i64, last: i64) -> Option<Vec<Port>> {
    let number = |value: i64| u16::try_from(value).ok().filter(|number| *number > 0);
    let (first, last) = number(first).zip(number(last)).filter(|(first, last)| first <= last)?;
    Some(vec![Port { protocol, number: Number::Range(first, last) }])
}

/// A name stands for a port of any protocol.
fn named(name: &str) -> Option<Vec<Port>> {
    let port = |protocol| Port { protocol, number: Number::Named(name.into()) };
    (!name.is_empty()).then(|| Protocol::ALL.into_iter().map(port).collect())
}

fn of_protocol(spec: serde_json::Value) -> Option<Vec<Port>> {
    let (protocol, PortOf { destination_port }) = match serde_json::from_value(spec).ok()? {
        ProtocolSpec::Tcp(port) => (Protocol::Tcp, port),
        ProtocolSpec::Udp(port) => (Protocol::Udp, port),
        ProtocolSpec::Sctp(port) => (Protocol::Sctp, port),
        ProtocolSpec::DestinationNamedPort(name) => return named(&name),
    };
    match destination_port {
        None => Some(vec![Port { protocol, number: Number::All }]),
        Some(NumberSpec::Number(number)) => range(protocol, number, number),
        Some(NumberSpec::Range { start, end }) => range(protocol, start, end),
    }
}

fn of_port(spec: serde_json::Value) -> Option<Vec<Port>> {
    let of = |protocol: Option<String>| {
        let name = protocol.as_deref().unwrap_or(Protocol::Tcp.as_str());
        Protocol::ALL.into_iter().find(|known| known.as_str() == name)
    };
    match serde_json::from_value(spec).ok()? {
        PortSpec::PortNumber { protocol, port } => range(of(protocol)?, port, port),
        PortSpec::PortRange { protocol, start, end } => range(of(protocol)?, start, end),
        PortSpec::NamedPort(name) => named(&name),
    }
}

impl Peer {
    /// The selector of whole pods' sets; none for others.
    pub(crate) fn pods(&self) -> Option<&PodPeer> {
        match self {
            Self::Pods(peer) => Some(peer),
            Self::Block(_) | Self::Namespaces(_) => None,
        }
    }
}

impl PodPeer {
    /// The selector of its namespaces: of all, if it is limited to none.
    pub(super) fn namespaces(&self) -> Selector {
        self.namespaces.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
