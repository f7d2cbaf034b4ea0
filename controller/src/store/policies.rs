//! The NetworkPolicies: which pods each isolates, and what it refers to.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use contract::{
    names::{PodKey, PolicyKey},
    ovn::HOST_NETWORK_NAMESPACE,
    policy_annotation::{Enforcement, Tracking},
};
use ipnet::IpNet;
use kubeapi::services::{Family, Protocol};

use super::{
    Direction, Peer, Policy, Store, fanout,
    policy::{Block, PodPeer, PolicyTrouble},
    port_names::PortName,
    selector::Selector,
    selectors::SelectorId,
    sets::{Sets, drop_from},
};
use crate::{
    few::{Few, leave},
    key::{AnyPolicy, Dirty, SetId},
    trouble::Trouble,
};

/// A policy, and the selectors that it refers to.
#[derive(Debug)]
struct Known {
    policy: Policy,
    pods: SelectorId,
    /// Of the peers that are whole namespaces.
    namespaces: BTreeMap<Selector, SelectorId>,
}

/// The known policies.
#[derive(Debug, Default)]
pub(super) struct Policies {
    all: BTreeMap<PolicyKey, Box<Known>>,
    /// By the selector of the pods that they isolate.
    selecting: HashMap<SelectorId, Few<PolicyKey>>,
    /// By the selector of namespaces whose pods are their peers.
    listing: HashMap<SelectorId, BTreeSet<PolicyKey>>,
    /// By the names of ports in their rules.
    pub(super) naming: HashMap<(Arc<str>, Protocol), BTreeSet<AnyPolicy>>,
    pub(super) sets: Sets,
    /// Names of ports that no pod has, as events have told.
    pub(super) nameless: BTreeMap<PolicyKey, BTreeSet<PortName>>,
}

/// What a policy isolates.
#[derive(Debug, Default, PartialEq, Eq)]
struct Isolated {
    pods: BTreeSet<PodKey>,
    directions: [bool; 2],
}

impl Policies {
    pub(super) fn get(&self, key: &PolicyKey) -> Option<&Policy> {
        self.all.get(key).map(|known| &known.policy)
    }

    /// In the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PolicyKey, &Policy)> {
        self.all.iter().map(|(key, known)| (key, &known.policy))
    }

    /// The selector of the pods that the policy isolates.
    pub(super) fn selected(&self, key: &PolicyKey) -> Option<SelectorId> {
        self.all.get(key).map(|known| known.pods)
    }

    /// Whether ports of the policy have names.
    pub(super) fn has_names(&self, key: &PolicyKey) -> bool {
        self.get(key).is_some_and(|policy| policy.port_names().next().is_some())
    }

    /// Policies with whole namespaces of this selector as peers.
    pub(super) fn listing(&self, id: SelectorId) -> impl Iterator<Item = &PolicyKey> {
        self.listing.get(&id).into_iter().flatten()
    }

    /// The selectors of such namespaces.
    pub(super) fn listed(&self) -> impl Iterator<Item = SelectorId> {
        self.listing.keys().copied()
    }

    /// Policies with a port of this name in their rules.
    pub(super) fn naming(&self, name: &Arc<str>, protocol: Protocol) -> impl Iterator<Item = &AnyPolicy> {
        self.naming.get(&(Arc::clone(name), protocol)).into_iter().flatten()
    }

    /// The policies of a namespace.
    pub(super) fn of_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a PolicyKey> {
        // They are neighbours, and no name is lower than this one.
        let first = PolicyKey::new(namespace, "0").ok();
        let from = first.into_iter().flat_map(|first| self.all.range(first..));
        from.map(|(key, _)| key).take_while(move |key| key.namespace() == namespace)
    }

    fn index(&mut self, key: &PolicyKey, known: &Known) {
        self.selecting.entry(known.pods).or_default().insert(key.clone());
        for id in known.namespaces.values() {
            self.listing.entry(*id).or_default().insert(key.clone());
        }
        for (name, protocol) in known.policy.port_names() {
            let policies = self.naming.entry((Arc::clone(name), protocol)).or_default();
            policies.insert(AnyPolicy::Namespaced(key.clone()));
        }
    }

    fn unindex(&mut self, key: &PolicyKey, known: &Known) {
        leave(&mut self.selecting, &known.pods, key);
        known.namespaces.values().for_each(|id| drop_from(&mut self.listing, id, key));
        let user = AnyPolicy::Namespaced(key.clone());
        for (name, protocol) in known.policy.port_names() {
            drop_from(&mut self.naming, &(Arc::clone(name), protocol), &user);
        }
        for peer in known.policy.peers() {
            if let Peer::Pods(peer) = peer {
                self.sets.leave(&peer.text, &user);
            }
        }
    }
}

