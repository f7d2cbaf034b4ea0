//! What all Services of a namespace may cost together: the older ones are served, as many as fit.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{Hash, Hasher},
    ops::Bound,
    sync::Arc,
};

use contract::{limits::Exceeded, names::ServiceKey};

use super::{claims::Claimant, cost::Cost};

/// The costs of all Services.
#[derive(Debug, Default)]
pub struct Quotas {
    namespaces: HashMap<Arc<str>, Namespace>,
}

/// The Services of a namespace, the oldest first.
#[derive(Debug, Default)]
struct Namespace {
    costs: BTreeMap<Arc<Claimant>, Cost>,
    members: HashSet<Member>,
    /// The first Service that is not served; none: all are.
    first_out: Option<Arc<Claimant>>,
    /// What those before cost.
    sum: Cost,
}

/// A Service of a namespace, found by its key.
#[derive(Debug)]
struct Member(Arc<Claimant>);

impl Borrow<ServiceKey> for Member {
    fn borrow(&self) -> &ServiceKey {
        &self.0.service
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        self.0.service == other.0.service
    }
}

impl Eq for Member {}

impl Hash for Member {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.service.hash(state);
    }
}

impl Quotas {
    /// A Service costs this from now on; none: it has gone. Returns the Services that are served
    /// from now on, or no longer.
    pub fn set(
        &mut self,
        key: &ServiceKey,
        cost: Option<(Arc<Claimant>, Cost)>,
    ) -> BTreeSet<ServiceKey> {
        let namespace = match (self.namespaces.get_mut(key.namespace()), &cost) {
            (Some(namespace), _) => namespace,
            (None, None) => return BTreeSet::new(),
            (None, Some(_)) => self.namespaces.entry(key.namespace().into()).or_default(),
        };
        namespace.set(key, cost);
        let changed = namespace.settle();
        if namespace.costs.is_empty() {
            self.namespaces.remove(key.namespace());
        }
        changed
    }

    /// Whether the Service is among those that fit.
    pub fn admits(&self, key: &ServiceKey) -> bool {
        let of_namespace = || {
            let namespace = self.namespaces.get(key.namespace())?;
            Some(namespace.is_in(namespace.claimant(key)?))
        };
        of_namespace().unwrap_or(true)
    }

    /// Why the Service is not served; none if it is.
    pub fn exceeded(&self, key: &ServiceKey) -> Option<Exceeded> {
        let namespace = self.namespaces.get(key.namespace())?;
        let claimant = namespace.claimant(key)?;
        let first = namespace.first_out.as_ref().filter(|first| *first <= claimant)?;
        // At least: those between the two are not counted.
        let mut sum = namespace.sum.plus(*namespace.costs.get(first)?);
        if first != claimant {
            sum = sum.plus(*namespace.costs.get(claimant)?);
        }
        sum.check_namespace().err()
    }
}

impl Namespace {
    fn claimant(&self, key: &ServiceKey) -> Option<&Arc<Claimant>> {
        self.members.get(key).map(|Member(claimant)| claimant)
    }

    fn is_in(&self, claimant: &Arc<Claimant>) -> bool {
        self.first_out.as_ref().is_none_or(|first| claimant < first)
    }

    fn set(&mut self, key: &ServiceKey, after: Option<(Arc<Claimant>, Cost)>) {
        let before = self.claimant(key).cloned();
        if let Some(before) =
            before.filter(|before| after.as_ref().map(|(it, _)| it) != Some(before))
        {
            let was_in = self.is_in(&before);
            if self.first_out.as_ref() == Some(&before) {
                self.first_out = self.after(&before);
            }
            let gone = self.costs.remove(&before).filter(|_| was_in);
            self.sum = self.sum.minus(gone.unwrap_or_default());
            self.members.remove(key);
        }
        let Some((claimant, cost)) = after else { return };
        if !self.members.contains(key) {
            self.members.insert(Member(Arc::clone(&claimant)));
        }
        let is_in = self.is_in(&claimant);
        let before = self.costs.insert(claimant, cost).unwrap_or_default();
        if is_in {
            self.sum = self.sum.minus(before).plus(cost);
        }
    }

    /// The next younger one.
    fn after(&self, claimant: &Arc<Claimant>) -> Option<Arc<Claimant>> {
        let younger = (Bound::Excluded(claimant), Bound::Unbounded);
        self.costs.range::<Arc<Claimant>, _>(younger).next().map(|(next, _)| Arc::clone(next))
    }

    /// Moves the border between those that are served and those that are not. Returns those that it
    /// passes.
    fn settle(&mut self) -> BTreeSet<ServiceKey> {
        let mut passed = BTreeSet::new();
        while self.sum.check_namespace().is_err() {
            let last = match &self.first_out {
                Some(first) => self.costs.range::<Arc<Claimant>, _>(..first).next_back(),
                None => self.costs.last_key_value(),
            };
            let Some((last, cost)) = last else { break };
            self.sum = self.sum.minus(*cost);
            passed.insert(last.service.clone());
            self.first_out = Some(Arc::clone(last));
        }
        while let Some(first) = self.first_out.clone() {
            let cost = self.costs.get(&first).copied().unwrap_or_default();
            let sum = self.sum.plus(cost);
            if sum.check_namespace().is_err() {
                break;
            }
            self.sum = sum;
            passed.insert(first.service.clone());
            self.first_out = self.after(&first);
        }
        passed
    }
}

#[cfg(test)]
mod tests;
