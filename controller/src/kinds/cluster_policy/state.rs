//! The policies of the whole cluster: which pods each is about, and what it refers to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use contract::names::ClusterPolicyKey;

use crate::{
    kinds::cluster_policy::object::{ClusterPolicy, Effect, OWN_LEVELS, PolicyTier},
    rows::acl::Tiers,
    select::selectors::SelectorId,
    status_writeback::{RowsState, StatusWriteback},
};

/// Levels of the tier before NetworkPolicies: priorities of ACLs from 32767 down to 1100. The last
/// one is for what has no room.
pub(crate) const ADMIN_LEVELS: usize = 31_668;
/// The same behind NetworkPolicies: from 999 down to 0.
pub(crate) const BASELINE_LEVELS: usize = 1000;

/// A policy, and the selectors of its subject: of pods and of namespaces.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) policy: ClusterPolicy,
    pub(crate) subject: Option<[SelectorId; 2]>,
    /// With the generation that it was said of.
    pub(crate) said: StatusWriteback<(i64, RowsState)>,
}

/// The known policies.
#[derive(Debug, Default)]
pub(crate) struct ClusterPolicies {
    pub(crate) all: BTreeMap<ClusterPolicyKey, Box<Known>>,
    /// By the selector of the pods of their subjects.
    pub(crate) by_pods: HashMap<SelectorId, BTreeSet<ClusterPolicyKey>>,
    /// By the selector of the namespaces of their subjects.
    pub(crate) by_namespaces: HashMap<SelectorId, BTreeSet<ClusterPolicyKey>>,
    /// Of those with an effect.
    pub(crate) placements: BTreeMap<ClusterPolicyKey, Placement>,
    /// Whether ACLs have tiers.
    pub(crate) tiers: Tiers,
}

/// Where the rules of a policy are within its tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Their levels begin at this one.
    From(usize),
    /// OVN cannot do what the policy says. What it denies is denied at this level, without the
    /// exceptions of the rules before: it must not be open.
    DenialsAt(usize),
}

impl ClusterPolicies {
    /// In the order of their keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ClusterPolicyKey> {
        self.all.keys()
    }

    pub(crate) fn said(
        &self,
        key: &ClusterPolicyKey,
    ) -> Option<&StatusWriteback<(i64, RowsState)>> {
        self.all.get(key).map(|known| &known.said)
    }

    pub(crate) fn said_mut(
        &mut self,
        key: &ClusterPolicyKey,
    ) -> Option<&mut StatusWriteback<(i64, RowsState)>> {
        self.all.get_mut(key).map(|known| &mut known.said)
    }

    /// Where the rules of each policy are. Policies before NetworkPolicies have levels of their own
    /// for their priority, so that a policy more moves no other one's ACLs; only behind one with
    /// more levels they move. In the last tier there is less room, and levels are counted.
    pub(crate) fn place(&self) -> BTreeMap<ClusterPolicyKey, Placement> {
        let effects =
            self.all.iter().filter_map(|(key, known)| Some((key, known.policy.effect.as_deref()?)));
        let mut effects: Vec<(&ClusterPolicyKey, &Effect)> = effects.collect();
        effects.sort_by_key(|(key, effect)| (effect.tier, effect.priority, *key));
        let mut placements = BTreeMap::new();
        let (mut next, mut before) = (0, None);
        for (key, effect) in effects {
            let place = (effect.tier, effect.priority);
            let (first, levels) = match effect.tier {
                // Those of one priority have no order among each other.
                PolicyTier::Admin if before.is_some_and(|(other, _)| other == place) => {
                    (before.map_or(0, |(_, first)| first), ADMIN_LEVELS)
                }
                PolicyTier::Admin => {
                    (next.max(usize::from(effect.priority) * OWN_LEVELS), ADMIN_LEVELS)
                }
                PolicyTier::Baseline
                    if before.is_some_and(|((tier, _), _)| tier == PolicyTier::Baseline) =>
                {
                    (next, BASELINE_LEVELS)
                }
                PolicyTier::Baseline => (0, BASELINE_LEVELS),
            };
            let last = levels - 1;
            let (placement, end) = match first + effect.depth() {
                _ if self.tiers == Tiers::Absent && effect.passes() => {
                    (Placement::DenialsAt(first.min(last)), first + 1)
                }
                end if end <= last => (Placement::From(first), end),
                _ => (Placement::DenialsAt(last), first),
            };
            next = match before {
                Some((other, _)) if other == place => next.max(end),
                Some(_) | None => end,
            };
            before = Some((place, first));
            placements.insert(key.clone(), placement);
        }
        placements
    }
}
