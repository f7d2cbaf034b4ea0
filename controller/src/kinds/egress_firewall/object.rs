//! An EgressFirewall (`k8s.ovn.org/v1`), read once from the API's spelling. Knows no other object.
//!
//! The first rule that fits a connection decides, and without one it is allowed. So what cannot be
//! used fails closed, and the first such value is named: a rule that allows is left out, and the
//! part of a rule that denies stands for everything. A specification that cannot be read denies
//! everything.

use std::sync::Arc;

use contract::{
    definition::CustomKind,
    limits::{EGRESS_FIREWALL_BYTES, EGRESS_FIREWALL_RULES, Exceeded, TOO_LARGE},
};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubeapi::services::Protocol;
use serde::Deserialize;

use crate::{
    custom::{CustomObject, CustomWire, ObservedStatus, StatusForm},
    object::{
        price::Price,
        specification::{Json, Specification, list::Bounded},
    },
    select::{
        names::{DnsName, NoName, dns_name},
        node_addresses::NodePeer,
        peer::{net, shown},
        selector::SelectorError,
    },
};

/// An EgressFirewall as the API spells it.
pub type EgressFirewallObject = CustomWire<EgressFirewall>;

/// An EgressFirewall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressFirewall {
    pub uid: Arc<str>,
    /// In the order in which they are asked.
    pub rules: Box<[FirewallRule]>,
    /// The first of its values that cannot be used.
    pub unusable: Option<Box<Unusable>>,
    pub status: ObservedStatus,
}

/// What is done with connections to a destination. The first rule that fits decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallRule {
    /// Its place in the object. Rules that are left out have one, too.
    pub index: usize,
    pub action: FirewallAction,
    pub to: Destination,
    /// In the object's order. None: all ports of all protocols, and protocols without ports.
    pub ports: Option<Box<[FirewallPort]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirewallAction {
    Allow,
    Deny,
}

/// Addresses outside of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// All of them.
    Anywhere,
    Net(IpNet),
    /// Those of the nodes with these labels.
    Nodes(NodePeer),
    /// Those that the DNS has for the name, as the object spells it.
    Name(DnsName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirewallPort {
    pub protocol: Protocol,
    /// None: all ports.
    pub number: Option<u16>,
}

/// A value of an EgressFirewall that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("its spec cannot be read ({0}); it denies everything outside of the cluster")]
    Spec(Box<str>),
    #[error("its rule {rule} cannot be read ({why}); it denies everything")]
    Unreadable { rule: usize, why: Box<str> },
    #[error(
        "its rule {rule} has the type {value:?}, which is unknown; it denies what it would be about"
    )]
    Type { rule: usize, value: Box<str> },
    #[error("its rule {rule} {what}; {}", closed(*action, what))]
    Rule { rule: usize, action: FirewallAction, what: What },
    #[error(transparent)]
    TooLarge(Exceeded),
}

/// A part of a rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum What {
    #[error("needs one destination, and has {0:?}")]
    Destination(Box<str>),
    #[error("has the cidrSelector {0:?}, which is no network")]
    Network(Box<str>),
    #[error("has the dnsName {0:?}, and a wildcard is not supported")]
    Wildcard(Box<str>),
    #[error("has the dnsName {0:?}, which is none")]
    Name(Box<str>),
    #[error("has a nodeSelector that cannot be used ({0})")]
    Selector(SelectorError),
    #[error("has a port that cannot be used: {0}")]
    Port(Box<str>),
}

/// What happens instead.
fn closed(action: FirewallAction, what: &What) -> &'static str {
    match (action, what) {
        (FirewallAction::Allow, _) => "the rule is left out",
        (
            FirewallAction::Deny,
            What::Destination(_)
            | What::Network(_)
            | What::Selector(_)
            | What::Wildcard(_)
            | What::Name(_),
        ) => "it denies every destination",
        (FirewallAction::Deny, What::Port(_)) => "it denies all ports",
    }
}

