//! The rows of a NetworkPolicy, and what isolates the pods of a namespace.
//!
//! ```text
//! pod ─▶ group of its namespace and direction: drops everything but ARP       (priority 1000)
//!   └──▶ group of each policy that selects it: one ACL per rule and protocol  (priority 1001)
//!                                                └─▶ address sets of the rule's peers
//! ```
//!
//! A dry run has the same ACLs at lower priorities (901), and one for what it would drop (900).
//! They pass the connection to the next tier, as if there were none.
//!
//! The pods' ports name the groups that they are in (`kinds/pod/rows.rs`), so that a port and its
//! isolation come in one transaction. Rules follow the API reference of `networking.k8s.io/v1`; a
//! rule without anything that it could allow has no ACL.

use std::collections::BTreeSet;

use contract::{
    names::PolicyKey,
    namespace_annotation::Severity,
    ovn::{self, DryRun, ObjectId},
    policy_annotation::{Enforcement, Tracking},
};

use crate::{
    key::SetId,
    kinds::network_policy::{
        object::{Peer, Rule, block::Block},
        state::port_scope,
    },
    rows::{
        Acl, DesiredRow, RowSet, Table,
        acl::{ALLOW, Action, Log, Tier},
        port_group::{group, group_name},
    },
    select::{
        matching::{any_family, in_blocks, in_sets, ip, port_match, side},
        peer::Direction,
        ports::Ports,
        set_rows::set_name,
    },
    world::Store,
};

/// The priority of what isolates, as upstream's: behind [`ALLOW`].
const DENY: i64 = 1000;
/// Priorities of dry runs, of what they would drop and what they would allow. Behind all that
/// decides in their tier: an ACL that passes skips the rest of it.
const WOULD_DROP: i64 = 900;
/// See [`WOULD_DROP`].
const WOULD_ALLOW: i64 = 901;
/// The severity of log lines about what a dry run would drop, if the namespace gives none.
const DRY_RUN_SEVERITY: Severity = Severity::Info;

/// The rows of the policy; none if there is no such policy.
pub fn policy(store: &Store, key: &PolicyKey) -> RowSet {
    let Some(policy) = store.policy(key) else { return Vec::new() };
    let mut rows = vec![group(&ObjectId::policy(key))];
    let (action, priority) = match (policy.enforcement, policy.tracking) {
        // Without tiers nothing can pass.
        (Enforcement::DryRun, _) if !store.has_tiers() => return rows,
        (Enforcement::DryRun, _) => (Action::Pass, WOULD_ALLOW),
        (Enforcement::Enforced, Tracking::Stateless) if store.config.stateless_policies => {
            (Action::AllowStateless, ALLOW)
        }
        (Enforcement::Enforced, Tracking::Stateless | Tracking::Tracked) => {
            (Action::AllowRelated, ALLOW)
        }
    };
    for direction in Direction::ALL {
        let Some(rules) = policy.rules(direction) else { continue };
        for rule in rules {
            let index = rule.index;
            rows.extend(RuleOf { store, key, direction, index, action, priority }.acls(rule));
        }
        if policy.enforcement == Enforcement::DryRun {
            rows.extend(would_drop(store, key, direction));
        }
    }
    rows
}

/// What a dry run would drop: everything that no policy allows, itself included. It is logged, and
/// left to the next tier, as it is without the policy.
fn would_drop(store: &Store, key: &PolicyKey, direction: Direction) -> [DesiredRow; 2] {
    let group = ObjectId::policy(key);
    let severity = store.logging(key.namespace()).deny.unwrap_or(DRY_RUN_SEVERITY);
    let acl = |kind, priority, matching: &str, severity| Acl {
        id: ObjectId::dry_run(key, direction.as_str(), kind),
        of: group_name(&group),
        direction: side(direction),
        tier: Tier::NetworkPolicy,
        priority,
        matching: format!("{}{matching}", port_match(direction, &group)),
        action: Action::Pass,
        log: Some(Log {
            name: DryRun::new(key, direction.as_str()).to_string(),
            severity,
            meter: ovn::DRY_RUN_METER,
        }),
        needs: vec![Table::Meter.row(ovn::DRY_RUN_METER)],
    };
    [
        acl("wouldDrop", WOULD_DROP, "", Some(severity)).into(),
        // No policy drops them. `!nd` would be true of ICMPv6 only: what `nd` needs, its negation
        // needs, too.
        acl("arpPass", WOULD_ALLOW, " && (arp || nd)", None).into(),
    ]
}

