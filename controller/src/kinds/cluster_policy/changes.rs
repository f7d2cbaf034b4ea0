//! What an event of a policy of the whole cluster changes.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::{ClusterPolicyKey, ClusterPolicyKind, PodKey};
use kubeapi::object::Object;

use crate::{
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    kinds::cluster_policy::{
        object::{ClusterPeer, ClusterPolicy, Effect, Unusable},
        problem::ClusterPolicyProblem,
        state::{Known, Placement},
    },
    object::beyond::Size,
    problem::Problem,
    rows::acl::Tiers,
    select::{selectors::SelectorId, sets::drop_from},
    status_writeback::StatusWriteback,
    world::Store,
};

impl Store {
    pub fn cluster_policy(&self, key: &ClusterPolicyKey) -> Option<&ClusterPolicy> {
        self.cluster_policies.all.get(key).map(|known| &known.policy)
    }

    /// What the policy does, and where.
    pub fn effect(&self, key: &ClusterPolicyKey) -> Option<(&Effect, Placement)> {
        let effect = self.cluster_policy(key)?.effect.as_deref()?;
        Some((effect, self.cluster_policies.placements.get(key).copied()?))
    }

    /// Whether the ACLs of the database have tiers.
    pub fn has_tiers(&self) -> bool {
        self.cluster_policies.tiers != Tiers::Absent
    }

    /// Whether rows of this program alone may be written that have every tier asked.
    pub fn asks_every_tier(&self) -> bool {
        self.cluster_policies.tiers == Tiers::Asked
    }

    /// From now on every tier is asked. Returns whether that is new.
    pub fn ask_every_tier(&mut self) -> bool {
        let is_new = self.cluster_policies.tiers == Tiers::Present;
        if is_new {
            self.cluster_policies.tiers = Tiers::Asked;
        }
        is_new
    }

    fn lacks_tiers(&self, effect: &Effect) -> bool {
        !self.has_tiers() && effect.passes()
    }

    /// What is wrong with the policy.
    pub fn cluster_policy_trouble(&self, key: &ClusterPolicyKey) -> Option<ClusterPolicyProblem> {
        let policy = self.cluster_policy(key)?;
        match (&policy.unusable, self.effect(key)) {
            (Some(unusable), _) => Some(ClusterPolicyProblem::Unusable(unusable.clone())),
            (None, Some((effect, Placement::DenialsAt(_)))) => Some(if self.lacks_tiers(effect) {
                ClusterPolicyProblem::NoTiers
            } else {
                ClusterPolicyProblem::NoRoom
            }),
            (None, Some((_, Placement::From(_)))) => {
                self.unanswered_name(policy).or_else(|| self.own_address(policy))
            }
            (None, None) => None,
        }
    }

    fn own_address(&self, policy: &ClusterPolicy) -> Option<ClusterPolicyProblem> {
        policy.peers().find_map(|peer| match peer {
            ClusterPeer::Name(name) => {
                let address = self.names.left_out(name)?;
                Some(ClusterPolicyProblem::OwnAddress { name: Arc::clone(name), address })
            }
            ClusterPeer::Pods(_) | ClusterPeer::Network(_) | ClusterPeer::Nodes(_) => None,
        })
    }

    fn unanswered_name(&self, policy: &ClusterPolicy) -> Option<ClusterPolicyProblem> {
        policy.peers().find_map(|peer| match peer {
            ClusterPeer::Name(name) => {
                let why = self.names.unanswered(name)?.into();
                Some(ClusterPolicyProblem::NoAddresses { name: Arc::clone(name), why })
            }
            ClusterPeer::Pods(_) | ClusterPeer::Network(_) | ClusterPeer::Nodes(_) => None,
        })
    }

    /// Decides whether ACLs have tiers. To be called only while all keys are about to be compared.
    pub fn use_tiers(&mut self, tiers: Tiers) {
        if self.cluster_policies.tiers != tiers {
            self.cluster_policies.tiers = tiers;
            self.cluster_policies.placements = self.cluster_policies.place();
            let keys: Vec<ClusterPolicyKey> = self.cluster_policies.all.keys().cloned().collect();
            for key in keys {
                if self.cluster_policy_trouble(&key) == Some(ClusterPolicyProblem::NoTiers) {
                    self.tell_cluster_policy(&key, None);
                }
            }
            if !self.has_tiers() {
                self.tell_dry_runs();
            }
        }
    }

