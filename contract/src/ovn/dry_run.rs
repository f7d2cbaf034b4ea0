//! The name of the ACL that logs what a NetworkPolicy would drop that is a dry run. The controller
//! writes it; a node reads it in the flow that ovn-controller makes of the ACL.

use std::str::FromStr;

use super::{ids::hash, names::LONGEST_ACL_NAME};
use crate::names::PolicyKey;

/// The first part of the name.
const PREFIX: &str = "DryRun";
/// Directions, as the API spells them.
const DIRECTIONS: [&str; 2] = ["Ingress", "Egress"];
/// Letters of the namespace in a name that would be too long: more than a third, so that most fit.
const SHORT_NAMESPACE: usize = 15;
/// Between a policy's name that is cut off and the hash of the whole. No name of an object has it.
const CUT: char = '~';

/// A policy's dry run in a direction. `Display` prints the ACL's name: `DryRun:shop:db:Ingress`.
///
/// Names of ACLs have at most 63 characters. If this is too long, namespace and name are cut off,
/// and a hash follows: `DryRun:a-namespace-who:a-policy~a6124…:Ingress`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DryRun {
    pub namespace: String,
    /// The policy's name, or what is printed instead of it.
    pub policy: String,
    pub direction: &'static str,
}

impl DryRun {
    /// `direction`: `Ingress` or `Egress`.
    pub fn new(policy: &PolicyKey, direction: &'static str) -> Self {
        let (namespace, name) = (policy.namespace(), policy.name());
        let whole = Self { namespace: namespace.to_owned(), policy: name.to_owned(), direction };
        if whole.to_string().len() <= LONGEST_ACL_NAME {
            return whole;
        }
        // Names of objects are ASCII, so that any byte ends a character.
        let namespace: String = namespace.chars().take(SHORT_NAMESPACE).collect();
        let hash = hash(&format!("{}:{}", policy.namespace(), policy.name()));
        let without_name = Self { namespace, policy: format!("{CUT}{hash}"), direction };
        let room = LONGEST_ACL_NAME.saturating_sub(without_name.to_string().len());
        let name: String = name.chars().take(room).collect();
        Self { policy: format!("{name}{}", without_name.policy), ..without_name }
    }
}

impl std::fmt::Display for DryRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { namespace, policy, direction } = self;
        write!(f, "{PREFIX}:{namespace}:{policy}:{direction}")
    }
}

/// The text is not the name of a dry run's ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a dry run")]
pub struct NoDryRun;

impl FromStr for DryRun {
    type Err = NoDryRun;

    fn from_str(text: &str) -> Result<Self, NoDryRun> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(NoDryRun);
        let (prefix, namespace, policy, direction) = (next()?, next()?, next()?, next()?);
        let direction = DIRECTIONS.into_iter().find(|known| *known == direction).ok_or(NoDryRun)?;
        if prefix != PREFIX || parts.next().is_some() {
            return Err(NoDryRun);
        }
        Ok(Self { namespace: namespace.to_owned(), policy: policy.to_owned(), direction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_policy_and_direction_also_when_it_is_cut_off() {
        let name = |namespace: &str, name: &str, direction| {
            DryRun::new(&PolicyKey::new(namespace, name).unwrap(), direction)
        };
        let short = name("shop", "db.internal", "Ingress");
        assert_eq!(short.to_string(), "DryRun:shop:db.internal:Ingress");
        let long =
            |end: &str| name(&"n".repeat(63), &format!("{}{end}", "p".repeat(252)), "Egress");
        let (one, other) = (long("a"), long("b"));
        assert_ne!(one, other, "two policies are told apart");
        for name in [
            short,
            one,
            other,
            name("n", &"p".repeat(45), "Ingress"),
            name("n", &"p".repeat(46), "Ingress"),
        ] {
            let text = name.to_string();
            assert!(text.len() <= 63, "{text}");
            assert_eq!(text.parse(), Ok(name));
        }
    }

    #[test]
    fn other_names_of_acls_are_none() {
        for text in
            ["", "NP:shop:db:Ingress", "DryRun:shop:db", "DryRun:shop:db:in", "DryRun:a:b:Egress:0"]
        {
            assert_eq!(text.parse::<DryRun>(), Err(NoDryRun), "{text}");
        }
    }
}