/// The groups of the isolated pods of a namespace; none if it has no policies.
pub fn isolation(store: &Store, namespace: &str) -> RowSet {
    if !store.has_policies(namespace) {
        return Vec::new();
    }
    let deny = store.logging(namespace).deny;
    Direction::ALL
        .into_iter()
        .flat_map(|direction| isolation_in(namespace, direction, deny))
        .collect()
}

fn isolation_in(namespace: &str, direction: Direction, deny: Option<Severity>) -> [DesiredRow; 3] {
    let id = ObjectId::isolated(namespace, direction.as_str());
    let acl = |kind, priority, action, matching: &str, severity| Acl {
        id: ObjectId::isolation(namespace, direction.as_str(), kind),
        of: group_name(&id),
        direction: side(direction),
        tier: Tier::NetworkPolicy,
        priority,
        matching: format!("{}{matching}", port_match(direction, &id)),
        action,
        log: Some(Log {
            name: format!("NP:{namespace}:{}", direction.as_str()),
            severity,
            meter: ovn::ACL_METER,
        }),
        needs: Vec::new(),
    };
    [
        group(&id),
        acl("defaultDeny", DENY, Action::Drop, "", deny).into(),
        // Without them no connection begins. Whom they concern, the rules of IP decide.
        acl("arpAllow", ALLOW, Action::Allow, " && (arp || nd)", None).into(),
    ]
}

/// A rule of a policy.
#[derive(Clone, Copy)]
struct RuleOf<'a> {
    store: &'a Store,
    key: &'a PolicyKey,
    direction: Direction,
    index: usize,
    action: Action,
    priority: i64,
}

impl RuleOf<'_> {
    /// One ACL for each protocol and kind of peers: blocks, and pods by their labels.
    fn acls(self, rule: &Rule) -> Vec<DesiredRow> {
        let peers = self.peers(rule);
        let scope = port_scope(self.key, self.direction);
        let ports = Ports::of(self.store, scope, rule.ports.as_ref());
        let acls = ports.iter().flat_map(|ports| {
            peers
                .iter()
                .map(|(block, matching, sets)| self.acl(ports, *block, matching, sets).into())
        });
        acls.collect()
    }

    fn acl(self, ports: &Ports, block: Option<usize>, peers: &str, sets: &BTreeSet<SetId>) -> Acl {
        let Self { store, key, direction, index, action, priority } = self;
        let group = ObjectId::policy(key);
        let ports_match =
            ports.matching.as_ref().map_or_else(String::new, |ports| format!(" && {ports}"));
        let sets = sets.union(&ports.sets);
        let needs =
            sets.flat_map(|set| self.store.config.families().map(|family| set_name(set, family)));
        Acl {
            id: ObjectId::policy_rule(key, direction.as_str(), index, ports.protocol, block),
            of: group_name(&group),
            direction: side(direction),
            tier: Tier::NetworkPolicy,
            priority,
            matching: format!("{peers}{ports_match} && {}", port_match(direction, &group)),
            action,
            log: Some(Log {
                name: format!(
                    "NP:{}:{}:{}:{index}",
                    key.namespace(),
                    key.name(),
                    direction.as_str()
                ),
                severity: store.logging(key.namespace()).allow,
                meter: ovn::ACL_METER,
            }),
            needs: needs.collect(),
        }
    }

    /// The rule's peers as matches, with the index of a block for the id and the sets that are
    /// named.
    fn peers(self, rule: &Rule) -> Vec<(Option<usize>, String, BTreeSet<SetId>)> {
        let Some(peers) = &rule.peers else {
            return vec![(
                None,
                any_family(self.store, |family| Some(ip(family).to_owned())),
                BTreeSet::new(),
            )];
        };
        let sets: BTreeSet<SetId> =
            peers.iter().flat_map(|peer| self.store.peer_sets(self.key, peer)).collect();
        let blocks = peers.iter().filter_map(|peer| match peer {
            Peer::Block(block) => Some(block),
            Peer::Namespaces(_) | Peer::Pods(_) => None,
        });
        let blocks: Vec<&Block> = blocks.collect();
        let mut matches = Vec::new();
        if !blocks.is_empty() {
            // One for all of them: each ACL is a flow for each of its ports. Upstream has one for
            // each block, by its number: a single block has the same.
            matches.push((Some(0), in_blocks(self.direction, &blocks), BTreeSet::new()));
        }
        if !sets.is_empty() {
            matches.push((None, in_sets(self.store, self.direction, &sets), sets));
        }
        matches
    }
}