    /// The policies that are about the pod, in the order of their keys.
    pub fn cluster_policies_of(&self, pod: &PodKey) -> BTreeSet<&ClusterPolicyKey> {
        let ids = self.pods.selectors.matched_by(pod);
        let policies = ids.iter().filter_map(|id| self.cluster_policies.by_pods.get(id)).flatten();
        policies
            .filter(|key| {
                let subject = self.cluster_policies.all.get(key).and_then(|known| known.subject);
                subject.is_some_and(|[_, namespaces]| {
                    self.namespaces.selectors.matches(namespaces, pod.namespace())
                })
            })
            .collect()
    }

    /// The pods that the policy is about.
    fn subject(&self, key: &ClusterPolicyKey) -> BTreeSet<PodKey> {
        let Some([pods, namespaces]) =
            self.cluster_policies.all.get(key).and_then(|known| known.subject)
        else {
            return BTreeSet::new();
        };
        let is_in = |pod: &&PodKey| self.namespaces.selectors.matches(namespaces, pod.namespace());
        self.pods.selectors.matching(pods).filter(is_in).cloned().collect()
    }

    /// All sets that the policy names.
    fn sets_of_cluster_policy(&self, key: &ClusterPolicyKey) -> BTreeSet<SetId> {
        let Some(policy) = self.cluster_policy(key) else { return BTreeSet::new() };
        let mut sets: BTreeSet<SetId> = policy.peers().filter_map(ClusterPeer::set).collect();
        for (name, protocol) in policy.port_names() {
            let numbers = self.port_numbers(None, name, protocol).into_iter();
            sets.extend(numbers.map(|number| SetId::Port(Arc::clone(name), protocol, number)));
        }
        sets
    }

    pub(crate) fn replace_cluster_policies(
        &mut self,
        kind: ClusterPolicyKind,
        policies: Vec<(ClusterPolicyKey, ClusterPolicy)>,
        dirty: &mut Dirty<'_>,
    ) {
        let there: BTreeSet<&ClusterPolicyKey> = policies.iter().map(|(key, _)| key).collect();
        let known = self.cluster_policies.all.keys().filter(|key| key.kind == kind);
        let gone: Vec<ClusterPolicyKey> =
            known.filter(|key| !there.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_cluster_policy(key, dirty));
        for (key, policy) in policies {
            if let Some(known) = self.cluster_policies.all.get_mut(&key) {
                known.said.listed();
            }
            self.put_cluster_policy(&key, policy, dirty);
        }
    }

    pub(crate) fn put_cluster_policy(
        &mut self,
        key: &ClusterPolicyKey,
        policy: ClusterPolicy,
        dirty: &mut Dirty<'_>,
    ) {
        match self.cluster_policies.all.get_mut(key) {
            // Its status alone concerns no row.
            Some(known) if known.policy.is_like(&policy) => {
                known.policy.conditions = policy.conditions;
                self.say_condition(key);
            }
            Some(_) | None => self.change_cluster_policy(key, Some(policy), dirty),
        }
    }

    pub(crate) fn remove_cluster_policy(&mut self, key: &ClusterPolicyKey, dirty: &mut Dirty<'_>) {
        if self.cluster_policy(key).is_some() {
            self.change_cluster_policy(key, None, dirty);
        }
    }

