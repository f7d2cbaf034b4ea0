//! What an event of a NetworkPolicy changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contract::{
    limits::NETWORK_POLICY,
    names::{PodKey, PolicyKey},
    ovn::HOST_NETWORK_NAMESPACE,
    policy_annotation::{Enforcement, Tracking},
};
use ipnet::IpNet;
use kubeapi::{object::Object, services::Family};

use crate::{
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    kinds::network_policy::{
        fanout,
        namespace_sums::Change,
        object::{Peer, Policy, block::Block},
        problem::PolicyProblem,
        state::{Known, NAMED_NAMESPACES, port_scopes},
    },
    object::beyond::Size,
    problem::Problem,
    select::{
        peer::{Direction, PodPeer},
        selector::Selector,
        selectors::SelectorId,
    },
    world::Store,
};

/// What a policy isolates.
#[derive(Debug, Default, PartialEq, Eq)]
struct Isolated {
    pods: BTreeSet<PodKey>,
    directions: [bool; 2],
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
        ids.iter()
            .filter_map(|id| self.policies.selecting.get(id))
            .flat_map(|keys| keys.iter())
            .collect()
    }

    /// The sets that the policy names for a peer: several for whole namespaces, none for a block.
    pub fn peer_sets(&self, key: &PolicyKey, peer: &Peer) -> Vec<SetId> {
        match peer {
            Peer::Block(_) => Vec::new(),
            Peer::Namespaces(selector) => {
                let id =
                    self.policies.all.get(key).and_then(|known| known.namespaces.get(selector));
                if let Some(together) = id.and_then(|id| self.policies.together.get(id)) {
                    return vec![SetId::Pods(Arc::clone(&together.text))];
                }
                let names = id.into_iter().flat_map(|id| self.namespaces.selectors.matching(*id));
                let names = names.filter(|name| ***name != *HOST_NETWORK_NAMESPACE);
                names.map(|name| SetId::Namespace(Arc::clone(name))).collect()
            }
            Peer::Pods(peer) => vec![SetId::Pods(Arc::clone(&peer.text))],
        }
    }

    /// All sets that the policy names.
    fn sets_of_policy(&self, key: &PolicyKey) -> BTreeSet<SetId> {
        let Some(policy) = self.policy(key) else { return BTreeSet::new() };
        let mut sets: BTreeSet<SetId> =
            policy.peers().flat_map(|peer| self.peer_sets(key, peer)).collect();
        for (namespace, name, protocol) in port_scopes(key, policy) {
            let numbers = self.port_numbers(namespace.as_deref(), &name, protocol).into_iter();
            sets.extend(
                numbers.map(|number| SetId::port(namespace.as_deref(), &name, protocol, number)),
            );
        }
        sets
    }

    fn size_of_policy(&self, key: &PolicyKey) -> Size {
        Size::of(self.policy(key).is_some_and(Policy::is_too_large))
    }

    fn isolated(&self, key: &PolicyKey) -> Isolated {
        let Some(known) = self.policies.all.get(key) else { return Isolated::default() };
        Isolated {
            pods: self.pods.selectors.matching(known.pods).cloned().collect(),
            directions: Direction::ALL.map(|direction| known.policy.isolates(direction)),
        }
    }

    pub(crate) fn replace_policies(
        &mut self,
        policies: Vec<(PolicyKey, Policy)>,
        dirty: &mut Dirty<'_>,
    ) {
        let there: BTreeSet<&PolicyKey> = policies.iter().map(|(key, _)| key).collect();
        let known = self.policies.all.keys();
        let gone: Vec<PolicyKey> = known.filter(|key| !there.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_policy(key, dirty));
        policies.into_iter().for_each(|(key, policy)| self.put_policy(key, policy, dirty));
    }

    pub(crate) fn put_policy(&mut self, key: PolicyKey, mut policy: Policy, dirty: &mut Dirty<'_>) {
        let before = self.policies.get(&key).map(|known| known.created);
        let changes = self.policies.sums.put(&key, before, policy.created, policy.price);
        match self.policies.sums.check(&key) {
            Err(exceeded) => policy.drop_rules(exceeded),
            Ok(()) if policy.is_without_rules() => self.outbox.reread(key.clone()),
            Ok(()) => {}
        }
        self.replace_policy(&key, policy, dirty);
        self.follow_sums(changes, dirty);
    }

    /// The policy as it was read again.
    pub(crate) fn reread_policy(&mut self, key: PolicyKey, policy: Policy, dirty: &mut Dirty<'_>) {
        let is_same =
            |known: &Policy| (&known.uid, &known.version) == (&policy.uid, &policy.version);
        // One that has changed comes by its watch.
        if self.awaits_rules(&key) && self.policies.get(&key).is_some_and(is_same) {
            self.put_policy(key, policy, dirty);
        }
    }

    /// Whether the policy counts, and its rules are not in memory yet.
    pub(crate) fn awaits_rules(&self, key: &PolicyKey) -> bool {
        self.policies.get(key).is_some_and(Policy::is_without_rules)
            && self.policies.sums.check(key).is_ok()
    }

    pub(crate) fn remove_policy(&mut self, key: &PolicyKey, dirty: &mut Dirty<'_>) {
        let Some(created) = self.policies.get(key).map(|known| known.created) else { return };
        let changes = self.policies.sums.remove(key, created);
        self.change_policy(key, None, dirty);
        self.follow_sums(changes, dirty);
    }

    /// Closes policies because of others of their namespace, or has them read again.
    fn follow_sums(&mut self, changes: Vec<Change>, dirty: &mut Dirty<'_>) {
        for (key, standing) in changes {
            let Some(policy) = self.policies.get(&key) else { continue };
            match standing {
                Ok(()) if policy.is_without_rules() => self.outbox.reread(key),
                Ok(()) => {}
                Err(exceeded) => {
                    let mut policy = policy.clone();
                    policy.drop_rules(exceeded);
                    self.replace_policy(&key, policy, dirty);
                }
            }
        }
    }

    fn replace_policy(&mut self, key: &PolicyKey, policy: Policy, dirty: &mut Dirty<'_>) {
        match self.policies.all.get_mut(key) {
            Some(known) if known.policy == policy => known.policy.version = policy.version,
            Some(_) | None => self.change_policy(key, Some(policy), dirty),
        }
    }

    /// Replaces a policy, or removes it.
    fn change_policy(&mut self, key: &PolicyKey, policy: Option<Policy>, dirty: &mut Dirty<'_>) {
        let (sets_before, isolated_before) = (self.sets_of_policy(key), self.isolated(key));
        let troubles_before =
            self.policies.get(key).map(|policy| self.policy_troubles(policy)).unwrap_or_default();
        let had_policies = self.has_policies(key.namespace());
        let had_dry_runs = self.has_dry_runs();
        let size_before = self.size_of_policy(key);
        // The new selectors before the old ones go: most are the same, and are searched for once.
        let now = policy.map(|policy| self.refer(key, policy));
        if let Some(before) = self.policies.all.remove(key) {
            self.policies.unindex(key, &before);
            self.pods.selectors.release(before.pods);
            for id in before.namespaces.into_values() {
                let is_still =
                    now.as_ref().is_some_and(|now| now.namespaces.values().any(|own| *own == id));
                if !is_still && self.policies.listing(id).next().is_none() {
                    self.policies.together.remove(&id);
                }
                self.namespaces.selectors.release(id);
            }
        }
        if let Some(mut known) = now {
            self.policies.index(key, &known);
            self.join_sets(key, &mut known.policy);
            self.join_together(key, &known.namespaces);
            self.tell_policy(key, &known.policy, &troubles_before);
            self.policies.all.insert(key.clone(), Box::new(known));
        }
        self.beyond.follow(NETWORK_POLICY, size_before, self.size_of_policy(key));
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
        if had_dry_runs != self.has_dry_runs() {
            dirty(Key::Cluster, Scope::Whole);
        }
        fanout::policy(key, is_isolation_new, came, pods, dirty);
    }

    /// Whether a policy is a dry run that the database can carry.
    pub fn has_dry_runs(&self) -> bool {
        self.policies.dry_runs > 0 && self.has_tiers()
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
        if self.listed.all {
            for (selector, id) in &namespaces {
                let is_new = self.policies.listing(*id).next().is_none();
                if is_new && self.namespaces.selectors.matching(*id).count() > NAMED_NAMESPACES {
                    self.policies.together.insert(*id, Arc::new(PodPeer::all_of(selector)));
                }
            }
        }
        // Sets that both need are never without a policy.
        self.join_sets(key, &mut policy);
        self.join_together(key, &namespaces);
        Known { policy, pods, namespaces }
    }

    /// Adds the policy to the sets of all pods of its peers' namespaces.
    fn join_together(&mut self, key: &PolicyKey, namespaces: &BTreeMap<Selector, SelectorId>) {
        let together: Vec<Arc<PodPeer>> =
            namespaces.values().filter_map(|id| self.policies.together.get(id)).cloned().collect();
        for peer in together {
            self.join_set_of_pods(&AnyPolicy::Namespaced(key.clone()), &peer);
        }
    }

    /// Decides which selectors of namespaces are one set. What the database has stays: the sets of
    /// the single namespaces, if it has them all, or the set of the selector. To be called while
    /// all keys are about to be compared.
    pub fn decide_on_selectors_of_namespaces(&mut self) {
        let found = self.policies.sets.take_found_selectors();
        let listed: BTreeSet<SelectorId> = self.policies.listed().collect();
        for id in listed {
            let Some(peer) = self.all_of(id) else { continue };
            let namespaces = || self.namespaces.selectors.matching(id);
            let are_found = namespaces().all(|name| self.policies.sets.is_found(name));
            let is_found = found.contains(&peer.text);
            let are_many = namespaces().count() > NAMED_NAMESPACES;
            if !are_found && (is_found || are_many) {
                self.name_together(id, peer, &mut |_, _| ());
            }
        }
    }

    /// A namespace has come to match this selector, or has left it. Returns whether the policies
    /// that have its namespaces as peers name them one by one.
    pub(crate) fn follow_count_of_namespaces(
        &mut self,
        id: SelectorId,
        dirty: &mut Dirty<'_>,
    ) -> bool {
        if !self.policies.is_listed(id) {
            return false;
        }
        if self.listed.all
            && self.namespaces.selectors.matching(id).count() > NAMED_NAMESPACES
            && let Some(peer) = self.all_of(id)
        {
            self.name_together(id, peer, dirty);
            return false;
        }
        true
    }

    /// All pods of the namespaces with this selector.
    fn all_of(&self, id: SelectorId) -> Option<Arc<PodPeer>> {
        let known = self.policies.all.get(self.policies.listing(id).next()?)?;
        let (selector, _) = known.namespaces.iter().find(|(_, own)| **own == id)?;
        Some(Arc::new(PodPeer::all_of(selector)))
    }

    fn name_together(&mut self, id: SelectorId, peer: Arc<PodPeer>, dirty: &mut Dirty<'_>) {
        let policies: Vec<PolicyKey> = self.policies.listing(id).cloned().collect();
        let before: Vec<BTreeSet<SetId>> =
            policies.iter().map(|key| self.sets_of_policy(key)).collect();
        self.policies.together.insert(id, Arc::clone(&peer));
        dirty(Key::Set(SetId::Pods(Arc::clone(&peer.text))), Scope::Whole);
        for (key, before) in policies.iter().zip(before) {
            let user = AnyPolicy::Namespaced(key.clone());
            self.join_set_of_pods(&user, &peer);
            let now = self.sets_of_policy(key);
            // Until its rows are written, the database's rules name them.
            for set in before.difference(&now) {
                self.policies.sets.hold(&user, set.clone());
            }
            dirty(Key::Policy(key.clone()), Scope::Whole);
        }
    }

    /// Adds the policy to the sets of its peers.
    fn join_sets(&mut self, key: &PolicyKey, policy: &mut Policy) {
        let user = AnyPolicy::Namespaced(key.clone());
        for peer in policy.peers_mut() {
            match peer {
                Peer::Pods(peer) => {
                    let set = self.join_set_of_pods(&user, peer);
                    // One of thousands of equal peers is kept. Unequal ones would make each event
                    // of the policy a change.
                    if set == *peer {
                        *peer = set;
                    }
                }
                Peer::Block(_) | Peer::Namespaces(_) => {}
            }
        }
    }

    /// Adds a user to the set of these pods. Returns the peer that was the first of the set.
    pub(crate) fn join_set_of_pods(
        &mut self,
        user: &AnyPolicy,
        peer: &Arc<PodPeer>,
    ) -> Arc<PodPeer> {
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
    fn policy_troubles(&self, policy: &Policy) -> Vec<PolicyProblem> {
        let unusable = policy.unusable.clone().map(PolicyProblem::Unusable);
        let is_off = policy.tracking == Tracking::Stateless && !self.config.stateless_policies;
        let is_empty = |block: &Block| {
            let has_family =
                self.config.families().any(|family| family == Family::of(&block.net.addr()));
            !has_family
                || IpNet::aggregate(&block.except.to_vec())
                    .iter()
                    .any(|net| net.contains(&block.net))
        };
        let mut blocks = policy.peers().filter_map(|peer| match peer {
            Peer::Block(block) => Some(block),
            Peer::Namespaces(_) | Peer::Pods(_) => None,
        });
        let empty =
            blocks.find(|block| is_empty(block)).map(|block| PolicyProblem::EmptyBlock(block.net));
        let has_no_tiers = (policy.enforcement == Enforcement::DryRun && !self.has_tiers())
            .then_some(PolicyProblem::NoDryRun);
        let is_off = is_off.then_some(PolicyProblem::StatelessOff);
        unusable.into_iter().chain(is_off).chain(has_no_tiers).chain(empty).collect()
    }

    /// Queues events on the policies that are dry runs, which the database cannot carry.
    pub(crate) fn tell_dry_runs(&mut self) {
        let told =
            self.policies.iter().filter(|(_, policy)| policy.enforcement == Enforcement::DryRun);
        let told: Vec<_> =
            told.map(|(key, policy)| (key.clone(), Arc::clone(&policy.uid))).collect();
        for (key, uid) in told {
            let object = Object::NetworkPolicy(key);
            self.outbox.problems.push(Problem::new(object, &uid, &PolicyProblem::NoDryRun));
        }
    }

    /// Queues events about what has begun to be wrong with the policy.
    fn tell_policy(&mut self, key: &PolicyKey, policy: &Policy, before: &[PolicyProblem]) {
        for why in self.policy_troubles(policy) {
            if !before.contains(&why) {
                let object = Object::NetworkPolicy(key.clone());
                self.outbox.problems.push(Problem::new(object, &policy.uid, &why));
            }
        }
    }
}
