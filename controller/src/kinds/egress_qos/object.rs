//! An EgressQoS (`k8s.ovn.org/v1`), read once from the API's spelling. Knows no other object.
//!
//! The first rule that fits a packet marks it. A rule that cannot be used is left out, and the
//! first such value is named. An object beyond a limit, or one that cannot be read, marks nothing.

use std::sync::Arc;

use contract::{
    definition::CustomKind,
    limits::{EGRESS_QOS_BYTES, EGRESS_QOS_RULES, EGRESS_QOS_SELECTORS, Exceeded, TOO_LARGE},
};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use crate::{
    custom::{CustomObject, CustomWire, ObservedStatus, StatusForm},
    object::specification::{Json, Specification, list::Bounded},
    select::{
        peer::{PodPeer, net, shown},
        selector::SelectorError,
    },
};

/// An EgressQoS as the API spells it.
pub type EgressQosObject = CustomWire<EgressQos>;

/// The priority of the first rule; each later one has a lower one. Upstream's.
const FIRST: usize = 1000;
/// The largest mark: six bits (RFC 2474).
const LARGEST_DSCP: i64 = 63;

/// An EgressQoS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressQos {
    pub uid: Arc<str>,
    /// In the order in which they are asked.
    pub rules: Box<[QosRule]>,
    /// The first of its values that cannot be used.
    pub unusable: Option<Box<UnusableQos>>,
    pub status: ObservedStatus,
}

/// The mark of packets from pods to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosRule {
    /// The priority of its row, which also is part of the ids of row and sets.
    pub priority: usize,
    pub dscp: i64,
    /// None: everywhere.
    pub to: Option<IpNet>,
    /// Pods of the namespace; none: all of them.
    pub pods: Option<Arc<PodPeer>>,
}

/// A value of an EgressQoS that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableQos {
    #[error("spec cannot be read ({0}); nothing is marked")]
    Spec(Box<str>),
    #[error("rule {rule} cannot be read ({why}); rule ignored")]
    Rule { rule: usize, why: Box<str> },
    #[error("rule {rule}: dscp {value} is not between 0 and 63; rule ignored")]
    Dscp { rule: usize, value: i64 },
    #[error("rule {rule}: dstCIDR {value:?} is no network; rule ignored")]
    Network { rule: usize, value: Box<str> },
    #[error("rule {rule}: podSelector cannot be used ({why}); rule ignored")]
    Selector { rule: usize, why: SelectorError },
    #[error(transparent)]
    TooLarge(Exceeded),
}

impl UnusableQos {
    /// One word for an event's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Spec(_) => "UnreadableSpec",
            Self::Rule { .. } => "UnreadableRule",
            Self::Dscp { .. } => "UnusableDSCP",
            Self::Network { .. } => "NoNetwork",
            Self::Selector { .. } => "UnusableSelector",
            Self::TooLarge(_) => TOO_LARGE,
        }
    }
}

impl EgressQos {
    /// The EgressQoS of the namespace with this specification and this status.
    pub fn new(
        namespace: &str,
        uid: &str,
        spec: impl Into<Specification>,
        status: impl Into<Specification>,
    ) -> Self {
        let (rules, unusable) = match read_rules(namespace, &spec.into()) {
            Ok((rules, unusable)) => (rules, unusable),
            Err(why) => (Vec::new(), Some(why)),
        };
        Self {
            uid: uid.into(),
            rules: rules.into(),
            unusable: unusable.map(Box::new),
            // Whatever else it is, it is not the one that is written.
            status: status.into().whole().unwrap_or_default(),
        }
    }
}

impl CustomObject for EgressQos {
    const KIND: CustomKind = CustomKind::EgressQos;
    const DENIES: bool = false;
    const ON_SWITCHES: bool = true;
    const STATUS: StatusForm = StatusForm::Conditions;