impl Store {
    pub fn policy(&self, key: &PolicyKey) -> Option<&Policy> {
        self.policies.get(key)
    }

    /// Whether a policy is in the namespace.
    pub fn has_policies(&self, namespace: &str) -> bool {
        self.policies.of_namespace(namespace).next().is_some()
    }

    /// The policies that isolate the pod, in the order of their names.
    pub fn policies_of(&self, pod: &PodKey) -> BTreeSet<&PolicyKey> {
        let ids = self.pods.selectors.matched_by(pod);
        ids.iter().filter_map(|id| self.policies.selecting.get(id)).flat_map(|keys| keys.iter()).collect()
    }

    /// The sets that the policy names for a peer: several for whole namespaces, none for a block.
    pub fn peer_sets(&self, key: &PolicyKey, peer: &Peer) -> Vec<SetId> {
        match peer {
            Peer::Block(_) => Vec::new(),
            Peer::Namespaces(selector) => {
                let id = self.policies.all.get(key).and_then(|known| known.namespaces.get(selector));
                let names = id.into_iter().flat_map(|id| self.namespaces.selectors.matching(*id));
                let names = names.filter(|name| ***name != *HOST_NETWORK_NAMESPACE);
                names.map(|name| SetId::Namespace(Arc::clone(name))).collect()
            }
            Peer::Pods(peer) => vec![SetId::Pods(Arc::clone(&peer.text))],
        }
    }

    /// The namespaces in which pods count that give a number to a port's name: for connections to the
    /// selected pods, their own.
    pub fn port_scope(key: &PolicyKey, direction: Direction) -> Option<&str> {
        match direction {
            Direction::Ingress => Some(key.namespace()),
            Direction::Egress => None,
        }
    }

    /// All sets that the policy names.
    fn sets_of_policy(&self, key: &PolicyKey) -> BTreeSet<SetId> {
        let Some(policy) = self.policy(key) else { return BTreeSet::new() };
        let mut sets: BTreeSet<SetId> = policy.peers().flat_map(|peer| self.peer_sets(key, peer)).collect();
        for (name, protocol) in policy.port_names() {
            let numbers = self.port_numbers(None, name, protocol).into_iter();
            sets.extend(numbers.map(|number| SetId::Port(Arc::clone(name), protocol, number)));
        }
        sets
    }

    fn isolated(&self, key: &PolicyKey) -> Isolated {
        let Some(known) = self.policies.all.get(key) else { return Isolated::default() };
        Isolated {
            pods: self.pods.selectors.matching(known.pods).cloned().collect(),
            directions: Direction::ALL.map(|direction| known.policy.isolates(direction)),
        }
    }

    pub(super) fn replace_policies(&mut self, policies: Vec<(PolicyKey, Policy)>, dirty: &mut Dirty<'_>) {
        let there: BTreeSet<&PolicyKey> = policies.iter().map(|(key, _)| key).collect();
        let known = self.policies.all.keys();
        let gone: Vec<PolicyKey> = known.filter(|key| !there.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_policy(key, dirty));
        policies.into_iter().for_each(|(key, policy)| self.put_policy(key, policy, dirty));
    }

    pub(super) fn put_policy(&mut self, key: PolicyKey, policy: Policy, dirty: &mut Dirty<'_>) {
        if self.policies.get(&key) != Some(&policy) {
            self.change_policy(&key, Some(policy), dirty);
        }
    }

    pub(super) fn remove_policy(&mut self, key: &PolicyKey, dirty: &mut Dirty<'_>) {
        if self.policies.get(key).is_some() {
            self.change_policy(key, None, dirty);
        }
    }

    /// Replaces a policy, or removes it.
    fn change_policy(&mut self, key: &PolicyKey, policy: Option<Policy>, dirty: &mut Dirty<'_>) {
        let (sets_before, isolated_before) = (self.sets_of_policy(key), self.isolated(key));
        let troubles_before =
            self.policies.get(key).map(|policy| self.policy_troubles(policy)).unwrap_or_default();
        let had_policies = self.has_policies(key.namespace());
        // The new selectors before the old ones go: most are the same, and are searched for once.
        let now = policy.map(|policy| self.refer(key, policy));
        if let Some(before) = self.policies.all.remove(key) {
            self.policies.unindex(key, &before);
            self.pods.selectors.release(before.pods);
            before.namespaces.into_values().for_each(|id| self.namespaces.selectors.release(id));
        }
        if let Some(mut known) = now {
            self.policies.index(key, &known);
            self.join_sets(key, &mut known.policy);
            self.tell_policy(key, &known.policy, &troubles_before);
            self.policies.all.insert(key.clone(), Box::new(known));
        }
        let sets = self.sets_of_policy(key);
        for set in sets_before.difference(&sets) {
            self.policies.sets.hold(&AnyPolicy::Namespaced(key.clone()), set.clone());
        }
        let came = sets.difference(&sets_before);
        let is_isolation_new = had_policies != self.has_policies(key.namespace());
        let isolated = self.isolated(key);
        let is_same = isolated.directions == isolated_before.directions;
        // With the same directions only pods that come or go are concerned.
        let pods: BTreeSet<&PodKey> = match is_same {
            true => isolated.pods.symmetric_difference(&isolated_before.pods).collect(),
            false => isolated.pods.union(&isolated_before.pods).collect(),
        };
        fanout::policy(key, is_isolation_new, came, pods, dirty);
    }

