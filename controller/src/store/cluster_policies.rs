//! The policies of the whole cluster: which pods each is about, and what it refers to.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use contract::names::{ClusterPolicyKey, ClusterPolicyKind, PodKey};

use super::{
    DnsName, Store,
    cluster_policy::{ClusterPeer, ClusterPolicy, Effect, PolicyTier, Unusable},
    conditions::Standing,
    said::Said,
    selectors::SelectorId,
    sets::drop_from,
};
use crate::{
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    trouble::Trouble,
};

/// A policy, and the selectors of its subject: of pods and of namespaces.
#[derive(Debug)]
struct Known {
    policy: ClusterPolicy,
    subject: Option<[SelectorId; 2]>,
    /// With the generation that it was said of.
    said: Said<(i64, Standing)>,
}

/// The known policies.
#[derive(Debug, Default)]
pub(super) struct ClusterPolicies {
    all: BTreeMap<ClusterPolicyKey, Box<Known>>,
    /// By the selector of the pods of their subjects.
    by_pods: HashMap<SelectorId, BTreeSet<ClusterPolicyKey>>,
    /// By the selector of the namespaces of their subjects.
    by_namespaces: HashMap<SelectorId, BTreeSet<ClusterPolicyKey>>,
    /// Whether ACLs have tiers.
    tiers: Tiers,
}

/// Whether the ACLs of the database have tiers. Without them no ACL can leave a connection to
/// NetworkPolicies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tiers {
    #[default]
    Present,
    Absent,
}

/// Why a policy is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterPolicyTrouble {
    #[error(transparent)]
    Unusable(Box<Unusable>),
    #[error(
        "it has rules that pass, and OVN's northbound database is of a release without tiers of ACLs; \
         the policy has no effect"
    )]
    NoTiers,
    #[error("too many policies are before it in its tier; it has no effect")]
    NoRoom,
    #[error("the domain name {name:?} has no addresses yet: {why}; until then the policy allows none for it")]
    NoAddresses { name: DnsName, why: Box<str> },
}

impl ClusterPolicyTrouble {
    /// One word for an event's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(unusable) => unusable.reason(),
            Self::NoTiers => "NoTiers",
            Self::NoRoom => "NoRoom",
            Self::NoAddresses { .. } => "NoAddresses",
        }
    }
}

/// Priorities of ACLs of the tier behind NetworkPolicies: so many, all lower than those of NetworkPolicies.
const BASELINE_LEVELS: usize = 1000;

impl ClusterPolicies {
    /// In the order of their keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ClusterPolicyKey> {
        self.all.keys()
    }

    pub(super) fn said(&self, key: &ClusterPolicyKey) -> Option<&Said<(i64, Standing)>> {
        self.all.get(key).map(|known| &known.said)
    }

    pub(super) fn said_mut(&mut self, key: &ClusterPolicyKey) -> Option<&mut Said<(i64, Standing)>> {
        self.all.get_mut(key).map(|known| &mut known.said)
    }

    /// The policies of the tier behind NetworkPolicies that have an effect, in the order of their priorities.
    fn baseline(&self) -> Vec<(&ClusterPolicyKey, &Effect)> {
        let effects =
            self.all.iter().filter_map(|(key, known)| Some((key, &**known.policy.effect.as_ref()?)));
        let mut baseline: Vec<_> =
            effects.filter(|(_, effect)| effect.tier == PolicyTier::Baseline).collect();
        baseline.sort_by_key(|(key, effect)| (effect.priority, *key));
        baseline
    }
}

impl Store {
    pub fn cluster_policy(&self, key: &ClusterPolicyKey) -> Option<&ClusterPolicy> {
        self.cluster_policies.all.get(key).map(|known| &known.policy)
    }

