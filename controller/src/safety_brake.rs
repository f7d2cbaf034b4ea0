//! The safety brake for lists of the API server that lack much of what was known. Pure: knows
//! neither the API nor the clock.
//!
//! An API server that was restored, has lost its database or belongs to another cluster sends
//! complete lists with little or nothing of what is known. Applied, such a list would remove the
//! network of all that it lacks. So it is doubted and not applied. Some time later the identity of
//! the cluster is read (`cluster_id.rs`) and everything is listed again: objects that both lists
//! lack are gone. A list of another cluster is never applied.
//!
//! The reasons for the limits are in `docs/decisions/lists-that-are-doubted.md`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use contract::definition::CustomKind;

use crate::key::NodeName;

/// The uid of `kube-system`, which identifies a cluster; none if the API server does not tell it.
pub type ClusterId = Option<Arc<str>>;

/// How many objects may disappear at once before a list is doubted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Also policies of the cluster, EgressFirewalls and their like: few, and one of them can be all that
    /// denies.
    Nodes,
    /// Also Services and their slices, namespaces and policies.
    Pods,
}

/// The doubt about lists of one kind of object.
#[derive(Debug)]
pub(crate) struct SafetyBrake<K> {
    rule: Rule,
    held: Option<Held<K>>,
}

/// A doubted list: the objects that it lacks, by key and uid.
#[derive(Debug)]
struct Held<K> {
    missing: BTreeSet<(K, Option<Arc<str>>)>,
    /// Enough time has passed, and the cluster is the right one as far as is known: the next list
    /// is the second look.
    time_passed: bool,
}

/// What is doubted. Its `Display` is for the log, `/readyz` and events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldLists {
    /// Number of known nodes that the API server suddenly does not list.
    pub nodes: usize,
    /// Number of known pods that the API server suddenly does not list.
    pub pods: usize,
    /// Number of known Services that the API server suddenly does not list.
    pub services: usize,
    /// Number of known EndpointSlices that the API server suddenly does not list.
    pub slices: usize,
    /// Number of known Namespaces that the API server suddenly does not list.
    pub namespaces: usize,
    /// Number of known NetworkPolicies that the API server suddenly does not list.
    pub policies: usize,
    /// Number of known policies of the whole cluster that the API server suddenly does not list.
    pub cluster_policies: usize,
    /// The same of the kinds of which a namespace has one object.
    pub custom: BTreeMap<CustomKind, usize>,
    /// The identities of this cluster and of the API server, if they differ.
    pub other_cluster: Option<OtherCluster>,
    /// A known node: an event needs an object.
    pub example: Option<Example>,
}

/// A node that an event can be on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub name: NodeName,
    /// None of a node that is known from the northbound database alone.
    pub uid: Option<Arc<str>>,
}

/// UIDs of the namespace `kube-system`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherCluster {
    pub own: Arc<str>,
    pub seen: Arc<str>,
}

/// The identity of this cluster, and whether the API server still has it.
#[derive(Debug, Default)]
pub(crate) struct ClusterIdentity {
    /// The cluster that this process works for; none before it is known.
    own: ClusterId,
    /// The API server's identity, if it is another one.
    other: Option<Arc<str>>,
    /// The northbound database told the identity, which does not depend on the API server.
    is_recorded: bool,
    /// The API server had the same identity when it was asked last.
    is_same: bool,
}

impl ClusterIdentity {
    pub(crate) fn of(own: Arc<str>) -> Self {
        Self { own: Some(own), is_recorded: true, ..Self::default() }
    }

    /// Takes the identity that the API server tells. Unless the northbound database told one
    /// before, the first is this cluster's.
    pub(crate) fn see(&mut self, id: ClusterId) {
        self.is_same = id.is_some() && self.own == id;
        match (&self.own, id) {
            (Some(own), Some(id)) => self.other = (*own != id).then_some(id),
            // Without an answer the last comparison stands.
            (Some(_), None) => {}
            (None, id) => self.own = id,
        }
    }

    /// This cluster's identity; none while it is unknown or the API server has another one.
    pub(crate) fn own(&self) -> Option<&Arc<str>> {
        self.own.as_ref().filter(|_| self.other.is_none())
    }

    /// Whether the API server is the one of the cluster that the northbound database was written
    /// for.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.is_recorded && self.is_same
    }

    pub(crate) fn other_cluster(&self) -> Option<OtherCluster> {
        self.own.clone().zip(self.other.clone()).map(|(own, seen)| OtherCluster { own, seen })
    }
}

