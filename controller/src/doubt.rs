//! A list of the API server that lacks much of what was there: is it true? Pure: knows neither the API nor the clock.
//!
//! An API server that was restored, lost its database, or is another cluster's gives complete lists that name little or nothing of what is
//! known. What they lack would lose its network at once. Such a list is not taken. It is asked for again some time later, after the question
//! which cluster this is ([`cluster_id`](crate::cluster_id)); what neither list has is gone. A list of another cluster is never taken.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use crate::{cluster_id::ClusterId, key::NodeName};

/// How much of a list may be missing at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Nodes,
    Pods,
}

/// Whether lists of one kind of object are believed.
#[derive(Debug)]
pub(crate) struct Doubt<K> {
    rule: Rule,
    held: Option<Held<K>>,
}

/// What the list that is not believed lacks, and which objects these were.
#[derive(Debug)]
struct Held<K> {
    missing: BTreeSet<(K, Option<Arc<str>>)>,
    /// Time has passed since, and it is the right cluster as far as is known: the next list is a second look.
    time_passed: bool,
}

/// What is doubted, in words for the log, `/readyz` and events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doubted {
    /// That the API server does not list, though they were there a moment ago.
    pub nodes: usize,
    pub pods: usize,
    /// The identity of this cluster and that of the API server, if they differ.
    pub other_cluster: Option<OtherCluster>,
    /// A node that is known, to tell it of.
    pub example: Option<NodeName>,
}

/// UIDs of the namespace `kube-system`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherCluster {
    pub own: Arc<str>,
    pub seen: Arc<str>,
}

/// Whose API server it is, and whether it still is.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The cluster that this process works for, as soon as it is known.
    own: ClusterId,
    other: Option<Arc<str>>,
}

impl Identity {
    pub(crate) fn of(own: Arc<str>) -> Self {
        Self { own: Some(own), other: None }
    }

    /// What the API server says it is; the first that is known counts, if it was not known from elsewhere.
    pub(crate) fn see(&mut self, id: ClusterId) {
        match (&self.own, id) {
            (Some(own), Some(id)) => self.other = (*own != id).then_some(id),
            // Nothing new is known.
            (Some(_), None) => {}
            (None, id) => self.own = id,
        }
    }

    /// None if it is not known, or not the API server's.
    pub(crate) fn own(&self) -> Option<&Arc<str>> {
        self.own.as_ref().filter(|_| self.other.is_none())
    }

    pub(crate) fn other_cluster(&self) -> Option<OtherCluster> {
        self.own.clone().zip(self.other.clone()).map(|(own, seen)| OtherCluster { own, seen })
    }
}

impl Rule {
    /// Whether so many of those that are known are too many to be believed at once.
    fn doubts(self, missing: usize, known: usize) -> bool {
        let all = missing == known;
        match self {
            // A node goes alone, or with few others; that all go never happens.
            Self::Nodes => all && missing > 0 || missing > 2 && missing * 5 > known,
            // A namespace goes with its pods, and a drained node loses its own.
            Self::Pods => all && missing > 1 || missing > 4 && missing * 2 > known || missing > 50 && missing * 5 > known,
        }
    }
}

impl<K: Ord + std::hash::Hash> Doubt<K> {
    pub(crate) fn new(rule: Rule) -> Self {
        Self { rule, held: None }
    }

    /// How many objects a list lacked that was not believed.
    pub(crate) fn missing(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.missing.len())
    }

    /// Whether what is seen says nothing, until a list is believed.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a list is to be believed: `known` are the objects that something would be taken from if they were gone, `listed` those that
    /// are there. One of another uid is another object; without a uid the name decides.
    pub(crate) fn believes(&mut self, known: impl IntoIterator<Item = (K, Option<Arc<str>>)>, listed: &HashMap<&K, &Arc<str>>) -> bool {
        let mut all = 0;
        let is_missing = |(key, uid): &(K, Option<Arc<str>>)| match (listed.get(key), uid) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(now), Some(uid)) => *now != uid,
        };
        let missing: BTreeSet<_> = known.into_iter().inspect(|_| all += 1).filter(is_missing).collect();
        let new = match &self.held {
            Some(Held { missing: before, time_passed: true }) => missing.difference(before).count(),
            Some(Held { time_passed: false, .. }) | None => missing.len(),
        };
        let believed = !self.rule.doubts(new, all);
        self.held = (!believed).then_some(Held { missing, time_passed: false });
        believed
    }

    /// The next list is a second look.
    pub(crate) fn time_passed(&mut self) {
        if let Some(held) = &mut self.held {
            held.time_passed = true;
        }
    }

    /// Nothing is believed before the next list.
    pub(crate) fn hold(&mut self) {
        self.held.get_or_insert(Held { missing: BTreeSet::new(), time_passed: false });
    }
}

impl fmt::Display for Doubted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, pods, other_cluster, example: _ } = self;
        if let Some(OtherCluster { own, seen }) = other_cluster {
            return write!(
                f,
                "the API server is another cluster's (the uid of its namespace kube-system is {seen} and not {own}): what it says is not \
                 believed, and nothing is removed; see the kubeconfig"
            );
        }
        write!(
            f,
            "the API server suddenly lists {nodes} nodes and {pods} pods fewer than were there: nothing is removed before a second list \
             says the same; is this the right API server, with its data?"
        )
    }
}

#[cfg(test)]
mod tests;
