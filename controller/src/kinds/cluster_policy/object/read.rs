//! The API's spelling of a policy of the whole cluster, in all three kinds.

use std::{collections::BTreeMap, sync::Arc};

use contract::names::ClusterPolicyKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kubeapi::services::Protocol;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

use crate::{
    frozen::FrozenSet,
    kinds::cluster_policy::object::{
        BEHIND_ALL, ClusterPeer, ClusterRule, Effect, LAST_PRIORITY, NodePeer, PolicyTier,
        RuleAction, Unusable, What,
    },
    select::{
        names::{NoName, dns_name},
        peer::{Direction, Number, PodPeer, Port, net, shown},
        selector::SelectorError,
    },
};

/// `spec` of all three kinds.
#[derive(Debug, Deserialize)]
struct Spec {
    tier: Option<String>,
    priority: Option<i64>,
    subject: Option<SubjectSpec>,
    /// Each is read by itself: one that this program does not know in full must not take the others
    /// with it.
    ingress: Option<Vec<serde_json::Value>>,
    egress: Option<Vec<serde_json::Value>>,
}

// In what follows, a field that this program does not know may say less than what it does know: a
// selector without it would select more.

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubjectSpec {
    namespaces: Option<SelectorSpec>,
    pods: Option<PodsSpec>,
}

