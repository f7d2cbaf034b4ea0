//! A NetworkPolicy, read once from the API's spelling. Knows no other object.
//!
//! A value that cannot be used takes away what it stands for, and the first one is named: a peer or a port is
//! left out, and so allows nothing. A policy that does not tell its pods isolates all pods of its namespace.

use std::{collections::BTreeMap, sync::Arc};

use contract::{
    names::PolicyKey,
    policy_annotation::{BadPolicyAnnotation, Enforcement, Tracking},
};
use ipnet::IpNet;
use k8s_openapi::{
    api::networking::v1::{
        IPBlock, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kubeapi::services::Protocol;

use super::selector::{Selector, SelectorError};
use crate::frozen::FrozenSet;
pub use trouble::PolicyTrouble;

/// Characters of a value in a message.
const SHOWN: usize = 64;

/// A NetworkPolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub uid: Arc<str>,
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
    /// The first of its values that cannot be used.
    pub unusable: Option<Box<Unusable>>,
}

/// Connections that a policy allows: those of any of the peers at any of the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// None: everything.
    pub peers: Option<Box<[Peer]>>,
    /// None: all ports of all protocols.
    pub ports: Option<FrozenSet<Port>>,
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    Block(Block),
    /// All pods of the namespaces with these labels.
    Namespaces(Selector),
    /// Equal ones of several policies may be shared.
    Pods(Arc<PodPeer>),
}

/// Addresses, whatever they belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub net: IpNet,
    pub except: Box<[IpNet]>,
}

/// Pods by their labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPeer {
    /// Of namespaces with these labels. None: of the namespace that `pods` is limited to.
    pub namespaces: Option<Selector>,
    pub pods: Selector,
    /// Both as one text, as upstream spells it. Equal texts select the same pods.
    pub text: Arc<str>,
}

/// A port of the end that is connected to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub protocol: Protocol,
    pub number: Number,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    All,
    /// From the first to the last.
    Range(u16, u16),
    /// The number that a pod's container gives to the name.
    Named(Arc<str>),
}

/// A direction, seen from the selected pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    Ingress,
    Egress,
}

/// A value of a policy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("its spec cannot be read ({0}); it isolates all pods of its namespace")]
    Spec(Box<str>),
    #[error("its podSelector cannot be used ({0}); it isolates all pods of its namespace")]
    PodSelector(SelectorError),
    #[error("its policyTypes have {0:?}, which is unknown; it isolates its pods in both directions")]
    PolicyType(Box<str>),
    #[error("a selector of its {place} rule {rule} cannot be used ({why}); the peer is left out")]
    Selector { place: Direction, rule: usize, why: SelectorError },
    #[error(
        "its {place} rule {rule} has a peer with nothing in it, or with an ipBlock beside selectors; \
         it is left out"
    )]
    Peer { place: Direction, rule: usize },
    #[error("its {place} rule {rule} has the ipBlock {value:?}, which is no network; it is left out")]
    Block { place: Direction, rule: usize, value: Box<str> },
    #[error(
        "its {place} rule {rule} has an ipBlock with the exception {value:?}, which is no network of the \
         block's family; the block is left out"
    )]
    Except { place: Direction, rule: usize, value: Box<str> },
    #[error("its {place} rule {rule} has the protocol {value:?}, which is unknown; the port is left out")]
    Protocol { place: Direction, rule: usize, value: Box<str> },
    #[error("its {place} rule {rule} has the port {value}, which is none; it is left out")]
    Port { place: Direction, rule: usize, value: Box<str> },
    #[error(transparent)]
    Annotation(BadPolicyAnnotation),
}

