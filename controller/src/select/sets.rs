//! The sets of addresses that policies name: which there are, and which pods are in them. Who is in
//! those of names and of nodes, `names` and `node_addresses` know; of names of ports,
//! `named_ports`.
//!
//! A set is there as long as a policy names it. A set that a policy does not name any more stays
//! until the database shows the policy's new rows: a rule that names a set which is not there
//! allows nothing, not even its other peers. An address that has left a set is free only when the
//! database shows that it has.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
};

use contract::names::PodKey;
use kubeapi::services::Protocol;

use crate::{
    few::{Few, give_back, leave},
    key::{AnyPolicy, SetId},
    select::{
        peer::PodPeer,
        selectors::SelectorId,
        sets::named_ports::{NameIn, Numbers},
    },
};

pub(crate) mod named_ports;

/// The sets.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    /// By the canonical text of their selectors.
    pub(crate) pods: HashMap<Arc<str>, PodSet>,
    /// By the selectors of their pods and namespaces.
    pub(crate) by_selectors: HashMap<Selecting, Few<Arc<str>>>,
    by_namespaces: HashMap<SelectorId, BTreeSet<Arc<str>>>,
    /// Pods that need their network, by their ports with names.
    pub(crate) ports: BTreeMap<(Arc<str>, Protocol, u16), BTreeSet<PodKey>>,
    /// The numbers of their ports, by namespace and name.
    pub(crate) numbers: HashMap<NameIn, Numbers>,
    /// In how many namespaces a number counts for a name.
    counted: BTreeMap<(Arc<str>, Protocol, u16), usize>,
    /// Sets that stay until these policies' rows are written.
    pub(crate) held: HashMap<SetId, BTreeSet<AnyPolicy>>,
    /// The same, by policy.
    holds: HashMap<AnyPolicy, BTreeSet<SetId>>,
    /// Namespaces whose set of all pods these name.
    pub(crate) named: BTreeMap<Arc<str>, BTreeSet<AnyPolicy>>,
    /// Namespaces that had a set at the start, whether a policy names it or not.
    pub(crate) found: BTreeSet<Arc<str>>,
    /// The sets of all pods of selected namespaces that there were at the start.
    pub(crate) found_selectors: BTreeSet<Arc<str>>,
    /// Pods whose addresses have left a set, and may be in it as far as the database shows.
    left: HashMap<SetId, BTreeSet<PodKey>>,
    /// By pod: the number of such sets.
    pending: HashMap<PodKey, usize>,
    /// How often a pod was compared with a set.
    #[cfg(test)]
    pub(crate) compared: std::cell::Cell<usize>,
}

/// The selector of a set's pods, and that of their namespaces, if there is one.
type Selecting = (SelectorId, Option<SelectorId>);

/// A set of the pods that selectors select.
#[derive(Debug)]
pub(crate) struct PodSet {
    pub(crate) pods: SelectorId,
    /// Of these namespaces; none if `pods` is limited to one.
    pub(crate) namespaces: Option<SelectorId>,
    policies: Few<AnyPolicy>,
    /// Of the policy that named the set first.
    peer: Arc<PodPeer>,
}

impl Sets {
    pub(crate) fn pod_set(&self, text: &str) -> Option<&PodSet> {
        self.pods.get(text)
    }

    /// The sets of pods in namespaces with this selector, and the selector of their pods.
    pub(crate) fn of_namespaces(&self, id: SelectorId) -> Vec<(Arc<str>, SelectorId)> {
        let sets = self.by_namespaces.get(&id).into_iter().flatten();
        sets.filter_map(|text| Some((Arc::clone(text), self.pods.get(text)?.pods))).collect()
    }

    /// Adds a policy to a set that exists. Returns the peer that was its first.
    pub(crate) fn join(&mut self, text: &str, policy: &AnyPolicy) -> Option<Arc<PodPeer>> {
        let set = self.pods.get_mut(text)?;
        set.policies.insert(policy.clone());
        Some(Arc::clone(&set.peer))
    }