    /// Replaces a policy, or removes it.
    fn change_cluster_policy(
        &mut self,
        key: &ClusterPolicyKey,
        policy: Option<ClusterPolicy>,
        dirty: &mut Dirty<'_>,
    ) {
        let user = AnyPolicy::Cluster(key.clone());
        let (sets_before, pods_before) = (self.sets_of_cluster_policy(key), self.subject(key));
        let trouble_before = self.cluster_policy_trouble(key);
        let size_before = self.size_of_cluster_policy(key);
        // The new selectors before the old ones go: most are the same, and are searched for once.
        let now = policy.map(|policy| {
            let subject = policy.effect.as_ref().map(|effect| {
                let namespaces = effect.subject.namespaces();
                let pods = self.pods.selectors.refer_to(&effect.subject.pods);
                [pods, self.namespaces.selectors.refer_to(&namespaces)]
            });
            self.join_sets_of_peers(&user, &policy);
            Box::new(Known { policy, subject, said: StatusWriteback::default() })
        });
        if let Some(before) = self.cluster_policies.all.remove(key) {
            self.forget_cluster_policy(key, &user, &before);
        }
        if let Some(known) = now {
            if let Some([pods, namespaces]) = known.subject {
                self.cluster_policies.by_pods.entry(pods).or_default().insert(key.clone());
                self.cluster_policies
                    .by_namespaces
                    .entry(namespaces)
                    .or_default()
                    .insert(key.clone());
            }
            for (name, protocol) in known.policy.port_names() {
                let users =
                    self.policies.naming.entry((None, Arc::clone(name), protocol)).or_default();
                users.insert(user.clone());
            }
            self.join_sets_of_peers(&user, &known.policy);
            self.cluster_policies.all.insert(key.clone(), known);
        }
        let placements = self.cluster_policies.place();
        let before = std::mem::replace(&mut self.cluster_policies.placements, placements);
        self.beyond.follow(key.kind.as_str(), size_before, self.size_of_cluster_policy(key));
        let sets = self.sets_of_cluster_policy(key);
        for set in sets_before.difference(&sets) {
            self.policies.sets.hold(&user, set.clone());
        }
        dirty(key.clone().into(), Scope::Whole);
        sets.difference(&sets_before).for_each(|set| dirty(Key::Set(set.clone()), Scope::Whole));
        let pods = self.subject(key);
        let concerned = pods.symmetric_difference(&pods_before);
        concerned.for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
        // The others make room for its levels.
        for (other, placement) in &self.cluster_policies.placements {
            if before.get(other) != Some(placement) {
                dirty(other.clone().into(), Scope::Whole);
            }
        }
        self.tell_cluster_policy(key, trouble_before);
    }

    fn size_of_cluster_policy(&self, key: &ClusterPolicyKey) -> Size {
        let is_too_large = |policy: &ClusterPolicy| {
            matches!(policy.unusable.as_deref(), Some(Unusable::TooLarge(_)))
        };
        Size::of(self.cluster_policy(key).is_some_and(is_too_large))
    }

    fn forget_cluster_policy(&mut self, key: &ClusterPolicyKey, user: &AnyPolicy, known: &Known) {
        if let Some([pods, namespaces]) = known.subject {
            drop_from(&mut self.cluster_policies.by_pods, &pods, key);
            drop_from(&mut self.cluster_policies.by_namespaces, &namespaces, key);
            self.pods.selectors.release(pods);
            self.namespaces.selectors.release(namespaces);
        }
        for (name, protocol) in known.policy.port_names() {
            drop_from(&mut self.policies.naming, &(None, Arc::clone(name), protocol), user);
        }
        for peer in known.policy.peers() {
            match peer {
                ClusterPeer::Pods(peer) => self.policies.sets.leave(&peer.text, user),
                ClusterPeer::Nodes(peer) => self.node_addresses.leave(&peer.text, user),
                ClusterPeer::Name(name) => self.names.leave(name, user),
                ClusterPeer::Network(_) => {}
            }
        }
    }

    /// Adds the policy to the sets of its peers.
    fn join_sets_of_peers(&mut self, user: &AnyPolicy, policy: &ClusterPolicy) {
        for peer in policy.peers() {
            match peer {
                ClusterPeer::Pods(peer) => drop(self.join_set_of_pods(user, peer)),
                ClusterPeer::Nodes(peer) => self.join_node_set(peer, user),
                ClusterPeer::Name(name) => self.names.join(name, user),
                ClusterPeer::Network(_) => {}
            }
        }
    }

    /// Queues an event if something has begun to be wrong with the policy.
    pub(crate) fn tell_cluster_policy(
        &mut self,
        key: &ClusterPolicyKey,
        before: Option<ClusterPolicyProblem>,
    ) {
        let Some(why) = self.cluster_policy_trouble(key).filter(|now| before.as_ref() != Some(now))
        else {
            return;
        };
        let Some(uid) = self.cluster_policy(key).map(|policy| Arc::clone(&policy.uid)) else {
            return;
        };
        self.outbox.problems.push(Problem::new(Object::ClusterPolicy(key.clone()), &uid, &why));
    }

    /// A namespace has come to match this selector, or has left it: other policies are about its
    /// pods.
    pub(crate) fn follow_subjects(
        &self,
        id: SelectorId,
        namespace: &Arc<str>,
        dirty: &mut Dirty<'_>,
    ) {
        let policies = self.cluster_policies.by_namespaces.get(&id).into_iter().flatten();
        let subjects = policies.filter_map(|key| self.cluster_policies.all.get(key)?.subject);
        for [pods, _] in subjects {
            let of_subject = self.pods.selectors.matching_in(pods, namespace);
            of_subject.for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
        }
    }
}
