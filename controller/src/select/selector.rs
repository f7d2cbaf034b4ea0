//! A label selector as Kubernetes defines it (apimachinery, `LabelSelector`), in a canonical form:
//! equal selectors are written in the same way, whatever the order in their objects is.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::frozen::FrozenSet;

/// A selector of objects by their labels. An object is selected if it meets all requirements; one
/// without requirements selects all objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    /// Only objects of this namespace; none for all namespaces, and for objects without one.
    namespace: Option<Arc<str>>,
    requirements: FrozenSet<Requirement>,
}

/// What a label has to be like.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Requirement {
    /// The object has the key with one of these values.
    In(Box<str>, FrozenSet<Box<str>>),
    /// The object does not have the key with one of these values. It may lack the key.
    NotIn(Box<str>, FrozenSet<Box<str>>),
    Exists(Box<str>),
    DoesNotExist(Box<str>),
}

/// Why a selector cannot be used. The API server accepts no such selector in its own kinds of
/// objects, and any in kinds that an administrator defines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("the operator {operator:?} of the key {key:?} is unknown")]
    Operator { key: String, operator: String },
    #[error("the operator {operator} of the key {key:?} needs values")]
    NoValues { key: String, operator: String },
    #[error("{0:?} is no key of a label")]
    Key(String),
    #[error("the key {key:?} has the value {value:?}, which no label has")]
    Value { key: String, value: String },
}

impl Selector {
    /// The selector of objects in this namespace; in all, if none is given.
    ///
    /// # Errors
    /// A requirement has an unknown operator, lacks values, or has a key or a value that no label
    /// has.
    pub fn new(namespace: Option<&str>, selector: &LabelSelector) -> Result<Self, SelectorError> {
        let LabelSelector { match_labels, match_expressions } = selector;
        let equal = match_labels.iter().flatten();
        let equal = equal.map(|(key, value)| {
            check(key, std::slice::from_ref(value))?;
            Ok(Requirement::In(key.as_str().into(), [value.as_str().into()].into_iter().collect()))
        });
        let expressions = match_expressions.iter().flatten().map(Requirement::try_from);
        Ok(Self {
            namespace: namespace.map(Into::into),
            requirements: equal.chain(expressions).collect::<Result<_, _>>()?,
        })
    }

    /// The selector of all objects in this namespace.
    pub(crate) fn of_namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), requirements: FrozenSet::default() }
    }

    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter()
    }

    /// Whether an object of this namespace with these labels is selected. [`Selectors`] knows it of
    /// all objects without asking each; this is the definition.
    ///
    /// [`Selectors`]: crate::select::selectors::Selectors
    pub fn selects(&self, namespace: Option<&str>, labels: &BTreeMap<String, String>) -> bool {
        let in_namespace = self.namespace.as_deref().is_none_or(|own| namespace == Some(own));
        in_namespace && self.requirements.iter().all(|requirement| requirement.is_met(labels))
    }
}

impl Requirement {
    fn is_met(&self, labels: &BTreeMap<String, String>) -> bool {
        let is_one_of = |key: &str, values: &FrozenSet<Box<str>>| {
            let is_in = |value: &String| values.binary_search_by(|own| (**own).cmp(value)).is_ok();
            labels.get(key).is_some_and(is_in)
        };
        match self {
            Self::In(key, values) => is_one_of(key, values),
            Self::NotIn(key, values) => !is_one_of(key, values),
            Self::Exists(key) => labels.contains_key(&**key),
            Self::DoesNotExist(key) => !labels.contains_key(&**key),
        }
    }
}

impl TryFrom<&LabelSelectorRequirement> for Requirement {
    type Error = SelectorError;

    fn try_from(
        LabelSelectorRequirement { key, operator, values }: &LabelSelectorRequirement,
    ) -> Result<Self, SelectorError> {
        check(key, values.as_deref().unwrap_or_default())?;
        let values: FrozenSet<Box<str>> =
            values.iter().flatten().map(|value| value.as_str().into()).collect();
        let name: Box<str> = key.as_str().into();
        match (operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Self::In(name, values)),
            ("NotIn", false) => Ok(Self::NotIn(name, values)),
            ("In" | "NotIn", true) => {
                Err(SelectorError::NoValues { key: key.clone(), operator: operator.clone() })
            }
            ("Exists", _) => Ok(Self::Exists(name)),
            ("DoesNotExist", _) => Ok(Self::DoesNotExist(name)),
            _ => Err(SelectorError::Operator { key: key.clone(), operator: operator.clone() }),
        }
    }
}

/// Checks the key and the values of a requirement.
fn check(key: &str, values: &[String]) -> Result<(), SelectorError> {
    if !is_key(key) {
        return Err(SelectorError::Key(cut(key)));
    }
    match values.iter().find(|value| !is_value(value)) {
        Some(value) => Err(SelectorError::Value { key: key.to_owned(), value: cut(value) }),
        None => Ok(()),
    }
}

