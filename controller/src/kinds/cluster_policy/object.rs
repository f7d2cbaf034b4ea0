//! A policy of the whole cluster: a ClusterNetworkPolicy, or an AdminNetworkPolicy or
//! BaselineAdminNetworkPolicy, which are read as one. Knows no other object.
//!
//! What cannot be used fails closed, as the API reference of `policy.networking.k8s.io` has it, and
//! the first such value is named: a rule that accepts is left out, and a rule that denies or passes
//! denies all. A policy that does not tell its pods, its tier or its priority has no effect.

use std::sync::Arc;

use contract::{
    limits::{CLUSTER_POLICY_BYTES, Exceeded, TOO_LARGE},
    names::ClusterPolicyKind,
};
use ipnet::IpNet;
use kubeapi::services::Protocol;

use crate::{
    frozen::FrozenSet,
    key::SetId,
    kinds::cluster_policy::condition::Condition,
    object::{price::Price, specification::Specification},
    select::{
        names::DnsName,
        node_addresses::NodePeer,
        peer::{Direction, PodPeer, Port, shown},
        selector::{Selector, SelectorError},
    },
};

mod read;

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
    /// Its owner asks when it is in force (`REPORT_APPLIED`).
    pub reports_applied: bool,
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
    pub peers: Option<Box<[ClusterPeer]>>,
    /// None: all ports of all protocols.
    pub ports: Option<FrozenSet<Port>>,
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterPeer {
    Pods(Arc<PodPeer>),
    /// The peers below are those of egress rules.
    Network(IpNet),
    Nodes(NodePeer),
    /// Whatever the DNS has for the name outside of the cluster.
    Name(DnsName),
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
    #[error(transparent)]
    TooLarge(Exceeded),
}

/// A part of a rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum What {
    #[error("cannot be read ({0})")]
    Spec(Box<str>),
    #[error("has no peers")]
    NoPeers,
    #[error("has a peer of {0:?}, which is none in this place")]
    Peer(Box<str>),
    #[error("has a selector that cannot be used ({0})")]
    Selector(SelectorError),
    #[error("has the network {0:?}, which is none")]
    Network(Box<str>),
    #[error("has domainNames, which only rules that accept may have")]
    NamesNotAccepted,
    #[error(
        "has the domain name {0:?}, and the addresses of all names below a domain cannot be asked for"
    )]
    Wildcard(Box<str>),
    #[error("has the domain name {0:?}, which is none")]
    Name(Box<str>),
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
            Self::Rule { what: What::NoPeers | What::Peer(_) | What::NamesNotAccepted, .. } => {
                "UnusablePeer"
            }
            Self::Rule { what: What::Spec(_), .. } => "UnreadableRule",
            Self::Rule { what: What::Wildcard(_), .. } => "Wildcard",
            Self::Rule { what: What::Name(_), .. } => "NoName",
            Self::Rule { what: What::Network(_), .. } => "NoNetwork",
            Self::Rule { what: What::Port(_), .. } => "NoPort",
            Self::TooLarge(_) => TOO_LARGE,
        }
    }
}

impl ClusterPolicy {
    /// The policy of this kind with this specification.
    pub fn new(
        kind: ClusterPolicyKind,
        uid: &str,
        generation: i64,
        spec: impl Into<Specification>,
    ) -> Self {
        let spec = spec.into();
        let is_in_limits = CLUSTER_POLICY_BYTES.check(spec.bytes()).map_err(Unusable::TooLarge);
        let spec = is_in_limits
            .and_then(|()| spec.whole().map_err(|why| Unusable::Spec(shown(&why.to_string()))));
        let (effect, unusable) = match spec.and_then(|spec| read::effect(kind, spec)) {
            Ok((effect, unusable)) => match Price::of_effect(&effect).check_cluster_policy() {
                Ok(()) => (Some(Box::new(effect)), unusable),
                Err(exceeded) => {
                    (Some(Box::new(effect.closed())), Some(Box::new(Unusable::TooLarge(exceeded))))
                }
            },
            Err(why) => (None, Some(Box::new(why))),
        };
        let (uid, conditions) = (uid.into(), [].into());
        Self { uid, generation, effect, unusable, conditions, reports_applied: false }
    }

    /// The policy with these conditions in its status.
    #[must_use]
    pub fn with_conditions(mut self, conditions: Box<[Condition]>) -> Self {
        self.conditions = conditions;
        self
    }

    /// Whether nothing but the status differs.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let Self { uid, generation, effect, unusable, conditions: _, reports_applied: _ } = self;
        (uid, generation, effect, unusable)
            == (&other.uid, &other.generation, &other.effect, &other.unusable)
    }

    pub fn rules(&self, direction: Direction) -> &[ClusterRule] {
        self.effect.as_ref().map_or(&[], |effect| effect.rules(direction))
    }

    /// The peers of all rules.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &ClusterPeer> {
        self.all_rules().filter_map(|rule| rule.peers.as_deref()).flatten()
    }

    /// The names of ports in all rules.
    pub(crate) fn port_names(&self) -> impl Iterator<Item = (&Arc<str>, Protocol)> {
        self.all_rules().filter_map(|rule| rule.ports.as_ref()).flatten().filter_map(Port::name)
    }

    fn all_rules(&self) -> impl Iterator<Item = &ClusterRule> {
        Direction::ALL.into_iter().flat_map(|direction| self.rules(direction))
    }
}

impl Effect {
    /// The policy that denies everything in each direction that it has rules for.
    fn closed(mut self) -> Self {
        for rules in [&mut self.ingress, &mut self.egress] {
            if !rules.is_empty() {
                *rules =
                    [ClusterRule { action: RuleAction::Deny, peers: None, ports: None }].into();
            }
        }
        self
    }

    pub fn rules(&self, direction: Direction) -> &[ClusterRule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    /// The rules of a direction with their levels. Among neighbours with one action the order has
    /// no effect, so that they share a level.
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

    /// Whether it leaves connections to the tier behind it, which only the tier before
    /// NetworkPolicies does: behind the last tier everything is allowed.
    pub fn passes(&self) -> bool {
        let mut rules = self.ingress.iter().chain(&self.egress);
        self.tier == PolicyTier::Admin && rules.any(|rule| rule.action == RuleAction::Pass)
    }
}

/// Levels that each priority before NetworkPolicies has for itself. With one more, the priorities
/// of ACLs would not be enough for 1001 policies with so many levels, beside those of
/// NetworkPolicies. A policy with more takes those of the next priorities (`cluster_policies.rs`).
pub const OWN_LEVELS: usize = 31;

impl ClusterPeer {
    /// The set of its addresses; none of a network.
    pub fn set(&self) -> Option<SetId> {
        match self {
            Self::Pods(peer) => Some(SetId::Pods(Arc::clone(&peer.text))),
            Self::Nodes(peer) => Some(SetId::Nodes(Arc::clone(&peer.text))),
            Self::Name(name) => Some(SetId::Name(Arc::clone(name))),
            Self::Network(_) => None,
        }
    }
}

impl PodPeer {
    /// The selector of its namespaces: of all, if it is limited to none.
    pub(crate) fn namespaces(&self) -> Selector {
        self.namespaces.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
