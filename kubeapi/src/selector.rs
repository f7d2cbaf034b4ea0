//! Kubernetes label selectors, as text: the parser that kube, whose types they become, does not
//! have.

use std::collections::BTreeSet;

use kube::core::{Expression, Selector};

/// A text that is not a label selector: the first wrong requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a requirement on labels such as key=value, key!=value, key in (a,b), key notin (a,b), \
     key or !key"
)]
pub struct BadSelector(String);

/// A selector whose requirements must all hold: `kubernetes.io/os=windows,zone in (a,b),!gpu`.
///
/// # Errors
///
/// If a part between commas is not a requirement.
pub fn parse(text: &str) -> Result<Selector, BadSelector> {
    requirements(text)
        .into_iter()
        .map(|text| requirement(text).ok_or_else(|| BadSelector(text.to_owned())))
        .collect()
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

fn requirement(text: &str) -> Option<Expression> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(Expression::DoesNotExist(label_key(key)?));
    }
    // `=` last: it is a part of the other two operators.
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Expression::NotEqual(label_key(key)?, label_value(value)?));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Expression::Equal(label_key(key)?, label_value(value)?));
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else {
        return Some(Expression::Exists(label_key(text)?));
    };
    let rest = rest.trim_start();
    let (list, negated) = rest
        .strip_prefix("notin")
        .map(|list| (list, true))
        .or_else(|| Some((rest.strip_prefix("in")?, false)))?;
    let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
    let values: BTreeSet<String> = list.split(',').map(label_value).collect::<Option<_>>()?;
    let key = label_key(key)?;
    Some(if negated { Expression::NotIn(key, values) } else { Expression::In(key, values) })
}

fn label_key(text: &str) -> Option<String> {
    let key = text.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    // A key is `PREFIX/NAME`: a DNS name of at most 253 characters, and a name of at most 63.
    (!key.is_empty() && key.len() <= 317 && key.chars().all(good)).then(|| key.to_owned())
}

fn label_value(text: &str) -> Option<String> {
    let text = text.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (text.len() <= 63 && text.chars().all(good)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt as _;

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
            assert_eq!(parse(text).unwrap().matches(&labels), matches, "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_named() {
        for text in ["", "a=b,", "a in b", "a in (b", "=b", "a b", "a=b=c", "ä=b", "a>1"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(
            parse("ok, a in b")
                .unwrap_err()
                .to_string()
                .starts_with("\"a in b\" is not a requirement")
        );
    }
}
