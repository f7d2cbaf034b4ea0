//! The rows of a policy of the whole cluster.
//!
//! ```text
//! pod ─▶ group of each policy that is about it: ACLs of its rules, in its tier
//!                                                 └─▶ address sets of the rules' peers: pods, nodes, names
//! ```
//!
//! | tier | priorities of ACLs |
//! |---|---|
//! | before NetworkPolicies | 31 for each of the priorities 0 to 1000, and what a policy needs beyond, down to 1100 |
//! | NetworkPolicies | 1000 and above, below 1100 |
//! | behind NetworkPolicies | those that the policies need, from 999 down |
//!
//! So the priorities alone keep the order where a database has no tiers; what they cannot do is to
//! pass. Those of the first tier depend on the policy alone, unless one needs more than 31: a
//! policy more moves no other one's ACLs. In the last tier there is less room, and policies are
//! counted. Where there is none, rules that deny share the last priority.

use std::collections::{BTreeMap, BTreeSet};

use contract::{names::ClusterPolicyKey, ovn::ObjectId};
use ipnet::IpNet;

use crate::{
    key::SetId,
    kinds::cluster_policy::{
        object::{ClusterPeer, ClusterRule, PolicyTier, RuleAction},
        state::Placement,
    },
    rows::{
        Acl, RowSet,
        acl::{Action, Tier},
        port_group::{group, group_name},
    },
    select::{
        matching::{any_family, but_hosts, in_nets, in_sets, ip, port_match, side},
        peer::Direction,
        ports::Ports,
        set_rows::set_name,
    },
    world::Store,
};

/// The highest priority of an ACL, of the first level of a policy with the priority 0.
const FIRST: usize = 32767;
/// The same of the first policy behind NetworkPolicies, whose own ACLs begin at 1000.
const FIRST_BASELINE: usize = 999;

/// The rows of the policy; none if there is no such policy. One that cannot be used has a group
/// without ACLs.
pub fn cluster_policy(store: &Store, key: &ClusterPolicyKey) -> RowSet {
    if store.cluster_policy(key).is_none() {
        return Vec::new();
    }
    let mut rows = vec![group(&ObjectId::cluster_policy(key))];
    let Some((effect, placement)) = store.effect(key) else { return rows };
    for direction in Direction::ALL {
        for (index, (level, rule)) in effect.levels(direction).enumerate() {
            let level = match placement {
                Placement::From(first) => first + level,
                Placement::DenialsAt(level) if rule.action == RuleAction::Deny => level,
                Placement::DenialsAt(_) => continue,
            };
            let priority = priority(effect.tier, level);
            let rule_of = RuleOf { store, key, tier: effect.tier, direction, index, priority };
            rows.extend(rule_of.acls(rule).into_iter().map(Into::into));
        }
    }
    rows
}

fn priority(tier: PolicyTier, level: usize) -> i64 {
    let first = match tier {
        PolicyTier::Admin => FIRST,
        PolicyTier::Baseline => FIRST_BASELINE,
    };
    i64::try_from(first - level).expect("a priority has five digits")
}

/// A rule of a policy.
#[derive(Clone, Copy)]
struct RuleOf<'a> {
    store: &'a Store,
    key: &'a ClusterPolicyKey,
    tier: PolicyTier,
    direction: Direction,
    index: usize,
    priority: i64,
}

impl RuleOf<'_> {
    /// One ACL for each protocol and each sort of peers.
    fn acls(self, rule: &ClusterRule) -> Vec<Acl> {
        let peers = self.peers(rule);
        let ports = Ports::of(self.store, None, rule.ports.as_ref());
        let acls = ports.iter().flat_map(|ports| {
            peers
                .iter()
                .map(|(sort, matching, sets)| self.acl(rule.action, ports, sort, matching, sets))
        });
        acls.collect()
    }

    fn acl(
        self,
        action: RuleAction,
        ports: &Ports,
        sort: &str,
        peers: &str,
        sets: &BTreeSet<SetId>,
    ) -> Acl {
        let Self { store, key, tier, direction, index, priority } = self;
        let group = ObjectId::cluster_policy(key);
        let ports_match =
            ports.matching.as_ref().map_or_else(String::new, |ports| format!(" && {ports}"));
        let sets = sets.union(&ports.sets);
        let needs =
            sets.flat_map(|set| store.config.families().map(|family| set_name(set, family)));
        Acl {
            id: ObjectId::cluster_policy_rule(key, direction.as_str(), index, ports.protocol, sort),
            of: group_name(&group),
            direction: side(direction),
            tier: match tier {
                PolicyTier::Admin => Tier::Admin,
                PolicyTier::Baseline => Tier::Baseline,
            },
            priority,
            matching: format!("{peers}{ports_match} && {}", port_match(direction, &group)),
            action: match (action, tier) {
                (RuleAction::Deny, _) => Action::Drop,
                (RuleAction::Pass, PolicyTier::Admin) => Action::Pass,
                // Behind the last tier everything is allowed.
                (RuleAction::Accept, _) | (RuleAction::Pass, PolicyTier::Baseline) => {
                    Action::AllowRelated
                }
            },
            // Whether it is logged is the administrator's.
            log: None,
            needs: needs.collect(),
        }
    }

    /// The rule's peers as matches, with a word for the id and the sets that are named.
    fn peers(self, rule: &ClusterRule) -> Vec<(&'static str, String, BTreeSet<SetId>)> {
        let Self { store, direction, .. } = self;
        let Some(peers) = &rule.peers else {
            // Of a rule that denies all because a part of it cannot be used. What comes from the
            // hosts of pods, such as a kubelet's probes, no ingress rule can be about: one typo
            // would restart every pod with a probe.
            let all = any_family(store, |family| {
                Some(match direction {
                    Direction::Ingress => but_hosts(store, family),
                    Direction::Egress => ip(family).to_owned(),
                })
            });
            return vec![("all", all, BTreeSet::new())];
        };
        let mut nets: Vec<IpNet> = Vec::new();
        let mut sets: BTreeMap<&'static str, BTreeSet<SetId>> = BTreeMap::new();
        for peer in peers {
            let sort = match peer {
                ClusterPeer::Network(net) => {
                    nets.push(*net);
                    continue;
                }
                ClusterPeer::Pods(_) => "pods",
                ClusterPeer::Nodes(_) => "nodes",
                ClusterPeer::Name(_) => "domainNames",
            };
            sets.entry(sort).or_default().extend(peer.set());
        }
        let mut matches = Vec::new();
        if !nets.is_empty() {
            matches.push(("networks", in_nets(direction, &nets), BTreeSet::new()));
        }
        matches.extend(
            sets.into_iter().map(|(sort, sets)| (sort, in_sets(store, direction, &sets), sets)),
        );
        matches
    }
}
