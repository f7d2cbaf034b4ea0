//! Label selectors as kubectl takes them: `a=b,c!=d,e in (f,g),h notin (i),j,!k` (Kubernetes, "Labels and Selectors").

use kube::core::{Expression, Selector};

use super::kind::shown;

/// All of its requirements have to be met.
pub(super) fn parse(text: &str) -> Result<Selector, String> {
    let bad = || format!("{:?} is no label selector such as a=b,c!=d,e in (f,g),!h", shown(text));
    requirements(text).into_iter().map(|requirement| expression(requirement.trim()).ok_or_else(bad)).collect()
}

/// Split at the commas outside of brackets.
fn requirements(text: &str) -> Vec<&str> {
    let mut inside = false;
    let is_end = |c: char| {
        inside = (inside || c == '(') && c != ')';
        c == ',' && !inside
    };
    text.split(is_end).collect()
}

fn expression(text: &str) -> Option<Expression> {
    for (operator, make) in OPERATORS {
        if let Some((key, value)) = text.split_once(operator) {
            return Some(make(key_of(key.trim())?, value_of(value.trim())?));
        }
    }
    if let Some(key) = text.strip_prefix('!') {
        return Some(Expression::DoesNotExist(key_of(key.trim())?));
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else { return Some(Expression::Exists(key_of(text)?)) };
    let (operator, values) = rest.trim().split_once('(')?;
    let values = values.strip_suffix(')')?.split(',').map(|value| value_of(value.trim())).collect::<Option<_>>()?;
    match operator.trim() {
        "in" => Some(Expression::In(key_of(key)?, values)),
        "notin" => Some(Expression::NotIn(key_of(key)?, values)),
        _ => None,
    }
}

type Make = fn(String, String) -> Expression;

/// What contains another comes first.
const OPERATORS: [(&str, Make); 3] = [("!=", Expression::NotEqual), ("==", Expression::Equal), ("=", Expression::Equal)];

fn key_of(text: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    (!text.is_empty() && text.chars().all(good)).then(|| text.to_owned())
}

/// A label may have no value at all.
fn value_of(text: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().all(good).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt;

    use super::*;

    #[test]
    fn a_selector_selects_what_kubectl_would() {
        let labels: BTreeMap<String, String> =
            [("kubernetes.io/os", "windows"), ("tier", "b"), ("bare", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for selector in
            ["kubernetes.io/os=windows", "tier==b,bare", "tier in (a, b)", "tier notin (c),!other", "tier!=x", "bare=", "bare in ()"]
        {
            assert!(parse(selector).expect(selector).matches(&labels), "{selector}");
        }
        for selector in ["kubernetes.io/os=linux", "other", "!bare", "tier in (a,c)", "tier notin (b)", "bare,tier=a"] {
            assert!(!parse(selector).expect(selector).matches(&labels), "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_said() {
        for text in ["=", "a in b", "a in (b", "a b", "a=b,,c", "a=b c", "a>1", ","] {
            assert!(parse(text).is_err_and(|error| error.contains("is no label selector")), "{text}");
        }
    }
}
