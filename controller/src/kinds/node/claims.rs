//! What only one node can have, and what nodes say that they have: chassis, and addresses on the
//! join switch.
//!
//! A node writes of itself what it has. Two may say the same: a machine that was cloned, a node
//! that has another name now, a node that wants to be taken for another. Whoever has it keeps it
//! while its Node object lives; of several that come at once, the oldest Node object has it. A node
//! of which Kubernetes hears nothing any more (the taint `node.kubernetes.io/unreachable`, which
//! kubelets cannot write) gives way to one of which it does, and has it back when it returns.

use std::collections::{BTreeMap, BTreeSet};

use crate::key::NodeName;

/// The claims of nodes on things of one kind, and who has each thing.
#[derive(Debug)]
pub(crate) struct Claims<T> {
    of_nodes: BTreeMap<NodeName, BTreeSet<T>>,
    claimants: BTreeMap<T, BTreeSet<NodeName>>,
    /// Who had the thing first, of those that live.
    owners: BTreeMap<T, NodeName>,
    /// Who has it: its owner, unless that is unreachable.
    holders: BTreeMap<T, NodeName>,
}

/// What decides between two nodes, beside who has the thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    pub(crate) is_unreachable: bool,
    /// Seconds since 1970.
    pub(crate) created: i64,
}

impl<T> Default for Claims<T> {
    fn default() -> Self {
        Self {
            of_nodes: BTreeMap::new(),
            claimants: BTreeMap::new(),
            owners: BTreeMap::new(),
            holders: BTreeMap::new(),
        }
    }
}

impl<T: Ord + Clone> Claims<T> {
    /// The node had the thing at the start, as far as the database shows.
    pub(crate) fn found(&mut self, thing: T, node: NodeName) {
        self.owners.entry(thing).or_insert(node);
    }

    /// What the node says that it has.
    pub(crate) fn of(&self, node: &str) -> impl Iterator<Item = &T> {
        self.of_nodes.get(node).into_iter().flatten()
    }

    /// The node that has the thing.
    pub(crate) fn holder(&self, thing: &T) -> Option<&NodeName> {
        self.holders.get(thing)
    }

    /// All nodes that say that they have the thing.
    pub(crate) fn claimants(&self, thing: &T) -> impl Iterator<Item = &NodeName> {
        self.claimants.get(thing).into_iter().flatten()
    }

    /// The other nodes that say that they have it.
    pub(crate) fn others(&self, thing: &T) -> impl Iterator<Item = &NodeName> {
        let holder = self.holder(thing);
        self.claimants(thing).filter(move |node| Some(*node) != holder)
    }

    fn claims(&self, node: &str, thing: &T) -> bool {
        self.of_nodes.get(node).is_some_and(|own| own.contains(thing))
    }

    /// The node says that it has these things, and no others. Returns the things that may have
    /// another holder now: those that it claims or claimed.
    pub(crate) fn claim(&mut self, node: &NodeName, things: BTreeSet<T>) -> BTreeSet<T> {
        let before = self.of_nodes.remove(node).unwrap_or_default();
        for thing in before.difference(&things) {
            if let Some(nodes) = self.claimants.get_mut(thing) {
                nodes.remove(node);
                if nodes.is_empty() {
                    self.claimants.remove(thing);
                }
            }
        }
        for thing in things.difference(&before) {
            self.claimants.entry(thing.clone()).or_default().insert(node.clone());
        }
        let concerned = before.union(&things).cloned().collect();
        if !things.is_empty() {
            self.of_nodes.insert(node.clone(), things);
        }
        concerned
    }

    /// Decides who has the thing. Returns who had it, if that is another node now.
    pub(crate) fn decide(
        &mut self,
        thing: &T,
        standing: impl Fn(&NodeName) -> Standing,
    ) -> Option<NodeName> {
        let lives = |node: &&NodeName| self.claims(node, thing);
        let age = |node: &&NodeName| (standing(node).created, (*node).clone());
        let holder = self.holders.get(thing).filter(lives);
        let owner = self.owners.get(thing).filter(lives).or(holder);
        let owner = owner.or_else(|| self.claimants(thing).min_by_key(age)).cloned();
        let is_reachable = |node: &&NodeName| !standing(node).is_unreachable;
        let reachable = self.claimants(thing).filter(is_reachable);
        let instead = || reachable.min_by_key(|node| (Some(*node) != holder, age(node)));
        let next = owner.as_ref().filter(is_reachable).or_else(instead).or(owner.as_ref()).cloned();
        match owner {
            Some(owner) => drop(self.owners.insert(thing.clone(), owner)),
            None => drop(self.owners.remove(thing)),
        }
        let before = match next.clone() {
            Some(next) => self.holders.insert(thing.clone(), next),
            None => self.holders.remove(thing),
        };
        before.filter(|before| Some(before) != next.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(is_unreachable: bool, created: i64) -> Standing {
        Standing { is_unreachable, created }
    }

    #[test]
    fn who_has_a_thing_keeps_it_while_it_lives_and_is_reachable() {
        let [old, new]: [NodeName; 2] = ["a-old".into(), "b-new".into()];
        let mut claims = Claims::default();
        let decide = |claims: &mut Claims<u8>, unreachable: Option<&NodeName>| {
            claims.decide(&7, |node| {
                standing(unreachable == Some(node), if *node == old { 1 } else { 2 })
            });
            claims.holder(&7).cloned()
        };
        assert_eq!(claims.claim(&new, [7].into()), [7].into());
        assert_eq!(decide(&mut claims, None), Some(new.clone()));
        claims.claim(&old, [7].into());
        assert_eq!(decide(&mut claims, None), Some(new.clone()), "an older one comes too late");
        assert_eq!(claims.others(&7).collect::<Vec<_>>(), [&old]);
        assert_eq!(decide(&mut claims, Some(&new)), Some(old.clone()));
        assert_eq!(decide(&mut claims, None), Some(new.clone()), "it has it back");
        claims.claim(&new, BTreeSet::new());
        assert_eq!(decide(&mut claims, None), Some(old.clone()));
        claims.claim(&old, BTreeSet::new());
        assert_eq!(decide(&mut claims, None), None);
    }

    #[test]
    fn at_the_start_the_one_that_the_database_knows_has_it_and_else_the_oldest() {
        let [old, new]: [NodeName; 2] = ["b-old".into(), "a-new".into()];
        for (found, has) in [(None, &old), (Some(&new), &new)] {
            let mut claims = Claims::default();
            found.into_iter().for_each(|node| claims.found(7, node.clone()));
            claims.claim(&old, [7].into());
            claims.claim(&new, [7].into());
            claims.decide(&7, |node| standing(false, if *node == old { 1 } else { 2 }));
            assert_eq!(claims.holder(&7), Some(has));
        }
    }
}