impl Unusable {
    /// One word for an event's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Spec(_) => "UnreadableSpec",
            Self::Unreadable { .. } => "UnreadableRule",
            Self::Type { .. } => "UnknownType",
            Self::Rule { what: What::Destination(_), .. } => "NoDestination",
            Self::Rule { what: What::Network(_), .. } => "NoNetwork",
            Self::Rule { what: What::Selector(_), .. } => "UnusableSelector",
            Self::Rule { what: What::Wildcard(_), .. } => "Wildcard",
            Self::Rule { what: What::Name(_), .. } => "NoName",
            Self::Rule { what: What::Port(_), .. } => "NoPort",
            Self::TooLarge(_) => TOO_LARGE,
        }
    }
}

impl EgressFirewall {
    /// The EgressFirewall with this specification and this status.
    pub fn new(
        uid: &str,
        spec: impl Into<Specification>,
        status: impl Into<Specification>,
    ) -> Self {
        let (spec, status) = (spec.into(), status.into());
        let mut reader = Reader { unusable: None };
        let is_in_limits = EGRESS_FIREWALL_BYTES.check(spec.bytes());
        let rules = is_in_limits.map_err(Unusable::TooLarge).and_then(|()| {
            if spec.is_missing() {
                return Err(Unusable::Spec("there is none".into()));
            }
            let specs =
                spec.field("egress").map_err(|why| Unusable::Spec(shown(&why.to_string())))?;
            let rules = reader.rules(specs);
            Price::of_firewall(&rules).check_firewall().map_err(Unusable::TooLarge)?;
            Ok(rules)
        });
        let rules = rules.unwrap_or_else(|why| {
            reader.unusable = Some(Box::new(why));
            vec![FirewallRule::deny_all(0)]
        });
        Self {
            uid: uid.into(),
            rules: rules.into(),
            unusable: reader.unusable,
            // Whatever else it is, it is not the one that is written.
            status: status.whole().unwrap_or_default(),
        }
    }

    /// Its rules about nodes, by their indices.
    pub(crate) fn node_rules(&self) -> impl Iterator<Item = (usize, &NodePeer)> {
        self.rules.iter().filter_map(|rule| match &rule.to {
            Destination::Nodes(peer) => Some((rule.index, peer)),
            Destination::Anywhere | Destination::Net(_) | Destination::Name(_) => None,
        })
    }

    /// The names in its rules.
    pub(crate) fn names(&self) -> impl Iterator<Item = &DnsName> {
        self.rules.iter().filter_map(|rule| match &rule.to {
            Destination::Name(name) => Some(name),
            Destination::Anywhere | Destination::Net(_) | Destination::Nodes(_) => None,
        })
    }
}

impl CustomObject for EgressFirewall {
    const KIND: CustomKind = CustomKind::EgressFirewall;
    const DENIES: bool = true;
    const ON_SWITCHES: bool = false;
    const STATUS: StatusForm = StatusForm::Messages;

    fn read(_namespace: &str, uid: &str, spec: Specification, status: Specification) -> Self {
        Self::new(uid, spec, status)
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn is_like(&self, other: &Self) -> bool {
        let Self { uid, rules, unusable, status: _ } = self;
        (uid, rules, unusable) == (&other.uid, &other.rules, &other.unusable)
    }

    fn is_too_large(&self) -> bool {
        matches!(self.unusable.as_deref(), Some(Unusable::TooLarge(_)))
    }

    fn observed(&self) -> &ObservedStatus {
        &self.status
    }

    fn observe(&mut self, status: ObservedStatus) {
        self.status = status;
    }
}

impl FirewallRule {
    fn deny_all(index: usize) -> Self {
        Self { index, action: FirewallAction::Deny, to: Destination::Anywhere, ports: None }
    }
}

#[derive(Debug, Deserialize)]
struct RuleSpec {
    #[serde(default, rename = "type")]
    kind: String,
    ports: Option<Bounded<Json>>,
    /// With fields of any kind: a destination that this program does not know is found, too.
    to: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortSpec {
    protocol: String,
    port: Option<i64>,
}

/// Reads the parts of one EgressFirewall.
struct Reader {
    unusable: Option<Box<Unusable>>,
}

impl Reader {
    fn rules(&mut self, Bounded { elements: specs, count }: Bounded<Json>) -> Vec<FirewallRule> {
        let exceeded = EGRESS_FIREWALL_RULES.check(count).err();
        let most = if exceeded.is_some() { EGRESS_FIREWALL_RULES.most - 1 } else { count };
        let mut rules: Vec<FirewallRule> = specs
            .into_iter()
            .take(most)
            .enumerate()
            .filter_map(|(index, spec)| self.rule(index, spec))
            .collect();
        if let Some(exceeded) = exceeded {
            self.unusable(Unusable::TooLarge(exceeded));
            rules.push(FirewallRule::deny_all(most));
        }
        rules
    }