impl Policy {
    /// The policy with this specification. `None` stands for an empty one, and an error for one that cannot
    /// be read.
    pub fn new(key: &PolicyKey, uid: &str, spec: Result<Option<NetworkPolicySpec>, String>) -> Self {
        let all_pods = Selector::of_namespace(key.namespace());
        let spec = match spec {
            Ok(spec) => spec.unwrap_or_default(),
            Err(why) => {
                return Self {
                    uid: uid.into(),
                    pods: all_pods,
                    ingress: Some([].into()),
                    egress: Some([].into()),
                    tracking: Tracking::default(),
                    enforcement: Enforcement::default(),
                    unusable: Some(Box::new(Unusable::Spec(shown(&why)))),
                };
            }
        };
        let NetworkPolicySpec { egress, ingress, pod_selector, policy_types } = spec;
        let mut reader = Reader { key, unusable: None };
        let pods = Selector::new(Some(key.namespace()), &pod_selector.unwrap_or_default());
        let pods = pods.unwrap_or_else(|why| {
            reader.unusable(Unusable::PodSelector(why));
            all_pods
        });
        let [is_ingress, is_egress] =
            reader.types(policy_types.unwrap_or_default(), egress.as_deref().unwrap_or_default());
        let ingress = ingress.unwrap_or_default().into_iter().map(|rule| (rule.from, rule.ports));
        let egress = egress.unwrap_or_default().into_iter().map(|rule| (rule.to, rule.ports));
        // Rules of a direction that the policy does not name have no effect.
        let ingress = is_ingress.then(|| reader.rules(Direction::Ingress, ingress));
        let egress = is_egress.then(|| reader.rules(Direction::Egress, egress));
        let (tracking, enforcement) = (Tracking::default(), Enforcement::default());
        Self { uid: uid.into(), pods, ingress, egress, tracking, enforcement, unusable: reader.unusable }
    }

    /// The policy with these annotations.
    #[must_use]
    pub fn annotated(mut self, annotations: &BTreeMap<String, String>) -> Self {
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
    pub(super) fn all_rules(&self) -> impl Iterator<Item = &Rule> {
        self.ingress.iter().chain(&self.egress).flatten()
    }

    /// The peers of all rules.
    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.all_rules().filter_map(|rule| rule.peers.as_deref()).flatten()
    }

    pub(super) fn peers_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        let rules = self.ingress.iter_mut().chain(&mut self.egress).flatten();
        rules.filter_map(|rule| rule.peers.as_deref_mut()).flatten()
    }

    /// The names of ports in all rules.
    pub(super) fn port_names(&self) -> impl Iterator<Item = (&Arc<str>, Protocol)> {
        self.all_rules().filter_map(|rule| rule.ports.as_ref()).flatten().filter_map(Port::name)
    }
}

impl Port {
    /// Its name and protocol, if it has a name.
    pub(super) fn name(&self) -> Option<(&Arc<str>, Protocol)> {
        match &self.number {
            Number::Named(name) => Some((name, self.protocol)),
            Number::All | Number::Range(..) => None,
        }
    }
}

