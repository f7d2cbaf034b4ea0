//! Bytes of rules that are in memory, by namespace: in lists that are being read, on their way, and
//! in the store.
//!
//! The store decides which policies of a namespace count, by their age. A list brings all of them
//! before it can decide, and 5,000 policies of a megabyte are not for any memory: beyond some bytes
//! of one namespace a policy comes without its rules. The store asks for those that it wants
//! ([`policy_reader`](crate::policy_reader)).

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use contract::limits::NETWORK_POLICIES_BYTES;

use crate::kinds::network_policy::{ledger_entry::Entry, object::Policy};

/// What one namespace may have in memory: all that counts twice, as while each of its policies is
/// changed.
const MOST: usize = 2 * NETWORK_POLICIES_BYTES.most;

/// The sums of bytes.
#[derive(Debug, Default)]
pub(crate) struct Ledger(HashMap<Arc<str>, Arc<AtomicUsize>>);

impl Ledger {
    /// Counts the rules of a policy of the namespace that was just read, or takes them away.
    pub(crate) fn enter(&mut self, namespace: &str, policy: &mut Policy) {
        let bytes = policy.price.bytes;
        if bytes == 0 {
            return;
        }
        if !self.0.contains_key(namespace) {
            // Namespaces come and go.
            self.0.retain(|_, sum| Arc::strong_count(sum) > 1);
            self.0.insert(namespace.into(), Arc::default());
        }
        let Some(sum) = self.0.get(namespace) else { return };
        let with_it = sum.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let entry = Entry { bytes, sum: Arc::clone(sum) };
        if with_it > MOST {
            policy.drop_rules(contract::limits::Exceeded {
                limit: &NETWORK_POLICIES_BYTES,
                value: with_it,
            });
        } else {
            policy.entry = Some(Arc::new(entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::names::PolicyKey;
    use serde_json::json;

    use super::*;

    fn policy(name: usize) -> Policy {
        let key = PolicyKey::new("ns", &format!("p{name}")).unwrap();
        let blocks =
            vec![json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "padding": "x".repeat(100_000)}); 5];
        Policy::new(&key, "uid", json!({"ingress": [{"from": blocks}]}))
    }

    #[test]
    fn what_is_beyond_the_memory_of_a_namespace_comes_without_rules_until_others_have_gone() {
        let mut ledger = Ledger::default();
        let mut kept = Vec::new();
        let rules =
            |policy: &Policy| policy.rules(crate::select::peer::Direction::Ingress).map(<[_]>::len);
        loop {
            let mut policy = policy(kept.len());
            ledger.enter("ns", &mut policy);
            if rules(&policy) == Some(0) {
                assert!(policy.is_without_rules() && policy.is_too_large());
                break;
            }
            kept.push(policy);
        }
        assert_eq!(kept.len(), MOST / kept[0].price.bytes);
        let (mut other, mut next) = (policy(0), policy(0));
        ledger.enter("other", &mut other);
        assert_eq!(rules(&other), Some(1), "another namespace has its own");
        let copy = kept.pop();
        drop(copy);
        ledger.enter("ns", &mut next);
        assert_eq!(rules(&next), Some(1));
    }
}