    fn rule(&mut self, index: usize, Json(spec): Json) -> Option<FirewallRule> {
        let RuleSpec { kind, ports, to } = match serde_json::from_str(&spec) {
            Ok(spec) => spec,
            Err(error) => {
                self.unusable(Unusable::Unreadable { rule: index, why: shown(&error.to_string()) });
                return Some(FirewallRule::deny_all(index));
            }
        };
        let action = match kind.as_str() {
            "Allow" => FirewallAction::Allow,
            "Deny" => FirewallAction::Deny,
            unknown => {
                self.unusable(Unusable::Type { rule: index, value: shown(unknown) });
                FirewallAction::Deny
            }
        };
        let mut whole = true;
        let mut read = |what| {
            whole = false;
            self.unusable(Unusable::Rule { rule: index, action, what });
        };
        let to = read_destination(&to.unwrap_or_default()).unwrap_or_else(|what| {
            read(what);
            Destination::Anywhere
        });
        let ports = read_ports(ports.unwrap_or_default()).unwrap_or_else(|what| {
            read(what);
            None
        });
        let is_left_out = action == FirewallAction::Allow && !whole;
        (!is_left_out).then_some(FirewallRule { index, action, to, ports })
    }

    fn unusable(&mut self, what: Unusable) {
        self.unusable.get_or_insert_with(|| Box::new(what));
    }
}

fn read_destination(to: &serde_json::Map<String, serde_json::Value>) -> Result<Destination, What> {
    let named = || What::Destination(shown(&to.keys().cloned().collect::<Vec<_>>().join(" ")));
    let mut fields = to.iter();
    let (Some((field, value)), None) = (fields.next(), fields.next()) else { return Err(named()) };
    match field.as_str() {
        "cidrSelector" => {
            let text = value.as_str().ok_or_else(named)?;
            net(text).map(Destination::Net).ok_or_else(|| What::Network(shown(text)))
        }
        "dnsName" => read_name(value.as_str().ok_or_else(named)?).map(Destination::Name),
        "nodeSelector" => {
            let selector: LabelSelector =
                serde_json::from_value(value.clone()).map_err(|_| named())?;
            NodePeer::new(&selector).map(Destination::Nodes).map_err(What::Selector)
        }
        _ => Err(named()),
    }
}

fn read_name(text: &str) -> Result<DnsName, What> {
    dns_name(text).map_err(|why| match why {
        NoName::Wildcard => What::Wildcard(shown(text)),
        NoName::NoName => What::Name(shown(text)),
    })
}

/// The ports; none of an empty list, which is as none.
fn read_ports(specs: Bounded<Json>) -> Result<Option<Box<[FirewallPort]>>, What> {
    let read = |Json(text): Json| {
        let port = || {
            let PortSpec { protocol, port } = serde_json::from_str(&text).ok()?;
            let protocol = Protocol::ALL.into_iter().find(|known| known.as_str() == protocol)?;
            // Upstream takes 0, which its definition does not allow, for all ports.
            let number = match port {
                None | Some(0) => None,
                Some(number) => Some(u16::try_from(number).ok()?),
            };
            Some(FirewallPort { protocol, number })
        };
        port().ok_or_else(|| What::Port(shown(&text)))
    };
    let ports = specs.elements.into_iter().map(read).collect::<Result<Box<[_]>, _>>()?;
    Ok((!ports.is_empty()).then_some(ports))
}

#[cfg(test)]
mod tests;