/// An object: a list of nothing would be one with all fields left out.
type Fields = serde_json::Map<String, serde_json::Value>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct PodsSpec {
    namespace_selector: SelectorSpec,
    pod_selector: SelectorSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Fields")]
struct SelectorSpec(LabelSelector);

/// A `LabelSelector`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct SelectorFields {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<RequirementSpec>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequirementSpec {
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

impl TryFrom<Fields> for SelectorSpec {
    type Error = serde_json::Error;

    fn try_from(fields: Fields) -> Result<Self, Self::Error> {
        let SelectorFields { match_labels, match_expressions } =
            serde_json::from_value(fields.into())?;
        let requirement = |RequirementSpec { key, operator, values }| LabelSelectorRequirement {
            key,
            operator,
            values,
        };
        let match_expressions =
            match_expressions.map(|all| all.into_iter().map(requirement).collect());
        Ok(Self(LabelSelector { match_labels, match_expressions }))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleSpec {
    /// Of no effect.
    #[serde(default, rename = "name")]
    _name: IgnoredAny,
    /// Read before: it decides what is done about the rest.
    #[serde(default, rename = "action")]
    _action: IgnoredAny,
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

/// What the specification says, and the first of its values that cannot be used.
///
/// # Errors
/// The policy has no effect.
pub(crate) fn effect(
    kind: ClusterPolicyKind,
    spec: serde_json::Value,
) -> Result<(Effect, Option<Box<Unusable>>), Unusable> {
    let spec =
        serde_json::from_value(spec).map_err(|error| Unusable::Spec(shown(&error.to_string())))?;
    let mut reader = Reader { kind, unusable: None };
    let effect = reader.effect(spec)?;
    Ok((effect, reader.unusable))
}

/// Reads the parts of one policy.
struct Reader {
    kind: ClusterPolicyKind,
    unusable: Option<Box<Unusable>>,
}

impl Reader {
    fn effect(&mut self, spec: Spec) -> Result<Effect, Unusable> {
        let Spec { tier, priority, subject, ingress, egress } = spec;
        let priority = || {
            let number = priority.unwrap_or(-1);
            let read = u16::try_from(number).ok().filter(|number| *number <= LAST_PRIORITY);
            read.ok_or(Unusable::Priority(number))
        };
        let (tier, priority) = match self.kind {
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
                of_namespaces(namespaces, SelectorSpec::default())
            }
            Some(SubjectSpec { namespaces: None, pods: Some(pods) }) => {
                of_namespaces(pods.namespace_selector, pods.pod_selector)
            }
            Some(SubjectSpec { .. }) | None => return Err(Unusable::Subject),
        };
        let subject = subject.map_err(Unusable::SubjectSelector)?;
        let ingress = self.rules(Direction::Ingress, ingress.unwrap_or_default());
        let egress = self.rules(Direction::Egress, egress.unwrap_or_default());
        Ok(Effect { tier, priority, subject, ingress, egress })
    }

    fn rules(&mut self, place: Direction, rules: Vec<serde_json::Value>) -> Box<[ClusterRule]> {
        let rules = rules.into_iter().enumerate();
        rules.filter_map(|(number, rule)| self.rule(place, number, rule)).collect()
    }

    fn rule(
        &mut self,
        place: Direction,
        rule: usize,
        spec: serde_json::Value,
    ) -> Option<ClusterRule> {
        const DENY_ALL: ClusterRule =
            ClusterRule { action: RuleAction::Deny, peers: None, ports: None };
        let action = spec["action"].as_str().unwrap_or_default().to_owned();
        let spec =
            RuleSpec::deserialize(spec).map_err(|error| What::Spec(shown(&error.to_string())));
        let action = match (action.as_str(), self.kind) {
            ("Accept", ClusterPolicyKind::ClusterNetworkPolicy) => RuleAction::Accept,
            (
                "Allow",
                ClusterPolicyKind::AdminNetworkPolicy
                | ClusterPolicyKind::BaselineAdminNetworkPolicy,
            ) => RuleAction::Accept,
            ("Deny", _) => RuleAction::Deny,
            (
                "Pass",
                ClusterPolicyKind::ClusterNetworkPolicy | ClusterPolicyKind::AdminNetworkPolicy,
            ) => RuleAction::Pass,
            (unknown, _) => {
                self.unusable(Unusable::Action { place, rule, value: shown(unknown) });
                return Some(DENY_ALL);
            }
        };
        let read = spec.and_then(|RuleSpec { from, to, protocols, ports, _action, _name }| {
            let peers = match place {
                Direction::Ingress => from,
                Direction::Egress => to,
            };
            let ports = match self.kind {
                ClusterPolicyKind::ClusterNetworkPolicy => read_ports(protocols, of_protocol),
                ClusterPolicyKind::AdminNetworkPolicy
                | ClusterPolicyKind::BaselineAdminNetworkPolicy => read_ports(ports, of_port),
            };
            Ok((self.peers(place, action, peers.unwrap_or_default())?, ports?))
        });
        match read {
            Ok((peers, ports)) => Some(ClusterRule { action, peers: Some(peers), ports }),
            Err(what) => {
                self.unusable(Unusable::Rule { place, rule, action, what });
                match action {
                    RuleAction::Accept => None,
                    RuleAction::Deny | RuleAction::Pass => Some(DENY_ALL),
                }
            }
        }
    }

    fn peers(
        &self,
        place: Direction,
        action: RuleAction,
        peers: Vec<PeerSpec>,
    ) -> Result<Box<[ClusterPeer]>, What> {
        if peers.is_empty() {
            return Err(What::NoPeers);
        }
        let mut read = Vec::new();
        for peer in peers {
            read.extend(self.peer(place, action, &peer)?);
        }
        Ok(read.into())
    }

    fn peer(
        &self,
        place: Direction,
        action: RuleAction,
        peer: &PeerSpec,
    ) -> Result<Vec<ClusterPeer>, What> {
        let named = || What::Peer(shown(&peer.keys().cloned().collect::<Vec<_>>().join(" ")));
        // Exactly one field must be there.
        let mut fields = peer.iter();
        let (Some((field, value)), None) = (fields.next(), fields.next()) else {
            return Err(named());
        };
        match (field.as_str(), place, self.kind) {
            ("namespaces", _, _) => {
                let peer = of_namespaces(from(value).ok_or_else(named)?, SelectorSpec::default());
                Ok(vec![ClusterPeer::Pods(Arc::new(peer.map_err(What::Selector)?))])
            }
            ("pods", _, _) => {
                let fields = value.is_object().then(|| from(value)).flatten();
                let PodsSpec { namespace_selector, pod_selector } = fields.ok_or_else(named)?;
                let peer = of_namespaces(namespace_selector, pod_selector);
                Ok(vec![ClusterPeer::Pods(Arc::new(peer.map_err(What::Selector)?))])
            }
            ("nodes", Direction::Egress, _) => {
                let nodes: SelectorSpec = from(value).ok_or_else(named)?;
                let peer = NodePeer::new(&nodes.0).map_err(What::Selector)?;
                Ok(vec![ClusterPeer::Nodes(peer)])
            }
            ("networks", Direction::Egress, _) => {
                let network = |text: &String| {
                    net(text).map(ClusterPeer::Network).ok_or_else(|| What::Network(shown(text)))
                };
                texts(value).ok_or_else(named)?.iter().map(network).collect()
            }
            (
                "domainNames",
                Direction::Egress,
                ClusterPolicyKind::ClusterNetworkPolicy | ClusterPolicyKind::AdminNetworkPolicy,
            ) => {
                if action != RuleAction::Accept {
                    return Err(What::NamesNotAccepted);
                }
                texts(value).ok_or_else(named)?.iter().map(|text| domain_name(text)).collect()
            }
            _ => Err(named()),
        }
    }

    fn unusable(&mut self, what: Unusable) {
        self.unusable.get_or_insert_with(|| Box::new(what));
    }
}

fn of_namespaces(namespaces: SelectorSpec, pods: SelectorSpec) -> Result<PodPeer, SelectorError> {
    PodPeer::new("", Some(&namespaces.0), &pods.0)
}

fn from<T: DeserializeOwned>(value: &serde_json::Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

/// The texts of a list that has some.
fn texts(value: &serde_json::Value) -> Option<Vec<String>> {
    from(value).filter(|texts: &Vec<String>| !texts.is_empty())
}

fn domain_name(text: &str) -> Result<ClusterPeer, What> {
    dns_name(text).map(ClusterPeer::Name).map_err(|why| match why {
        NoName::Wildcard => What::Wildcard(shown(text)),
        NoName::NoName => What::Name(shown(text)),
    })
}

fn read_ports(
    specs: Option<Vec<serde_json::Value>>,
    read: fn(serde_json::Value) -> Option<Vec<Port>>,
) -> Result<Option<FrozenSet<Port>>, What> {
    // An empty list is as none.
    let Some(specs) = specs.filter(|specs| !specs.is_empty()) else { return Ok(None) };
    let mut ports = Vec::new();
    for spec in specs {
        let text = spec.to_string();
        ports.extend(read(spec).ok_or_else(|| What::Port(shown(&text)))?);
    }
    Ok(Some(ports.into_iter().collect()))
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