impl Direction {
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
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
        }
    }
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

    /// Whether the policy isolates in each direction. Without types, ingress is always one of them, and
    /// egress if there are rules of it.
    fn types(&mut self, types: Vec<String>, egress: &[NetworkPolicyEgressRule]) -> [bool; 2] {
        let known = |text: &String| Direction::ALL.iter().any(|direction| direction.as_str() == text);
        if let Some(unknown) = types.iter().find(|text| !known(text)) {
            self.unusable(Unusable::PolicyType(shown(unknown)));
            return [true, true];
        }
        if types.is_empty() {
            return [true, !egress.is_empty()];
        }
        Direction::ALL.map(|direction| types.iter().any(|text| text == direction.as_str()))
    }

    fn rules(
        &mut self,
        place: Direction,
        rules: impl Iterator<Item = (Option<Vec<NetworkPolicyPeer>>, Option<Vec<NetworkPolicyPort>>)>,
    ) -> Box<[Rule]> {
        let mut read = Vec::new();
        for (rule, (peers, ports)) in rules.enumerate() {
            // An empty list is as none. One whose elements cannot be used is not: it allows nothing.
            let peers = peers.filter(|peers| !peers.is_empty());
            let ports = ports.filter(|ports| !ports.is_empty());
            let mut peer = |peer| self.peer(place, rule, peer);
            let peers = peers.map(|peers| peers.into_iter().filter_map(&mut peer).collect());
            let mut port = |port| self.port(place, rule, port);
            let ports = ports.map(|ports| ports.into_iter().filter_map(&mut port).collect());
            read.push(Rule { peers, ports });
        }
        read.into()
    }

    fn peer(&mut self, place: Direction, rule: usize, peer: NetworkPolicyPeer) -> Option<Peer> {
        let NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } = peer;
        let read = match (ip_block, namespace_selector, pod_selector) {
            (Some(block), None, None) => self.block(place, rule, &block).map(Peer::Block),
            (None, Some(namespaces), None) => Selector::new(None, &namespaces)
                .map(Peer::Namespaces)
                .map_err(|why| Unusable::Selector { place, rule, why }),
            (None, namespaces, Some(pods)) => PodPeer::new(self.key.namespace(), namespaces.as_ref(), &pods)
                .map(|peer| Peer::Pods(Arc::new(peer)))
                .map_err(|why| Unusable::Selector { place, rule, why }),
            (Some(_), _, _) | (None, None, None) => Err(Unusable::Peer { place, rule }),
        };
        read.map_err(|why| self.unusable(why)).ok()
    }

    fn block(&self, place: Direction, rule: usize, block: &IPBlock) -> Result<Block, Unusable> {
        let IPBlock { cidr, except } = block;
        let net = net(cidr).ok_or_else(|| Unusable::Block { place, rule, value: shown(cidr) })?;
        let except = except.iter().flatten().map(|value| {
            let of_family = |except: &IpNet| except.addr().is_ipv4() == net.addr().is_ipv4();
            let except = self::net(value).filter(of_family);
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
            (Some(IntOrString::Int(first)), None) => number(*first).map(|first| Number::Range(first, first)),
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

impl PodPeer {
    /// In `namespace`, unless namespaces are selected.
    pub(super) fn new(
        namespace: &str,
        namespaces: Option<&LabelSelector>,
        pods: &LabelSelector,
    ) -> Result<Self, SelectorError> {
        let place = namespaces.map_or_else(|| namespace.to_owned(), canonical);
        let text = format!("{place}_{}", canonical(pods)).into();
        Ok(Self {
            pods: Selector::new(namespaces.is_none().then_some(namespace), pods)?,
            namespaces: namespaces.map(|selector| Selector::new(None, selector)).transpose()?,
            text,
        })
    }
}

/// The text of a selector, as upstream's ids of address sets have it: `LS{ML:{app: cart,},}`.
pub(super) fn canonical(LabelSelector { match_labels, match_expressions }: &LabelSelector) -> String {
    let mut text = "LS{".to_owned();
    let labels = match_labels
        .iter()
        .flatten()
        .fold(String::new(), |all, (key, value)| format!("{all}{key}: {value},"));
    if !labels.is_empty() {
        text.push_str(&format!("ML:{{{labels}}},"));
    }
    let expressions = match_expressions.iter().flatten().map(|requirement| {
        let mut values: Vec<&str> = requirement.values.iter().flatten().map(String::as_str).collect();
        values.sort_unstable();
        let (key, operator) = (&requirement.key, &requirement.operator);
        format!("LSR{{Key:{key},Operator:{operator},Values:[{}],}}", values.join(" "))
    });
    let mut expressions: Vec<String> = expressions.collect();
    expressions.sort_unstable();
    if !expressions.is_empty() {
        text.push_str(&format!("ME:{{{}}},", expressions.join(",")));
    }
    text.push('}');
    text
}

/// A network, without the bits of a host.
pub(super) fn net(text: &str) -> Option<IpNet> {
    kubeapi::address::parse_net(text.trim()).map(|net| net.trunc())
}

pub(super) fn shown(text: &str) -> Box<str> {
    text.chars().take(SHOWN).collect::<String>().into()
}

mod trouble;

#[cfg(test)]
mod tests;
