//! A NetworkPolicy, read once from the API's spelling. Knows no other object.
//!
//! A value that cannot be used takes away what it stands for, and the first one is named: a peer or
//! a port is left out, and so allows nothing. A policy that does not tell its pods isolates all
//! pods of its namespace.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use contract::{
    applied_annotation,
    limits::{Exceeded, NETWORK_POLICY_BYTES, NETWORK_POLICY_ELEMENTS, TOO_LARGE},
    names::PolicyKey,
    policy_annotation::{BadPolicyAnnotation, Enforcement, Tracking},
};
use ipnet::IpNet;
use k8s_openapi::{
    api::networking::v1::{IPBlock, NetworkPolicyPeer, NetworkPolicyPort},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kubeapi::services::Protocol;
use serde::Deserialize;

use crate::{
    frozen::FrozenSet,
    kinds::network_policy::ledger_entry::Entry,
    object::{
        price::Price,
        specification::{FieldError, Specification, list::Distinct},
    },
    select::{
        peer::{Direction, LARGEST_SELECTOR, Number, PodPeer, Port, net, shown, size},
        selector::{Selector, SelectorError},
    },
};

use self::block::Block;

pub mod block;

#[cfg(test)]
mod tests;

/// A NetworkPolicy.
#[derive(Debug, Clone)]
pub struct Policy {
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`
    pub version: Arc<str>,
    /// In seconds since 1970.
    pub created: i64,
    /// The pods that it isolates, in its own namespace.
    pub pods: Selector,
    /// Who may connect to these pods; none if it does not isolate them in this direction.
    pub ingress: Option<Box<[Rule]>>,
    /// What these pods may connect to; none if it does not isolate them in this direction.
    pub egress: Option<Box<[Rule]>>,
    /// Whether OVN is asked to track the connections that it allows.
    pub tracking: Tracking,
    /// Whether it decides at all.
    pub enforcement: Enforcement,
    /// Its owner asks when it is in force (`REPORT_APPLIED`).
    pub reports_applied: bool,
    /// The first of its values that cannot be used.
    pub unusable: Option<Box<Unusable>>,
    /// Of its rules, whether they are in memory or not.
    pub(crate) price: Price,
    rules: Rules,
    /// While its rules are in memory.
    pub(crate) entry: Option<Arc<Entry>>,
}

/// Whether the rules of a policy are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    Present,
    /// They were taken away, because of others of the namespace.
    Dropped,
}

/// Whether both ask for the same.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            uid,
            version: _,
            created,
            pods,
            ingress,
            egress,
            tracking,
            enforcement,
            reports_applied: _,
            unusable,
            price,
            rules,
            entry: _,
        } = self;
        (uid, created, pods, ingress, egress)
            == (&other.uid, &other.created, &other.pods, &other.ingress, &other.egress)
            && (tracking, enforcement, unusable)
                == (&other.tracking, &other.enforcement, &other.unusable)
            && (price, rules) == (&other.price, &other.rules)
    }
}

impl Eq for Policy {}

/// Connections that a policy allows: those of any of the peers at any of the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its place in the object. Of equal rules the first one is kept.
    pub index: usize,
    /// None: everything.
    pub peers: Option<Box<[Peer]>>,
    /// None: all ports of all protocols.
    pub ports: Option<FrozenSet<Port>>,
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Peer {
    Block(Block),
    /// All pods of the namespaces with these labels.
    Namespaces(Selector),
    /// Equal ones of several policies may be shared.
    Pods(Arc<PodPeer>),
}

/// A value of a policy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("its spec cannot be read ({0}); it isolates all pods of its namespace")]
    Spec(Box<str>),
    #[error("its podSelector cannot be used ({0}); it isolates all pods of its namespace")]
    PodSelector(SelectorError),
    #[error(
        "its policyTypes have {0:?}, which is unknown; it isolates its pods in both directions"
    )]
    PolicyType(Box<str>),
    #[error("a selector of its {place} rule {rule} cannot be used ({why}); the peer is left out")]
    Selector { place: Direction, rule: usize, why: SelectorError },
    #[error(
        "its {place} rule {rule} has a peer with nothing in it, or with an ipBlock beside selectors; \
         it is left out"
    )]
    Peer { place: Direction, rule: usize },
    #[error(
        "its {place} rule {rule} has the ipBlock {value:?}, which is no network; it is left out"
    )]
    Block { place: Direction, rule: usize, value: Box<str> },
    #[error(
        "its {place} rule {rule} has an ipBlock with the exception {value:?}, which is no network of the \
         block's family; the block is left out"
    )]
    Except { place: Direction, rule: usize, value: Box<str> },
    #[error(
        "its {place} rule {rule} has the protocol {value:?}, which is unknown; the port is left out"
    )]
    Protocol { place: Direction, rule: usize, value: Box<str> },
    #[error("its {place} rule {rule} has the port {value}, which is none; it is left out")]
    Port { place: Direction, rule: usize, value: Box<str> },
    #[error(transparent)]
    Annotation(BadPolicyAnnotation),
    #[error(transparent)]
    TooLarge(Exceeded),
}

impl Policy {
    /// The policy with this specification.
    pub fn new(key: &PolicyKey, uid: &str, spec: impl Into<Specification>) -> Self {
        let spec = spec.into();
        let mut reader = Reader { key, unusable: None };
        let read = match reader.read(&spec) {
            Ok(read) => read,
            Err(why) => {
                reader.unusable = Some(Box::new(Unusable::Spec(shown(&why.to_string()))));
                let closed = || Some([].into());
                Read {
                    pods: Selector::of_namespace(key.namespace()),
                    ingress: closed(),
                    egress: closed(),
                }
            }
        };
        let Read { pods, ingress, egress } = read;
        let (tracking, enforcement) = (Tracking::default(), Enforcement::default());
        let mut policy = Self {
            uid: uid.into(),
            version: "".into(),
            created: 0,
            pods,
            ingress,
            egress,
            tracking,
            enforcement,
            reports_applied: false,
            unusable: reader.unusable,
            price: Price::default(),
            rules: Rules::Present,
            entry: None,
        };
        let price = Price { bytes: spec.bytes(), ..Price::of_policy(&policy) };
        match price.check() {
            Ok(()) if policy.is_too_large() => policy.empty(),
            Ok(()) => policy.price = price,
            Err(exceeded) => policy.close(exceeded),
        }
        policy
    }

    /// Isolates the same pods, and allows nothing.
    fn close(&mut self, exceeded: Exceeded) {
        self.empty();
        self.unusable = Some(Box::new(Unusable::TooLarge(exceeded)));
    }

    fn empty(&mut self) {
        for rules in [&mut self.ingress, &mut self.egress].into_iter().flatten() {
            *rules = [].into();
        }
        // Thousands of them may be there.
        if size(&self.pods) > LARGEST_SELECTOR
            && let Some(namespace) = self.pods.namespace()
        {
            self.pods = Selector::of_namespace(namespace);
        }
    }

    /// Closes it because of others of its namespace. What it asks for has to be read again when
    /// there is room.
    pub(crate) fn drop_rules(&mut self, exceeded: Exceeded) {
        // One that is too large by itself has none.
        if self.price == Price::default() {
            return;
        }
        self.close(exceeded);
        (self.rules, self.entry) = (Rules::Dropped, None);
    }

    /// Whether its rules were taken away because of others.
    pub(crate) fn is_without_rules(&self) -> bool {
        self.rules == Rules::Dropped
    }

    /// The policy with these annotations.
    #[must_use]
    pub fn annotated(mut self, annotations: &BTreeMap<String, String>) -> Self {
        self.reports_applied = applied_annotation::is_asked(annotations);
        let mut bad = None;
        match Tracking::from_annotations(annotations) {
            Ok(tracking) => self.tracking = tracking,
            Err(error) => bad = Some(error),
        }
        match Enforcement::from_annotations(annotations) {
            Ok(enforcement) => self.enforcement = enforcement,
            Err(error) => drop(bad.get_or_insert(error)),
        }
        if let Some(bad) = bad {
            self.unusable.get_or_insert_with(|| Box::new(Unusable::Annotation(bad)));
        }
        self
    }

    /// Whether it is beyond a limit.
    pub fn is_too_large(&self) -> bool {
        matches!(self.unusable.as_deref(), Some(Unusable::TooLarge(_)))
    }

    /// Its rules of a direction; none if it is not about connections in it.
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }

    /// Whether it isolates its pods in the direction.
    pub fn isolates(&self, direction: Direction) -> bool {
        self.enforcement == Enforcement::Enforced && self.rules(direction).is_some()
    }

    /// The rules of both directions.
    pub(crate) fn all_rules(&self) -> impl Iterator<Item = &Rule> {
        self.ingress.iter().chain(&self.egress).flatten()
    }

    /// The peers of all rules.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.all_rules().filter_map(|rule| rule.peers.as_deref()).flatten()
    }

    pub(crate) fn peers_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        let rules = self.ingress.iter_mut().chain(&mut self.egress).flatten();
        rules.filter_map(|rule| rule.peers.as_deref_mut()).flatten()
    }

    /// The names of ports in all rules.
    pub(crate) fn port_names(&self) -> impl Iterator<Item = (&Arc<str>, Protocol)> {
        Direction::ALL.into_iter().flat_map(|direction| self.port_names_of(direction))
    }

    /// The names of ports in the rules of a direction.
    pub(crate) fn port_names_of(
        &self,
        direction: Direction,
    ) -> impl Iterator<Item = (&Arc<str>, Protocol)> {
        let rules = self.rules(direction).into_iter().flatten();
        rules.filter_map(|rule| rule.ports.as_ref()).flatten().filter_map(Port::name)
    }
}

impl Unusable {
    /// One word for an event's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Spec(_) => "UnreadableSpec",
            Self::PodSelector(_) | Self::Selector { .. } => "UnusableSelector",
            Self::PolicyType(_) => "UnknownPolicyType",
            Self::Peer { .. } => "UnusablePeer",
            Self::Block { .. } | Self::Except { .. } => "NoNetwork",
            Self::Protocol { .. } => "UnknownProtocol",
            Self::Port { .. } => "NoPort",
            Self::Annotation(_) => "UnusableAnnotation",
            Self::TooLarge(_) => TOO_LARGE,
        }
    }
}

/// A rule as the API spells it; `from` of ingress, `to` of egress.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct RuleSpec {
    from: Option<Distinct<NetworkPolicyPeer>>,
    to: Option<Distinct<NetworkPolicyPeer>>,
    ports: Option<Distinct<NetworkPolicyPort>>,
}

/// What a specification says.
struct Read {
    pods: Selector,
    ingress: Option<Box<[Rule]>>,
    egress: Option<Box<[Rule]>>,
}

/// Reads the parts of one policy.
struct Reader<'a> {
    key: &'a PolicyKey,
    unusable: Option<Box<Unusable>>,
}

impl Reader<'_> {
    fn unusable(&mut self, what: Unusable) {
        self.unusable.get_or_insert_with(|| Box::new(what));
    }

    /// # Errors
    ///
    /// The specification cannot be read.
    fn read(&mut self, spec: &Specification) -> Result<Read, FieldError> {
        let all_pods = || Selector::of_namespace(self.key.namespace());
        let pods = match spec.field::<LabelSelector>("podSelector") {
            Ok(selector) => {
                Selector::new(Some(self.key.namespace()), &selector).map_err(Unusable::PodSelector)
            }
            Err(FieldError::TooLarge) => Ok(all_pods()),
            Err(why) => return Err(why),
        };
        let pods = pods.unwrap_or_else(|why| {
            let all_pods = all_pods();
            self.unusable(why);
            all_pods
        });
        let types = match spec.field::<Vec<String>>("policyTypes") {
            Ok(types) => self.types(types, spec.has("egress")),
            Err(FieldError::TooLarge) => [true, true],
            Err(why) => return Err(why),
        };
        // Rules of a direction that the policy does not name have no effect, but they have to be
        // rules.
        let mut rules = |place: Direction, name| {
            if let Err(exceeded) = NETWORK_POLICY_BYTES.check(spec.bytes()) {
                self.unusable = Some(Box::new(Unusable::TooLarge(exceeded)));
                return Ok([].into());
            }
            Ok(self.rules(place, spec.field(name)?))
        };
        let ingress = rules(Direction::Ingress, "ingress")?;
        let egress = rules(Direction::Egress, "egress")?;
        let [is_ingress, is_egress] = types;
        Ok(Read {
            pods,
            ingress: is_ingress.then_some(ingress),
            egress: is_egress.then_some(egress),
        })
    }

    /// Whether the policy isolates in each direction. Without types, ingress is always one of them,
    /// and egress if there are rules of it.
    fn types(&mut self, types: Vec<String>, has_egress: bool) -> [bool; 2] {
        let known =
            |text: &String| Direction::ALL.iter().any(|direction| direction.as_str() == text);
        if let Some(unknown) = types.iter().find(|text| !known(text)) {
            self.unusable(Unusable::PolicyType(shown(unknown)));
            return [true, true];
        }
        if types.is_empty() {
            return [true, has_egress];
        }
        Direction::ALL.map(|direction| types.iter().any(|text| text == direction.as_str()))
    }

    fn rules(&mut self, place: Direction, rules: Distinct<RuleSpec>) -> Box<[Rule]> {
        let mut exceeded = NETWORK_POLICY_ELEMENTS.check(rules.count);
        let mut read = Vec::new();
        for (index, RuleSpec { from, to, ports }) in rules.elements {
            let peers = match place {
                Direction::Ingress => from,
                Direction::Egress => to,
            };
            // An empty list is as none. One whose elements cannot be used is not: it allows
            // nothing.
            let peers = peers.filter(|peers| peers.count > 0);
            let ports = ports.filter(|ports| ports.count > 0);
            for count in
                [peers.as_ref().map(|list| list.count), ports.as_ref().map(|list| list.count)]
            {
                exceeded = exceeded.and(NETWORK_POLICY_ELEMENTS.check(count.unwrap_or_default()));
            }
            let mut peer = |(_, peer)| self.peer(place, index, peer);
            let peers =
                peers.map(|peers| peers.elements.into_iter().filter_map(&mut peer).collect());
            let mut port = |(_, port)| self.port(place, index, port);
            let ports =
                ports.map(|ports| ports.elements.into_iter().filter_map(&mut port).collect());
            read.push(Rule { index, peers, ports });
        }
        if let Err(exceeded) = exceeded {
            self.unusable = Some(Box::new(Unusable::TooLarge(exceeded)));
            return [].into();
        }
        let mut seen = HashSet::new();
        let is_first: Vec<bool> =
            read.iter().map(|rule| seen.insert((&rule.peers, &rule.ports))).collect();
        let rules = read.into_iter().zip(is_first).filter(|(_, is_first)| *is_first);
        rules.map(|(rule, _)| rule).collect()
    }

    fn peer(&mut self, place: Direction, rule: usize, peer: NetworkPolicyPeer) -> Option<Peer> {
        let NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } = peer;
        let read = match (ip_block, namespace_selector, pod_selector) {
            (Some(block), None, None) => self.block(place, rule, &block).map(Peer::Block),
            (None, Some(namespaces), None) => Selector::new(None, &namespaces)
                .map(Peer::Namespaces)
                .map_err(|why| Unusable::Selector { place, rule, why }),
            (None, namespaces, Some(pods)) => {
                PodPeer::new(self.key.namespace(), namespaces.as_ref(), &pods)
                    .map(|peer| Peer::Pods(Arc::new(peer)))
                    .map_err(|why| Unusable::Selector { place, rule, why })
            }
            (Some(_), _, _) | (None, None, None) => Err(Unusable::Peer { place, rule }),
        };
        read.map_err(|why| self.unusable(why)).ok()
    }

    fn block(&self, place: Direction, rule: usize, block: &IPBlock) -> Result<Block, Unusable> {
        let IPBlock { cidr, except } = block;
        let net = net(cidr).ok_or_else(|| Unusable::Block { place, rule, value: shown(cidr) })?;
        let except = except.iter().flatten().map(|value| {
            let of_family = |except: &IpNet| except.addr().is_ipv4() == net.addr().is_ipv4();
            let except = crate::select::peer::net(value).filter(of_family);
            except.ok_or_else(|| Unusable::Except { place, rule, value: shown(value) })
        });
        let except = except.collect::<Result<Vec<_>, _>>()?;
        Ok(Block { net, except: except.into() })
    }

    fn port(&mut self, place: Direction, rule: usize, port: NetworkPolicyPort) -> Option<Port> {
        let NetworkPolicyPort { end_port, port, protocol } = port;
        let protocol = protocol.as_deref().unwrap_or(Protocol::Tcp.as_str());
        let Some(known) = Protocol::ALL.into_iter().find(|known| known.as_str() == protocol) else {
            self.unusable(Unusable::Protocol { place, rule, value: shown(protocol) });
            return None;
        };
        let number = |value: i32| u16::try_from(value).ok().filter(|number| *number > 0);
        let read = match (&port, end_port) {
            (None, None) => Some(Number::All),
            (Some(IntOrString::Int(first)), None) => {
                number(*first).map(|first| Number::Range(first, first))
            }
            (Some(IntOrString::Int(first)), Some(last)) => {
                let range = number(*first).zip(number(last)).filter(|(first, last)| first <= last);
                range.map(|(first, last)| Number::Range(first, last))
            }
            (Some(IntOrString::String(name)), None) if !name.is_empty() => {
                Some(Number::Named(name.as_str().into()))
            }
            // A range begins with a number.
            (Some(IntOrString::String(_)), _) | (None, Some(_)) => None,
        };
        if read.is_none() {
            let value = match (port, end_port) {
                (Some(IntOrString::Int(first)), Some(last)) => format!("{first} to {last}"),
                (Some(IntOrString::Int(number)), None) => number.to_string(),
                (Some(IntOrString::String(name)), _) => format!("{name:?}"),
                (None, _) => "none".to_owned(),
            };
            self.unusable(Unusable::Port { place, rule, value: shown(&value) });
        }
        read.map(|number| Port { protocol: known, number })
    }
}