    /// What the policy does, if OVN can do it.
    pub fn effect(&self, key: &ClusterPolicyKey) -> Option<&Effect> {
        let effect = self.cluster_policy(key)?.effect.as_deref()?;
        let has_room =
            effect.tier == PolicyTier::Admin || self.levels_before(key) + effect.depth() <= BASELINE_LEVELS;
        (has_room && !self.lacks_tiers(effect)).then_some(effect)
    }

    /// Whether the ACLs of the database have tiers.
    pub fn has_tiers(&self) -> bool {
        self.cluster_policies.tiers == Tiers::Present
    }

    fn lacks_tiers(&self, effect: &Effect) -> bool {
        !self.has_tiers() && effect.passes()
    }

    /// What is wrong with the policy.
    pub fn cluster_policy_trouble(&self, key: &ClusterPolicyKey) -> Option<ClusterPolicyTrouble> {
        let policy = self.cluster_policy(key)?;
        match (&policy.unusable, &policy.effect, self.effect(key)) {
            (Some(unusable), _, _) => Some(ClusterPolicyTrouble::Unusable(unusable.clone())),
            (None, Some(effect), None) if self.lacks_tiers(effect) => Some(ClusterPolicyTrouble::NoTiers),
            (None, Some(_), None) => Some(ClusterPolicyTrouble::NoRoom),
            (None, Some(_), Some(_)) => self.unanswered_name(policy),
            (None, None, _) => None,
        }
    }

    fn unanswered_name(&self, policy: &ClusterPolicy) -> Option<ClusterPolicyTrouble> {
        policy.peers().find_map(|peer| match peer {
            ClusterPeer::Name(name) => {
                let why = self.names.unanswered(name)?.into();
                Some(ClusterPolicyTrouble::NoAddresses { name: Arc::clone(name), why })
            }
            ClusterPeer::Pods(_) | ClusterPeer::Network(_) | ClusterPeer::Nodes(_) => None,
        })
    }

    /// The levels of the policies that are before this one in the tier behind NetworkPolicies.
    pub fn levels_before(&self, key: &ClusterPolicyKey) -> usize {
        let baseline = self.cluster_policies.baseline();
        baseline.into_iter().take_while(|(other, _)| *other != key).map(|(_, effect)| effect.depth()).sum()
    }

