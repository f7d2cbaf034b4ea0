//! A NetworkPolicy. Each function is a sentence of the API reference (`NetworkPolicySpec`,
//! `NetworkPolicyPeer`, `NetworkPolicyPort`).

use crate::{
    Namespace, Selector,
    connection::{Cidr, Direction, End, Place, Pod, Protocol},
};

#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPolicy<'a> {
    pub namespace: &'a str,
    pub name: String,
    pub pod_selector: Selector<'a>,
    /// `policyTypes`; empty if it is not set.
    pub policy_types: Vec<Direction>,
    pub ingress: Vec<Rule<'a>>,
    pub egress: Vec<Rule<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rule<'a> {
    /// `from` or `to`.
    pub peers: Vec<Peer<'a>>,
    pub ports: Vec<Port<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Peer<'a> {
    Selectors {
        namespaces: Option<Selector<'a>>,
        pods: Option<Selector<'a>>,
    },
    /// A network and its exceptions, as addresses with a prefix length.
    Block {
        cidr: Cidr,
        except: Vec<Cidr>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Port<'a> {
    /// TCP if it is not set.
    pub protocol: Option<Protocol>,
    pub number: Option<Number<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number<'a> {
    Of(u16),
    /// `port` to `endPort`.
    Range(u16, u16),
    Named(&'a str),
}

impl NetworkPolicy<'_> {
    /// Whether the pod is isolated by it in the direction.
    pub fn selects(&self, pod: Pod<'_>, direction: Direction) -> bool {
        self.namespace == pod.namespace
            && self.pod_selector.selects(pod.labels)
            && self.affects(direction)
    }

    /// "If this field is not specified, it will default based on the existence of ingress or egress
    /// rules; policies that contain an egress section are assumed to affect egress, and all
    /// policies are assumed to affect ingress."
    fn affects(&self, direction: Direction) -> bool {
        if !self.policy_types.is_empty() {
            return self.policy_types.contains(&direction);
        }
        match direction {
            Direction::Ingress => true,
            Direction::Egress => !self.egress.is_empty(),
        }
    }

    pub fn rules(&self, direction: Direction) -> &[Rule<'_>] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

impl Rule<'_> {
    /// "If this field is empty or missing, this rule matches all." `namespace`: the policy's.
    pub(crate) fn has_peer(
        &self,
        namespace: &str,
        end: End<'_>,
        namespaces: &[Namespace<'_>],
    ) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|peer| peer.is(namespace, end, namespaces))
    }

    /// "If this field is empty or missing, this rule matches all ports."
    pub(crate) fn has_port(&self, server: End<'_>, place: Place) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|port| port.is_at(server, place))
    }
}

impl Peer<'_> {
    fn is(&self, namespace: &str, end: End<'_>, namespaces: &[Namespace<'_>]) -> bool {
        match (self, end.pod) {
            (Self::Block { cidr, except }, _) => {
                cidr.contains(end.address)
                    && !except.iter().any(|except| except.contains(end.address))
            }
            (Self::Selectors { namespaces: selected, pods }, Some(pod)) => {
                let in_namespace = match selected {
                    Some(selector) => namespaces
                        .iter()
                        .any(|of| of.name == pod.namespace && selector.selects(&of.labels)),
                    None => pod.namespace == namespace,
                };
                in_namespace && pods.as_ref().is_none_or(|selector| selector.selects(pod.labels))
            }
            (Self::Selectors { .. }, None) => false,
        }
    }
}

impl Port<'_> {
    /// "This can either be a numerical or named port on a pod. If this field is not provided, this
    /// matches all port names and numbers. If present, only traffic on the specified protocol AND
    /// port will be matched."
    fn is_at(&self, server: End<'_>, place: Place) -> bool {
        let is_number = match self.number {
            None => true,
            Some(Number::Of(number)) => number == place.port,
            Some(Number::Range(first, last)) => (first..=last).contains(&place.port),
            Some(Number::Named(name)) => server.pod.is_some_and(|pod| pod.names(name, place)),
        };
        self.protocol.unwrap_or(Protocol::Tcp) == place.protocol && is_number
    }
}