    pub(crate) fn add(
        &mut self,
        peer: &Arc<PodPeer>,
        pods: SelectorId,
        namespaces: Option<SelectorId>,
        policy: &AnyPolicy,
    ) {
        let text = &peer.text;
        self.by_selectors.entry((pods, namespaces)).or_default().insert(Arc::clone(text));
        if let Some(namespaces) = namespaces {
            self.by_namespaces.entry(namespaces).or_default().insert(Arc::clone(text));
        }
        let (policies, peer) = (Few::One(policy.clone()), Arc::clone(peer));
        let set = PodSet { pods, namespaces, policies, peer };
        self.pods.insert(Arc::clone(text), set);
    }

    /// The set has other pods from now on. Returns the selector that it had.
    pub(crate) fn reselect(&mut self, text: &Arc<str>, pods: SelectorId) -> Option<SelectorId> {
        let set = self.pods.get_mut(text)?;
        let (before, namespaces) = (std::mem::replace(&mut set.pods, pods), set.namespaces);
        leave(&mut self.by_selectors, &(before, namespaces), text);
        self.by_selectors.entry((pods, namespaces)).or_default().insert(Arc::clone(text));
        Some(before)
    }

    pub(crate) fn leave(&mut self, text: &str, policy: &AnyPolicy) {
        if let Some(set) = self.pods.get_mut(text) {
            set.policies.remove(policy);
        }
    }

    /// The set stays until the policy's rows are written.
    pub(crate) fn hold(&mut self, policy: &AnyPolicy, set: SetId) {
        self.held.entry(set.clone()).or_default().insert(policy.clone());
        self.holds.entry(policy.clone()).or_default().insert(set);
    }

    /// Whether the set stays until a policy's rows are written.
    pub(crate) fn is_held(&self, set: &SetId) -> bool {
        self.held.contains_key(set)
    }

    /// The policy's rows are written. Returns the sets that it held.
    pub(crate) fn release(&mut self, policy: &AnyPolicy) -> BTreeSet<SetId> {
        let sets = self.holds.remove(policy).unwrap_or_default();
        sets.iter().for_each(|set| drop_from(&mut self.held, set, policy));
        sets
    }

    /// Removes a set of pods that no policy names or holds. Returns it.
    pub(crate) fn remove_unused(&mut self, text: &Arc<str>) -> Option<PodSet> {
        let is_held = self.held.contains_key(&SetId::Pods(Arc::clone(text)));
        self.pods.get(text).filter(|set| set.policies.is_empty() && !is_held)?;
        let set = self.pods.remove(text)?;
        leave(&mut self.by_selectors, &(set.pods, set.namespaces), text);
        if let Some(namespaces) = &set.namespaces {
            drop_from(&mut self.by_namespaces, namespaces, text);
        }
        Some(set)
    }

    /// Whether the namespace had a set at the start.
    pub(crate) fn is_found(&self, namespace: &str) -> bool {
        self.found.contains(namespace)
    }

    /// The sets of all pods of selected namespaces that there were at the start; none at the next
    /// call.
    pub(crate) fn take_found_selectors(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.found_selectors)
    }

    /// The namespace is gone. Returns whether it had a set at the start.
    pub(crate) fn forget_found(&mut self, namespace: &str) -> bool {
        self.found.remove(namespace)
    }

    /// Whether an address of the pod may still be in a set that it has left.
    pub(crate) fn is_pending(&self, pod: &PodKey) -> bool {
        self.pending.contains_key(pod)
    }

    pub(crate) fn left(&mut self, pod: &PodKey, set: SetId) {
        if self.left.entry(set).or_default().insert(pod.clone()) {
            *self.pending.entry(pod.clone()).or_default() += 1;
        }
    }

    /// The database shows the set as it should be. Returns the pods that had left it.
    pub(crate) fn has_left(&mut self, set: &SetId) -> BTreeSet<PodKey> {
        let pods = self.left.remove(set).unwrap_or_default();
        for pod in &pods {
            if let Some(sets) = self.pending.get_mut(pod) {
                *sets -= 1;
                if *sets == 0 {
                    self.pending.remove(pod);
                }
            }
        }
        // At the start, each pod has left each of its sets.
        give_back(&mut self.left);
        give_back(&mut self.pending);
        pods
    }
}

/// Removes an element from the set of a key, and the set with its last element.
pub(crate) fn drop_from<K: Hash + Eq, E: Ord>(
    sets: &mut HashMap<K, BTreeSet<E>>,
    key: &K,
    element: &E,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(element);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