impl Rule {
    /// Whether `missing` of `known` objects are too many to disappear at once.
    fn doubts(self, missing: usize, known: usize) -> bool {
        let all = missing == known;
        match self {
            // Nodes leave alone or with a few others, never all. HeldLists: all, or more than two
            // and more than 20 %.
            Self::Nodes => all && missing > 0 || missing > 2 && missing * 5 > known,
            // A deleted namespace or a drained node takes many pods at once. HeldLists: all of at
            // least two, more than four and more than half, or more than 50 and more than 20 %.
            Self::Pods => {
                all && missing > 1
                    || missing > 4 && missing * 2 > known
                    || missing > 50 && missing * 5 > known
            }
        }
    }
}

impl<K: Ord + std::hash::Hash> SafetyBrake<K> {
    pub(crate) fn new(rule: Rule) -> Self {
        Self { rule, held: None }
    }

    /// Number of objects that the doubted list lacks; 0 without a doubt.
    pub(crate) fn missing(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.missing.len())
    }

    /// Whether observations are ignored until a list is believed.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a list is believed. `known`: the objects that would lose something if they were
    /// gone. `listed`: the objects of the list. An object of another uid is another object; where
    /// no uid is known, the name decides.
    pub(crate) fn believes(
        &mut self,
        known: impl IntoIterator<Item = (K, Option<Arc<str>>)>,
        listed: &HashMap<&K, &Arc<str>>,
    ) -> bool {
        self.believes_with(0, known, listed)
    }

    /// The same, where so many objects of the list may have taken the places of missing ones.
    pub(crate) fn believes_with(
        &mut self,
        successors: usize,
        known: impl IntoIterator<Item = (K, Option<Arc<str>>)>,
        listed: &HashMap<&K, &Arc<str>>,
    ) -> bool {
        let mut all = 0;
        let is_missing = |(key, uid): &(K, Option<Arc<str>>)| match (listed.get(key), uid) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(now), Some(uid)) => *now != uid,
        };
        let missing: BTreeSet<_> =
            known.into_iter().inspect(|_| all += 1).filter(is_missing).collect();
        // In a second look, objects that the first list lacked as well are gone: only others count.
        let new = match &self.held {
            Some(Held { missing: before, time_passed: true }) => missing.difference(before).count(),
            Some(Held { time_passed: false, .. }) | None => missing.len(),
        };
        let believed = !self.rule.doubts(new.saturating_sub(successors), all);
        self.held = (!believed).then_some(Held { missing, time_passed: false });
        believed
    }

    /// Whether the next list is a second look.
    pub(crate) fn is_second_look(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.time_passed)
    }

    /// Makes the next list the second look.
    pub(crate) fn time_passed(&mut self) {
        if let Some(held) = &mut self.held {
            held.time_passed = true;
        }
    }

    /// Ends the doubt: a list was accepted by other evidence.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }

    /// Ignores observations until the next list.
    pub(crate) fn hold(&mut self) {
        self.held.get_or_insert(Held { missing: BTreeSet::new(), time_passed: false });
    }
}

impl HeldLists {
    /// Number of objects that are doubted.
    pub fn missing(&self) -> usize {
        let Self { nodes, pods, services, slices, namespaces, policies, .. } = self;
        let Self { cluster_policies, .. } = self;
        nodes
            + pods
            + services
            + slices
            + namespaces
            + policies
            + cluster_policies
            + self.missing_custom()
    }
}

impl HeldLists {
    /// Number of objects that are doubted, of the kinds of which a namespace has one.
    pub(crate) fn missing_custom(&self) -> usize {
        self.custom.values().sum()
    }
}

impl fmt::Display for HeldLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, pods, services, slices, namespaces, policies, .. } = self;
        let Self { cluster_policies, custom, other_cluster, .. } = self;
        if let Some(OtherCluster { own, seen }) = other_cluster {
            return write!(
                f,
                "the API server belongs to another cluster (the uid of its namespace kube-system is {seen}, \
                 expected {own}); its lists are ignored and nothing is removed; check the kubeconfig"
            );
        }
        write!(f, "the API server suddenly lists {nodes} nodes and {pods} pods")?;
        if services + slices > 0 {
            write!(f, ", {services} Services and {slices} EndpointSlices")?;
        }
        if namespaces + policies > 0 {
            write!(f, ", {namespaces} Namespaces and {policies} NetworkPolicies")?;
        }
        if cluster_policies + self.missing_custom() > 0 {
            write!(f, ", {cluster_policies} policies of the cluster")?;
            for (kind, missing) in custom {
                write!(f, " and {missing} {}", kind.plural())?;
            }
        }
        write!(
            f,
            " fewer than before; \
             nothing is removed until a second list says the same; \
             check that this is the right API server and that it has its data"
        )
    }
}

#[cfg(test)]
mod tests;
