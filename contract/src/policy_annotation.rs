//! Annotations of NetworkPolicies, which users write.

use std::collections::BTreeMap;

/// Annotation of a policy whose connections are not tracked: each direction needs a rule of its own.
pub const STATELESS: &str = "k8s.ovn.org/acl-stateless";

/// Annotations that are read of a policy.
pub const ALL: [&str; 1] = [STATELESS];

/// Characters of a value in a message.
const SHOWN: usize = 64;

/// Whether OVN tracks the connections that a policy allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tracking {
    /// Replies pass.
    #[default]
    Tracked,
    Stateless,
}

/// A value of an annotation that cannot be used. It is as if there were none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its annotation {annotation} has {value:?}, which is neither true nor false; it has no effect")]
pub struct BadPolicyAnnotation {
    pub annotation: &'static str,
    pub value: Box<str>,
}

impl Tracking {
    /// What the annotations of a policy say.
    ///
    /// # Errors
    /// The value is neither `true` nor `false`.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, BadPolicyAnnotation> {
        let is_stateless = switch(annotations, STATELESS)?;
        Ok(if is_stateless { Self::Stateless } else { Self::Tracked })
    }
}

fn switch(
    annotations: &BTreeMap<String, String>,
    annotation: &'static str,
) -> Result<bool, BadPolicyAnnotation> {
    match annotations.get(annotation).map(String::as_str) {
        Some("true") => Ok(true),
        Some("false") | None => Ok(false),
        Some(value) => Err(BadPolicyAnnotation {
            annotation,
            value: value.chars().take(SHOWN).collect::<String>().into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_makes_a_policy_stateless_and_what_is_no_switch_is_named() {
        let read = |text: &str| {
            Tracking::from_annotations(&BTreeMap::from([(STATELESS.to_owned(), text.to_owned())]))
        };
        assert_eq!((read("true"), read("false")), (Ok(Tracking::Stateless), Ok(Tracking::Tracked)));
        assert_eq!(Tracking::from_annotations(&BTreeMap::new()), Ok(Tracking::Tracked));
        for text in ["", "True", "1", "yes", &"x".repeat(10_000)] {
            let bad = read(text).unwrap_err();
            assert!(bad.annotation == STATELESS && bad.to_string().len() < 200, "{text}: {bad}");
        }
    }
}