    /// Refers to the selectors of a policy.
    fn refer(&mut self, key: &PolicyKey, mut policy: Policy) -> Known {
        let pods = self.pods.selectors.refer_to(&policy.pods);
        let mut namespaces = BTreeMap::new();
        for peer in policy.peers() {
            if let Peer::Namespaces(selector) = peer
                && !namespaces.contains_key(selector)
            {
                namespaces.insert(selector.clone(), self.namespaces.selectors.refer_to(selector));
            }
        }
        // Sets that both need are never without a policy.
        self.join_sets(key, &mut policy);
        Known { policy, pods, namespaces }
    }

    /// Adds the policy to the sets of its peers.
    fn join_sets(&mut self, key: &PolicyKey, policy: &mut Policy) {
        let user = AnyPolicy::Namespaced(key.clone());
        for peer in policy.peers_mut() {
            match peer {
                Peer::Pods(peer) => {
                    let set = self.join_set_of_pods(&user, peer);
                    // One of thousands of equal peers is kept. Unequal ones would make each event of the policy
                    // a change.
                    if set == *peer {
                        *peer = set;
                    }
                }
                Peer::Block(_) | Peer::Namespaces(_) => {}
            }
        }
    }

    /// Adds a user to the set of these pods. Returns the peer that was the first of the set.
    pub(super) fn join_set_of_pods(&mut self, user: &AnyPolicy, peer: &Arc<PodPeer>) -> Arc<PodPeer> {
        if let Some(first) = self.policies.sets.join(&peer.text, user) {
            return first;
        }
        let pods = self.pods.selectors.refer_to(&peer.pods);
        let namespaces =
            peer.namespaces.as_ref().map(|selector| self.namespaces.selectors.refer_to(selector));
        self.policies.sets.add(peer, pods, namespaces, user);
        Arc::clone(peer)
    }

    /// What of the policy cannot be used, whatever else there is.
    fn policy_troubles(&self, policy: &Policy) -> Vec<PolicyTrouble> {
        let unusable = policy.unusable.clone().map(PolicyTrouble::Unusable);
        let is_off = policy.tracking == Tracking::Stateless && !self.config.stateless_policies;
        let is_empty = |block: &Block| {
            let has_family = self.config.families().any(|family| family == Family::of(&block.net.addr()));
            !has_family || IpNet::aggregate(&block.except.to_vec()).iter().any(|net| net.contains(&block.net))
        };
        let mut blocks = policy.peers().filter_map(|peer| match peer {
            Peer::Block(block) => Some(block),
            Peer::Namespaces(_) | Peer::Pods(_) => None,
        });
        let empty = blocks.find(|block| is_empty(block)).map(|block| PolicyTrouble::EmptyBlock(block.net));
        let has_no_tiers = (policy.enforcement == Enforcement::DryRun && !self.has_tiers())
            .then_some(PolicyTrouble::NoDryRun);
        let is_off = is_off.then_some(PolicyTrouble::StatelessOff);
        unusable.into_iter().chain(is_off).chain(has_no_tiers).chain(empty).collect()
    }

    /// Queues events on the policies that are dry runs, which the database cannot carry.
    pub(super) fn tell_dry_runs(&mut self) {
        let told = self.policies.iter().filter(|(_, policy)| policy.enforcement == Enforcement::DryRun);
        let told: Vec<_> = told.map(|(key, policy)| (key.clone(), Arc::clone(&policy.uid))).collect();
        for (subject, uid) in told {
            self.outbox.tell_policy(Trouble { subject, uid, why: PolicyTrouble::NoDryRun });
        }
    }

    /// Queues events about what has begun to be wrong with the policy.
    fn tell_policy(&mut self, key: &PolicyKey, policy: &Policy, before: &[PolicyTrouble]) {
        for why in self.policy_troubles(policy) {
            if !before.contains(&why) {
                let (subject, uid) = (key.clone(), Arc::clone(&policy.uid));
                self.outbox.tell_policy(Trouble { subject, uid, why });
            }
        }
    }
}