    /// Decides whether ACLs have tiers. To be called only while all keys are about to be compared.
    pub fn use_tiers(&mut self, tiers: Tiers) {
        if self.cluster_policies.tiers != tiers {
            self.cluster_policies.tiers = tiers;
            let keys: Vec<ClusterPolicyKey> = self.cluster_policies.all.keys().cloned().collect();
            for key in keys {
                if self.cluster_policy_trouble(&key) == Some(ClusterPolicyTrouble::NoTiers) {
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
        let Some([pods, namespaces]) = self.cluster_policies.all.get(key).and_then(|known| known.subject)
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

    pub(super) fn replace_cluster_policies(
        &mut self,
        kind: ClusterPolicyKind,
        policies: Vec<(ClusterPolicyKey, ClusterPolicy)>,
        dirty: &mut Dirty<'_>,
    ) {
        let there: BTreeSet<&ClusterPolicyKey> = policies.iter().map(|(key, _)| key).collect();
        let known = self.cluster_policies.all.keys().filter(|key| key.kind == kind);
        let gone: Vec<ClusterPolicyKey> = known.filter(|key| !there.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_cluster_policy(key, dirty));
        for (key, policy) in policies {
            if let Some(known) = self.cluster_policies.all.get_mut(&key) {
                known.said.listed();
            }
            self.put_cluster_policy(&key, policy, dirty);
        }
    }

    pub(super) fn put_cluster_policy(
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

    pub(super) fn remove_cluster_policy(&mut self, key: &ClusterPolicyKey, dirty: &mut Dirty<'_>) {
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
        let ranks_before = self.ranks();
        // The new selectors before the old ones go: most are the same, and are searched for once.
        let now = policy.map(|policy| {
            let subject = policy.effect.as_ref().map(|effect| {
                let namespaces = effect.subject.namespaces();
                let pods = self.pods.selectors.refer_to(&effect.subject.pods);
                [pods, self.namespaces.selectors.refer_to(&namespaces)]
            });
            self.join_sets_of_peers(&user, &policy);
            Box::new(Known { policy, subject, said: Said::default() })
        });
        if let Some(before) = self.cluster_policies.all.remove(key) {
            self.forget_cluster_policy(key, &user, &before);
        }
        if let Some(known) = now {
            if let Some([pods, namespaces]) = known.subject {
                self.cluster_policies.by_pods.entry(pods).or_default().insert(key.clone());
                self.cluster_policies.by_namespaces.entry(namespaces).or_default().insert(key.clone());
            }
            for (name, protocol) in known.policy.port_names() {
                let users = self.policies.naming.entry((Arc::clone(name), protocol)).or_default();
                users.insert(user.clone());
            }
            self.join_sets_of_peers(&user, &known.policy);
            self.cluster_policies.all.insert(key.clone(), known);
        }
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
        for (other, rank) in self.ranks() {
            if ranks_before.get(&other) != Some(&rank) {
                dirty(other.into(), Scope::Whole);
            }
        }
        self.tell_cluster_policy(key, trouble_before);
    }

    /// The places of the policies in the tier behind NetworkPolicies.
    fn ranks(&self) -> BTreeMap<ClusterPolicyKey, usize> {
        let mut before = 0;
        let baseline = self.cluster_policies.baseline().into_iter();
        let rank = |(key, effect): (&ClusterPolicyKey, &Effect)| {
            let rank = before;
            before += effect.depth();
            (key.clone(), rank)
        };
        baseline.map(rank).collect()
    }

    fn forget_cluster_policy(&mut self, key: &ClusterPolicyKey, user: &AnyPolicy, known: &Known) {
        if let Some([pods, namespaces]) = known.subject {
            drop_from(&mut self.cluster_policies.by_pods, &pods, key);
            drop_from(&mut self.cluster_policies.by_namespaces, &namespaces, key);
            self.pods.selectors.release(pods);
            self.namespaces.selectors.release(namespaces);
        }
        for (name, protocol) in known.policy.port_names() {
            drop_from(&mut self.policies.naming, &(Arc::clone(name), protocol), user);
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
                ClusterPeer::Nodes(peer) => {
                    if !self.node_addresses.join(&peer.text, user) {
                        let selector = self.nodes.selectors.refer_to(&peer.nodes);
                        self.node_addresses.add(&peer.text, selector, user);
                    }
                }
                ClusterPeer::Name(name) => self.names.join(name, user),
                ClusterPeer::Network(_) => {}
            }
        }
    }

    /// Queues an event if something has begun to be wrong with the policy.
    pub(super) fn tell_cluster_policy(
        &mut self,
        key: &ClusterPolicyKey,
        before: Option<ClusterPolicyTrouble>,
    ) {
        let Some(why) = self.cluster_policy_trouble(key).filter(|now| before.as_ref() != Some(now)) else {
            return;
        };
        let Some(uid) = self.cluster_policy(key).map(|policy| Arc::clone(&policy.uid)) else { return };
        self.outbox.tell_cluster_policy(Trouble { subject: key.clone(), uid, why });
    }

    /// A namespace has come to match this selector, or has left it: other policies are about its pods.
    pub(super) fn follow_subjects(&self, id: SelectorId, namespace: &Arc<str>, dirty: &mut Dirty<'_>) {
        let policies = self.cluster_policies.by_namespaces.get(&id).into_iter().flatten();
        let subjects = policies.filter_map(|key| self.cluster_policies.all.get(key)?.subject);
        for [pods, _] in subjects {
            let of_subject = self.pods.selectors.matching_in(pods, namespace);
            of_subject.for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
        }
    }
}
