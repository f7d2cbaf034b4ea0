//! What policies of several kinds have in common: directions, ports, peers that are pods.

use std::sync::Arc;

use contract::definition::CustomKind;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kubeapi::services::Protocol;

use crate::{
    frozen::FrozenSet,
    select::selector::{Requirement, Selector, SelectorError},
};

/// Bytes of keys and values of a selector with which a policy beyond a limit is kept. One with more
/// isolates all pods of its namespace: a selector of pods has a few labels.
pub(crate) const LARGEST_SELECTOR: usize = 1024;

/// Characters of a value in a message.
const SHOWN: usize = 64;

/// Pods by their labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodPeer {
    /// Of namespaces with these labels. None: of the namespace that `pods` is limited to.
    pub namespaces: Option<Selector>,
    pub pods: Selector,
    /// Both as one text, as upstream spells it: equal texts select the same pods. Or that of a
    /// rule (`PodPeer::of_rule`), which may come to select others.
    pub text: Arc<str>,
}

/// A port of the end that is connected to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port {
    pub protocol: Protocol,
    pub number: Number,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

impl Port {
    /// Its name and protocol, if it has a name.
    pub(crate) fn name(&self) -> Option<(&Arc<str>, Protocol)> {
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

impl PodPeer {
    /// In `namespace`, unless namespaces are selected.
    pub(crate) fn new(
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

impl PodPeer {
    /// All pods of the namespaces with these labels.
    pub(crate) fn all_of(namespaces: &Selector) -> Self {
        let requirement = |requirement: &Requirement| {
            let list = |values: &FrozenSet<Box<str>>| {
                Some(values.iter().map(ToString::to_string).collect())
            };
            let (key, operator, values) = match requirement {
                Requirement::In(key, values) => (key, "In", list(values)),
                Requirement::NotIn(key, values) => (key, "NotIn", list(values)),
                Requirement::Exists(key) => (key, "Exists", None),
                Requirement::DoesNotExist(key) => (key, "DoesNotExist", None),
            };
            LabelSelectorRequirement { key: key.to_string(), operator: operator.to_owned(), values }
        };
        let all: Vec<_> = namespaces.requirements().map(requirement).collect();
        let spelled = LabelSelector {
            match_expressions: (!all.is_empty()).then_some(all),
            match_labels: None,
        };
        let text =
            format!("{}_{}", canonical(&spelled), canonical(&LabelSelector::default())).into();
        Self { namespaces: Some(namespaces.clone()), pods: Selector::default(), text }
    }
}

impl PodPeer {
    /// Of a rule that has a set of its own, whatever it selects.
    pub(crate) fn of_rule(
        kind: CustomKind,
        namespace: &str,
        priority: usize,
        pods: &LabelSelector,
    ) -> Result<Self, SelectorError> {
        Ok(Self {
            pods: Selector::new(Some(namespace), pods)?,
            namespaces: None,
            text: rule_text(kind, namespace, &priority.to_string()).into(),
        })
    }
}

/// The text of the set of a rule's pods: `EgressQoS:shop:999`. No canonical text begins like it.
pub(crate) fn rule_text(kind: CustomKind, namespace: &str, priority: &str) -> String {
    format!("{}:{namespace}:{priority}", kind.as_str())
}

/// Kind, namespace and priority in such a text.
pub(crate) fn rule_of(text: &str) -> Option<(CustomKind, &str, &str)> {
    let (kind, rest) = text.split_once(':')?;
    let (namespace, priority) = rest.split_once(':')?;
    let kind = CustomKind::ALL.into_iter().find(|known| known.as_str() == kind)?;
    Some((kind, namespace, priority))
}

/// The text of a selector, as upstream's ids of address sets have it: `LS{ML:{app: cart,},}`.
pub(crate) fn canonical(
    LabelSelector { match_labels, match_expressions }: &LabelSelector,
) -> String {
    let mut text = "LS{".to_owned();
    let labels = match_labels
        .iter()
        .flatten()
        .fold(String::new(), |all, (key, value)| format!("{all}{key}: {value},"));
    if !labels.is_empty() {
        text.push_str(&format!("ML:{{{labels}}},"));
    }
    let expressions = match_expressions.iter().flatten().map(|requirement| {
        let mut values: Vec<&str> =
            requirement.values.iter().flatten().map(String::as_str).collect();
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

/// Bytes of the keys and values of a selector.
pub(crate) fn size(selector: &Selector) -> usize {
    let of = |requirement: &Requirement| match requirement {
        Requirement::In(key, values) | Requirement::NotIn(key, values) => {
            key.len() + values.iter().map(|value| value.len()).sum::<usize>()
        }
        Requirement::Exists(key) | Requirement::DoesNotExist(key) => key.len(),
    };
    selector.requirements().map(of).sum()
}

/// A network, without the bits of a host.
pub(crate) fn net(text: &str) -> Option<IpNet> {
    kubeapi::address::parse_net(text.trim()).map(|net| net.trunc())
}

pub(crate) fn shown(text: &str) -> Box<str> {
    text.chars().take(SHOWN).collect::<String>().into()
}
