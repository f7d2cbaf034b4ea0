//! Annotations of NetworkPolicies, which users write.

use std::collections::BTreeMap;

use crate::switch::{self, NotASwitch};

/// Annotation of a policy whose connections are not tracked: each direction needs a rule of its
/// own.
pub const STATELESS: &str = "k8s.ovn.org/acl-stateless";

/// Annotation of a policy that decides nothing: what it would drop is logged.
pub const DRY_RUN: &str = "k8s.ovn.org/policy-dry-run";

/// Annotations that are read of a policy.
pub const ALL: [&str; 2] = [STATELESS, DRY_RUN];

/// Whether OVN tracks the connections that a policy allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tracking {
    /// Replies pass.
    #[default]
    Tracked,
    Stateless,
}

/// Whether a policy decides on connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Enforcement {
    #[default]
    Enforced,
    /// It selects what it would select, and changes no verdict.
    DryRun,
}

/// A value of an annotation that cannot be used. It is as if there were none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its annotation {0}; it has no effect")]
pub struct BadPolicyAnnotation(#[from] pub NotASwitch);

impl Tracking {
    /// What the annotations of a policy say.
    ///
    /// # Errors
    /// The value is neither `true` nor `false`.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Self, BadPolicyAnnotation> {
        let is_stateless = switch::is_on(annotations, STATELESS)?;
        Ok(if is_stateless { Self::Stateless } else { Self::Tracked })
    }
}

impl Enforcement {
    /// What the annotations of a policy say.
    ///
    /// # Errors
    /// The value is neither `true` nor `false`. The policy is enforced then: a misspelt value must
    /// not open pods.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Self, BadPolicyAnnotation> {
        let is_dry_run = switch::is_on(annotations, DRY_RUN)?;
        Ok(if is_dry_run { Self::DryRun } else { Self::Enforced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_makes_a_policy_a_dry_run() {
        let read = |text: &str| {
            Enforcement::from_annotations(&BTreeMap::from([(DRY_RUN.to_owned(), text.to_owned())]))
        };
        assert_eq!(
            (read("true"), read("false")),
            (Ok(Enforcement::DryRun), Ok(Enforcement::Enforced))
        );
        assert_eq!(Enforcement::from_annotations(&BTreeMap::new()), Ok(Enforcement::Enforced));
        assert_eq!(read("yes").unwrap_err().0.annotation, DRY_RUN);
    }

    #[test]
    fn only_true_makes_a_policy_stateless_and_another_value_has_no_effect() {
        let read = |text: &str| {
            Tracking::from_annotations(&BTreeMap::from([(STATELESS.to_owned(), text.to_owned())]))
        };
        assert_eq!((read("true"), read("false")), (Ok(Tracking::Stateless), Ok(Tracking::Tracked)));
        assert_eq!(Tracking::from_annotations(&BTreeMap::new()), Ok(Tracking::Tracked));
        assert!(read("").unwrap_err().to_string().contains(r#"has """#));
        assert_eq!(
            read("yes").unwrap_err().to_string(),
            r#"its annotation k8s.ovn.org/acl-stateless has "yes", which is neither true nor false; it has no effect"#
        );
    }
}
