//! Kubernetes label selectors, as text. Knows labels, not the objects that have them.

use std::{collections::BTreeMap, str::FromStr};

/// Requirements that must all hold: `kubernetes.io/os=windows,zone in (a,b),!gpu`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    condition: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Exists,
    Missing,
    In(Vec<String>),
    /// Also holds if the label is missing, as in Kubernetes.
    NotIn(Vec<String>),
}

/// A text that is not a label selector: the first wrong requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a requirement on labels such as key=value, key!=value, key in (a,b), key notin (a,b), \
     key or !key"
)]
pub struct BadSelector(String);

impl LabelSelector {
    /// Whether these labels meet all requirements.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, condition }| {
            let value = labels.get(key);
            match condition {
                Condition::Exists => value.is_some(),
                Condition::Missing => value.is_none(),
                Condition::In(values) => value.is_some_and(|value| values.contains(value)),
                Condition::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            }
        })
    }
}

impl FromStr for LabelSelector {
    type Err = BadSelector;

    fn from_str(text: &str) -> Result<Self, BadSelector> {
        requirements(text)
            .into_iter()
            .map(|text| Requirement::parse(text).ok_or_else(|| BadSelector(text.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// The parts between commas that are outside of parentheses.
fn requirements(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth <= 0
    })
    .map(str::trim)
    .collect()
}

impl Requirement {
    fn parse(text: &str) -> Option<Self> {
        if let Some(key) = text.strip_prefix('!') {
            return Self::new(key, Condition::Missing);
        }
        // `=` last: it is a part of the other two operators.
        for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some((key, value)) = text.split_once(operator) {
                let values = vec![label_value(value)?];
                return Self::new(
                    key,
                    if negated { Condition::NotIn(values) } else { Condition::In(values) },
                );
            }
        }
        let Some((key, rest)) = text.split_once(char::is_whitespace) else {
            return Self::new(text, Condition::Exists);
        };
        let rest = rest.trim_start();
        let (list, negated) = rest
            .strip_prefix("notin")
            .map(|list| (list, true))
            .or_else(|| Some((rest.strip_prefix("in")?, false)))?;
        let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
        let values: Vec<String> = list.split(',').map(label_value).collect::<Option<_>>()?;
        Self::new(key, if negated { Condition::NotIn(values) } else { Condition::In(values) })
    }

    fn new(key: &str, condition: Condition) -> Option<Self> {
        let key = key.trim();
        let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        // A key is `PREFIX/NAME`: a DNS name of at most 253 characters, and a name of at most 63.
        (!key.is_empty() && key.len() <= 317 && key.chars().all(good))
            .then(|| Self { key: key.to_owned(), condition })
    }
}

fn label_value(text: &str) -> Option<String> {
    let text = text.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (text.len() <= 63 && text.chars().all(good)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_hold_together() {
        let labels = BTreeMap::from([
            ("os".to_owned(), "windows".to_owned()),
            ("a.b/zone".to_owned(), "z1".to_owned()),
        ]);
        for (text, matches) in [
            ("os=windows", true),
            ("os==windows", true),
            ("os=linux", false),
            ("os != linux", true),
            ("gpu!=yes", true),
            ("os", true),
            ("gpu", false),
            ("!gpu", true),
            ("a.b/zone in (z1, z2)", true),
            ("a.b/zone notin (z1,z2)", false),
            ("gpu notin (yes)", true),
            ("gpu in (yes)", false),
            ("os=windows,a.b/zone in (z1,z2),!gpu", true),
            ("os=windows,gpu", false),
        ] {
            assert_eq!(text.parse::<LabelSelector>().unwrap().matches(&labels), matches, "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_named() {
        for text in ["", "a=b,", "a in b", "a in (b", "=b", "a b", "a=b=c", "ä=b", "a>1"] {
            assert!(text.parse::<LabelSelector>().is_err(), "{text}");
        }
        assert!(
            "ok, a in b"
                .parse::<LabelSelector>()
                .unwrap_err()
                .to_string()
                .starts_with("\"a in b\" is not a requirement")
        );
    }
}