/// The longest part of a key after its prefix, and the longest value.
const LONGEST: usize = 63;

/// apimachinery, `IsQualifiedName`: a name, and perhaps a DNS name and a slash before it.
fn is_key(key: &str) -> bool {
    let (prefix, name) =
        key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| {
        let is_label = |label: &str| {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            has_ends(label, is_plain) && label.bytes().all(|byte| is_plain(byte) || byte == b'-')
        };
        prefix.len() <= 253 && prefix.split('.').all(is_label)
    };
    prefix.is_none_or(is_prefix) && !name.is_empty() && is_value(name)
}

/// apimachinery, `IsValidLabelValue`.
fn is_value(value: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    value.is_empty()
        || value.len() <= LONGEST
            && has_ends(value, |byte| byte.is_ascii_alphanumeric())
            && value.bytes().all(is_inner)
}

fn has_ends(text: &str, is_end: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    [bytes.first(), bytes.last()].iter().all(|byte| byte.is_some_and(|byte| is_end(*byte)))
}

/// What a message has of a text.
fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// As `kubectl get --selector` takes it, after the namespace: `shop/app in (cart,web),!canary`.
/// Equal selectors have equal texts, and different ones different texts, for no key and no value
/// has a separator.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.namespace.as_deref().unwrap_or("*"))?;
        for (place, requirement) in self.requirements.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &FrozenSet<Box<str>>| {
            values.iter().map(|value| &**value).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::In(key, values) => write!(f, "{key} in ({})", list(values)),
            Self::NotIn(key, values) => write!(f, "{key} notin ({})", list(values)),
            Self::Exists(key) => f.write_str(key),
            Self::DoesNotExist(key) => write!(f, "!{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: &serde_json::Value) -> Result<Selector, SelectorError> {
        Selector::new(Some("shop"), &serde_json::from_value(json.clone()).unwrap())
    }

    #[test]
    fn the_order_in_an_object_does_not_matter() {
        let expressions = |values: [&str; 2], exists_first: bool| {
            let mut all = vec![
                serde_json::json!({"key": "app", "operator": "In", "values": values}),
                serde_json::json!({"key": "canary", "operator": "DoesNotExist"}),
            ];
            if exists_first {
                all.reverse();
            }
            selector(&serde_json::json!({"matchLabels": {"tier": "web"}, "matchExpressions": all}))
                .unwrap()
        };
        let one = expressions(["cart", "web"], false);
        assert_eq!(one, expressions(["web", "cart"], true));
        assert_eq!(one.to_string(), "shop/app in (cart,web),tier in (web),!canary");
        let equal = selector(
            &serde_json::json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}]}),
        );
        assert_eq!(equal, selector(&serde_json::json!({"matchLabels": {"tier": "web"}})));
    }

    /// The API server does not check selectors of kinds that an administrator defines: `values:
    /// ["a,b"]` had the text of `values: [a, b]`, and whoever came first decided what the other one
    /// meant.
    #[test]
    fn a_key_or_value_that_no_label_has_is_refused_and_named() {
        let refused = |key: &str, value: &str| {
            let expression = serde_json::json!({"key": key, "operator": "In", "values": [value]});
            let of_labels = serde_json::json!({"matchLabels": {key: value}});
            let error =
                selector(&serde_json::json!({"matchExpressions": [expression]})).unwrap_err();
            assert_eq!(selector(&of_labels).unwrap_err(), error);
            error.to_string()
        };
        let long = "a".repeat(64);
        for value in ["a,b", "a)", "a=b", "-a", "a-", "a b", "a\0", "ä", &long] {
            assert!(refused("role", value).contains("which no label has"), "{value}");
        }
        for key in [
            "",
            "role=db",
            "role,",
            "a/b/c",
            "/role",
            "Upper.example/role",
            "ex_ample/role",
            "-a",
            &long,
        ] {
            assert!(refused(key, "a").ends_with("is no key of a label"), "{key}");
        }
        for (key, value) in
            [("a.example/Ro_l.e", ""), ("node-role.kubernetes.io/control-plane", "A.b_c-9")]
        {
            assert!(
                selector(&serde_json::json!({"matchLabels": {key: value}})).is_ok(),
                "{key}={value}"
            );
        }
    }

    #[test]
    fn an_operator_that_cannot_be_used_is_refused_and_named() {
        let refused = |expression: serde_json::Value| {
            selector(&serde_json::json!({"matchExpressions": [expression]}))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused(serde_json::json!({"key": "app", "operator": "Gt", "values": ["1"]})),
            r#"the operator "Gt" of the key "app" is unknown"#
        );
        assert_eq!(
            refused(serde_json::json!({"key": "app", "operator": "NotIn"})),
            r#"the operator NotIn of the key "app" needs values"#
        );
    }
}