    fn read(namespace: &str, uid: &str, spec: Specification, status: Specification) -> Self {
        Self::new(namespace, uid, spec, status)
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn is_like(&self, other: &Self) -> bool {
        let Self { uid, rules, unusable, status: _ } = self;
        (uid, rules, unusable) == (&other.uid, &other.rules, &other.unusable)
    }

    fn is_too_large(&self) -> bool {
        matches!(self.unusable.as_deref(), Some(UnusableQos::TooLarge(_)))
    }

    fn observed(&self) -> &ObservedStatus {
        &self.status
    }

    fn observe(&mut self, status: ObservedStatus) {
        self.status = status;
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QosRuleSpec {
    dscp: i64,
    #[serde(rename = "dstCIDR")]
    dst_cidr: Option<String>,
    #[serde(default)]
    pod_selector: LabelSelector,
}

/// The rules, and the first that is ignored. An error is about the whole object.
fn read_rules(
    namespace: &str,
    spec: &Specification,
) -> Result<(Vec<QosRule>, Option<UnusableQos>), UnusableQos> {
    EGRESS_QOS_BYTES.check(spec.bytes()).map_err(UnusableQos::TooLarge)?;
    if spec.is_missing() {
        return Err(UnusableQos::Spec("there is none".into()));
    }
    let specs: Bounded<Json> =
        spec.field("egress").map_err(|why| UnusableQos::Spec(shown(&why.to_string())))?;
    EGRESS_QOS_RULES.check(specs.count).map_err(UnusableQos::TooLarge)?;
    let (mut rules, mut unusable) = (Vec::new(), None);
    for (index, Json(text)) in specs.elements.iter().enumerate() {
        match read_rule(namespace, index, text) {
            Ok(rule) => rules.push(rule),
            Err(why) => drop(unusable.get_or_insert(why)),
        }
    }
    let selectors = rules.iter().filter(|rule| rule.pods.is_some()).count();
    EGRESS_QOS_SELECTORS.check(selectors).map_err(UnusableQos::TooLarge)?;
    Ok((rules, unusable))
}

fn read_rule(namespace: &str, rule: usize, text: &str) -> Result<QosRule, UnusableQos> {
    let QosRuleSpec { dscp, dst_cidr, pod_selector } = serde_json::from_str(text)
        .map_err(|error| UnusableQos::Rule { rule, why: shown(&error.to_string()) })?;
    if !(0..=LARGEST_DSCP).contains(&dscp) {
        return Err(UnusableQos::Dscp { rule, value: dscp });
    }
    let to = dst_cidr.map(|text| {
        let is_cidr = text.contains('/');
        let network = net(&text).filter(|_| is_cidr);
        network.ok_or_else(|| UnusableQos::Network { rule, value: shown(&text) })
    });
    let priority = FIRST - rule;
    let has_requirements = pod_selector.match_labels.as_ref().is_some_and(|all| !all.is_empty())
        || pod_selector.match_expressions.as_ref().is_some_and(|all| !all.is_empty());
    let pods = has_requirements
        .then(|| PodPeer::of_rule(CustomKind::EgressQos, namespace, priority, &pod_selector));
    let pods = pods.transpose().map_err(|why| UnusableQos::Selector { rule, why })?;
    Ok(QosRule { priority, dscp, to: to.transpose()?, pods: pods.map(Arc::new) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(egress: serde_json::Value) -> EgressQos {
        EgressQos::new("shop", "uid", json!({ "egress": egress }), json!({}))
    }

    #[test]
    fn a_rule_that_cannot_be_used_is_ignored_and_the_rest_is_in_force() {
        for (rule, reason, words) in [
            (json!({"dscp": 64}), "UnusableDSCP", "rule 1: dscp 64"),
            (json!({"dscp": -1}), "UnusableDSCP", "rule 1: dscp -1"),
            (json!({"dscp": 1, "dstCIDR": "10.0.0.0"}), "NoNetwork", "rule 1: dstCIDR"),
            (json!({"dscp": 1, "dstCIDR": "10.0.0.0/33"}), "NoNetwork", "rule 1: dstCIDR"),
            (json!({"dstCIDR": "10.0.0.0/8"}), "UnreadableRule", "rule 1 cannot be read"),
            (
                json!({"dscp": 1, "podSelector": {"matchExpressions": [
                    {"key": "a", "operator": "Like", "values": ["b"]}]}}),
                "UnusableSelector",
                "rule 1: podSelector",
            ),
        ] {
            let qos = read(json!([{"dscp": 0}, rule, {"dscp": 63, "dstCIDR": "10.1.2.3/8"}]));
            let why = qos.unusable.expect("a reason");
            assert_eq!(why.reason(), reason);
            assert!(why.to_string().starts_with(words), "{why}");
            let rules = qos.rules.iter().map(|rule| (rule.priority, rule.dscp, rule.to));
            let net = "10.0.0.0/8".parse().unwrap();
            assert_eq!(rules.collect::<Vec<_>>(), [(1000, 0, None), (998, 63, Some(net))]);
        }
    }

    #[test]
    fn an_object_beyond_a_limit_marks_nothing() {
        let selecting = json!({"dscp": 1, "podSelector": {"matchLabels": {"a": "b"}}});
        let at_limit = read(json!(vec![json!({"dscp": 1}); EGRESS_QOS_RULES.most]));
        assert_eq!((at_limit.rules.len(), at_limit.unusable), (EGRESS_QOS_RULES.most, None));
        assert_eq!(at_limit.rules.last().unwrap().priority, 1);
        for (count, rule) in [
            (EGRESS_QOS_RULES.most + 1, json!({"dscp": 1})),
            (EGRESS_QOS_SELECTORS.most + 1, selecting),
            (100, json!({"dscp": 1, "dstCIDR": "1".repeat(EGRESS_QOS_BYTES.most / 99)})),
        ] {
            let qos = read(json!(vec![rule; count]));
            assert!(qos.rules.is_empty() && qos.is_too_large(), "{count}: {:?}", qos.unusable);
        }
        let none = EgressQos::new("shop", "uid", json!(null), json!({}));
        assert_eq!((none.rules.len(), none.unusable.unwrap().reason()), (0, "UnreadableSpec"));
    }
}
