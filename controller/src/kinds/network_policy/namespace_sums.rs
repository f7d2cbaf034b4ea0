//! What the policies of a namespace cost together, and which of them are within the limits of the
//! namespace: older ones come first, so that a new one never takes anything from one that works.
//! Knows no rows.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use contract::{limits::Exceeded, names::PolicyKey};

use crate::object::price::Price;

/// The sums, by namespace.
#[derive(Debug, Default)]
pub(crate) struct NamespaceSums {
    of: HashMap<Arc<str>, Members>,
}

/// The policies of a namespace in the order of their age, and those of one age in the order of
/// their names.
#[derive(Debug, Default)]
struct Members {
    prices: BTreeMap<(i64, PolicyKey), Price>,
    /// Of all of them, closed ones included.
    total: Price,
    closed: BTreeMap<PolicyKey, Exceeded>,
}

/// A policy that has come within the limits of its namespace; or has left them, and why.
pub(crate) type Change = (PolicyKey, Result<(), Exceeded>);

impl NamespaceSums {
    /// The price of a policy from now on. `before`: when the policy of this name was created that
    /// was there until now. Returns other policies that this moves across the limits.
    pub(crate) fn put(
        &mut self,
        key: &PolicyKey,
        before: Option<i64>,
        created: i64,
        price: Price,
    ) -> Vec<Change> {
        let members = self.of.entry(key.namespace().into()).or_default();
        members.leave(key, before);
        members.prices.insert((created, key.clone()), price);
        members.total.add(price);
        members.compare(key)
    }

    /// The policy is gone.
    pub(crate) fn remove(&mut self, key: &PolicyKey, created: i64) -> Vec<Change> {
        let Some(members) = self.of.get_mut(key.namespace()) else { return Vec::new() };
        members.leave(key, Some(created));
        members.closed.remove(key);
        let changes = members.compare(key);
        if members.prices.is_empty() {
            self.of.remove(key.namespace());
        }
        changes
    }

    /// # Errors
    ///
    /// The policy is beyond a limit of its namespace.
    pub(crate) fn check(&self, key: &PolicyKey) -> Result<(), Exceeded> {
        let closed = self.of.get(key.namespace()).and_then(|members| members.closed.get(key));
        closed.map_or(Ok(()), |exceeded| Err(*exceeded))
    }
}

impl Members {
    fn leave(&mut self, key: &PolicyKey, created: Option<i64>) {
        if let Some(price) = created.and_then(|created| self.prices.remove(&(created, key.clone())))
        {
            self.total.take(price);
        }
    }

    /// Decides anew which are within the limits. Returns those but `own` of which this changes
    /// something.
    fn compare(&mut self, own: &PolicyKey) -> Vec<Change> {
        // As almost always.
        if self.closed.is_empty() && self.total.check_namespace().is_ok() {
            return Vec::new();
        }
        let mut sum = Price::default();
        let mut closed = BTreeMap::new();
        for ((_, key), price) in &self.prices {
            let mut with_it = sum;
            with_it.add(*price);
            match with_it.check_namespace() {
                Ok(()) => sum = with_it,
                // A smaller one behind it may have room.
                Err(exceeded) => drop(closed.insert(key.clone(), exceeded)),
            }
        }
        let before = std::mem::replace(&mut self.closed, closed);
        let opened = before
            .keys()
            .filter(|key| !self.closed.contains_key(*key))
            .map(|key| (key.clone(), Ok(())));
        let newly = self.closed.iter().filter(|(key, _)| !before.contains_key(*key));
        let newly = newly.map(|(key, exceeded)| (key.clone(), Err(*exceeded)));
        opened.chain(newly).filter(|(key, _)| key != own).collect()
    }
}

#[cfg(test)]
mod tests {
    use contract::limits::NETWORK_POLICIES_ACLS;

    use super::*;

    fn key(name: &str) -> PolicyKey {
        PolicyKey::new("ns", name).unwrap()
    }

    fn of(acls: usize) -> Price {
        Price { acls, ..Price::default() }
    }

    fn names(changes: &[Change]) -> Vec<(String, bool)> {
        changes.iter().map(|(key, standing)| (key.name().to_owned(), standing.is_ok())).collect()
    }

    #[test]
    fn older_policies_stay_and_a_newer_one_comes_as_soon_as_there_is_room() {
        let most = NETWORK_POLICIES_ACLS.most;
        let mut sums = NamespaceSums::default();
        assert!(sums.put(&key("b"), None, 1, of(most - 10)).is_empty());
        assert!(sums.put(&key("a"), None, 2, of(20)).is_empty());
        let exceeded = sums.check(&key("a")).unwrap_err();
        assert_eq!((exceeded.limit, exceeded.value), (&NETWORK_POLICIES_ACLS, most + 10));
        // A smaller one has room, and one of another namespace is not concerned.
        assert!(sums.put(&key("c"), None, 3, of(10)).is_empty());
        let other = PolicyKey::new("other", "a").unwrap();
        assert!(sums.put(&other, None, 4, of(20)).is_empty());
        assert_eq!((sums.check(&key("c")), sums.check(&other)), (Ok(()), Ok(())));
        // An older one that grows takes the room of the newest.
        assert_eq!(names(&sums.put(&key("b"), Some(1), 1, of(most))), [("c".to_owned(), false)]);
        let changes = sums.remove(&key("b"), 1);
        assert_eq!(names(&changes), [("a".to_owned(), true), ("c".to_owned(), true)]);
        assert_eq!(sums.check(&key("a")), Ok(()));
        sums.remove(&key("a"), 2);
        sums.remove(&key("c"), 3);
        sums.remove(&other, 4);
        assert!(sums.of.is_empty());
    }

    #[test]
    fn of_policies_that_came_in_one_second_the_names_decide_whatever_the_order() {
        let price = of(NETWORK_POLICIES_ACLS.most);
        for order in [["a", "b"], ["b", "a"]] {
            let mut sums = NamespaceSums::default();
            for name in order {
                sums.put(&key(name), None, 7, price);
            }
            assert_eq!(
                (sums.check(&key("a")).is_ok(), sums.check(&key("b")).is_ok()),
                (true, false),
                "{order:?}"
            );
        }
    }
}
