//! The rows of a NetworkPolicy, and what isolates the pods of a namespace.
//!
//! ```text
//! pod ─▶ group of its namespace and direction: drops everything but ARP       (priority 1000)
//!   └──▶ group of each policy that selects it: one ACL per rule and protocol  (priority 1001)
//!                                                └─▶ address sets of the rule's peers
//! ```
//!
//! The pods' ports name the groups that they are in (`desired/pod.rs`), so that a port and its isolation come
//! in one transaction. Rules follow the API reference of `networking.k8s.io/v1`; a rule without anything that
//! it could allow has no ACL.

use std::collections::{BTreeMap, BTreeSet};

use contract::{
    names::PolicyKey,
    namespace_annotation::Severity,
    ovn::{self, ObjectId},
    policy_annotation::Tracking,
};
use ipnet::IpNet;
use kubeapi::services::{Family, Protocol};

use super::{
    cluster::bare,
    matching::{either, ip, spelled},
    set::set_name,
};
use crate::{
    key::SetId,
    rows::{
        Acl, DesiredRow, RowName, RowSet, Table, Value,
        acl::{self, Action, Log},
    },
    store::{
        Direction, Peer, Store,
        policy::{Block, Number, Port, Rule},
    },
};

/// Priorities, as upstream's. What a policy allows comes before what isolates.
const DENY: i64 = 1000;
/// See [`DENY`].
pub(super) const ALLOW: i64 = 1001;

/// The rows of the policy; none if there is no such policy.
pub fn policy(store: &Store, key: &PolicyKey) -> RowSet {
    let Some(policy) = store.policy(key) else { return Vec::new() };
    let mut rows = vec![group(&ObjectId::policy(key))];
    let action = match policy.tracking {
        Tracking::Stateless if store.config.stateless_policies => Action::AllowStateless,
        Tracking::Stateless | Tracking::Tracked => Action::AllowRelated,
    };
    for direction in Direction::ALL {
        for (index, rule) in policy.rules(direction).into_iter().flatten().enumerate() {
            rows.extend(RuleOf { store, key, direction, index, action }.acls(rule));
        }
    }
    rows
}

/// The groups of the isolated pods of a namespace; none if it has no policies.
pub fn isolation(store: &Store, namespace: &str) -> RowSet {
    if !store.has_policies(namespace) {
        return Vec::new();
    }
    let deny = store.logging(namespace).deny;
    Direction::ALL.into_iter().flat_map(|direction| isolation_in(namespace, direction, deny)).collect()
}

fn isolation_in(namespace: &str, direction: Direction, deny: Option<Severity>) -> [DesiredRow; 3] {
    let id = ObjectId::isolated(namespace, direction.as_str());
    let acl = |kind, priority, action, matching: &str, severity| Acl {
        id: ObjectId::isolation(namespace, direction.as_str(), kind),
        of: group_name(&id),
        direction: side(direction),
        priority,
        matching: format!("{}{matching}", port_match(direction, &id)),
        action,
        log: Some(Log { name: format!("NP:{namespace}:{}", direction.as_str()), severity }),
        needs: Vec::new(),
    };
    [
        group(&id),
        acl("defaultDeny", DENY, Action::Drop, "", deny).into(),
        // Without them no connection begins. Whom they concern, the rules of IP decide.
        acl("arpAllow", ALLOW, Action::Allow, " && (arp || nd)", None).into(),
    ]
}

/// The groups that isolate a pod and open it: of its namespace, and of the policies that select it.
pub(super) fn groups_of_pod<'a>(
    store: &Store,
    namespace: &str,
    policies: impl Iterator<Item = &'a PolicyKey> + Clone,
) -> Vec<RowName> {
    let isolates = |direction| {
        let mut policies = policies.clone().filter_map(|key| store.policy(key));
        policies.any(|policy| policy.rules(direction).is_some())
    };
    let directions = Direction::ALL.into_iter().filter(|direction| isolates(*direction));
    let isolated = directions.map(|direction| ObjectId::isolated(namespace, direction.as_str()));
    let own = policies.clone().map(ObjectId::policy);
    isolated.chain(own).map(|id| group_name(&id)).collect()
}

fn group_name(id: &ObjectId) -> RowName {
    Table::PortGroup.row(id.hashed())
}

fn group(id: &ObjectId) -> DesiredRow {
    DesiredRow {
        columns: vec![("external_ids", Value::Pairs(id.external_ids().into()))],
        ..bare(group_name(id))
    }
}

fn side(direction: Direction) -> acl::Direction {
    match direction {
        Direction::Ingress => acl::Direction::ToPort,
        Direction::Egress => acl::Direction::FromPort,
    }
}

/// Matches packets to or from the ports of the group.
fn port_match(direction: Direction, group: &ObjectId) -> String {
    let port = match direction {
        Direction::Ingress => "outport",
        Direction::Egress => "inport",
    };
    format!("{port} == @{}", group.hashed())
}

/// A rule of a policy.
#[derive(Clone, Copy)]
struct RuleOf<'a> {
    store: &'a Store,
    key: &'a PolicyKey,
    direction: Direction,
    index: usize,
    action: Action,
}

/// Which packets of a protocol a rule allows.
struct Ports {
    /// As the id of the ACL has it.
    protocol: &'static str,
    /// None: of all protocols.
    matching: Option<String>,
    sets: BTreeSet<SetId>,
}

impl RuleOf<'_> {
    /// One ACL for each protocol, and for each block with exceptions.
    fn acls(self, rule: &Rule) -> Vec<DesiredRow> {
        let peers = self.peers(rule);
        let ports = self.ports(rule.ports.as_ref());
        let acls = ports.iter().flat_map(|ports| {
            peers.iter().map(|(block, matching, sets)| self.acl(ports, *block, matching, sets).into())
        });
        acls.collect()
    }

    fn acl(self, ports: &Ports, block: Option<usize>, peers: &str, sets: &BTreeSet<SetId>) -> Acl {
        let Self { store, key, direction, index, action } = self;
        let group = ObjectId::policy(key);
        let ports_match = ports.matching.as_ref().map_or_else(String::new, |ports| format!(" && {ports}"));
        let sets = sets.union(&ports.sets);
        let needs = sets.flat_map(|set| self.families().map(|family| set_name(set, family)));
        Acl {
            id: ObjectId::policy_rule(key, direction.as_str(), index, ports.protocol, block),
            of: group_name(&group),
            direction: side(direction),
            priority: ALLOW,
            matching: format!("{peers}{ports_match} && {}", port_match(direction, &group)),
            action,
            log: Some(Log {
                name: format!("NP:{}:{}:{}:{index}", key.namespace(), key.name(), direction.as_str()),
                severity: store.logging(key.namespace()).allow,
            }),
            needs: needs.collect(),
        }
    }

    /// The rule's peers as matches, with the index of a block for the id and the sets that are named.
    fn peers(self, rule: &Rule) -> Vec<(Option<usize>, String, BTreeSet<SetId>)> {
        let Some(peers) = &rule.peers else {
            return vec![(None, self.any_family(|family| Some(ip(family).to_owned())), BTreeSet::new())];
        };
        let sets: BTreeSet<SetId> =
            peers.iter().flat_map(|peer| self.store.peer_sets(self.key, peer)).collect();
        let blocks = peers.iter().filter_map(|peer| match peer {
            Peer::Block(block) => Some(block),
            Peer::Namespaces(_) | Peer::Pods(_) => None,
        });
        let blocks: Vec<(usize, &Block)> = blocks.enumerate().collect();
        let (plain, with_except): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|(_, block)| block.except.is_empty());
        let mut matches = Vec::new();
        if let Some((first, _)) = plain.first() {
            // One for all of them: each ACL is a flow for each of its ports.
            matches.push((Some(*first), self.plain_blocks(&plain), BTreeSet::new()));
        }
        matches.extend(with_except.into_iter().map(|(index, Block { net, except })| {
            let side = self.peer_side(Family::of(&net.addr()));
            let except = except.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ");
            (Some(index), format!("{side} == {net} && {side} != {{{except}}}"), BTreeSet::new())
        }));
        if !sets.is_empty() {
            let of_family = |family| {
                let mut names: Vec<String> =
                    sets.iter().map(|set| format!("${}", set_name(set, family).name)).collect();
                names.sort_unstable();
                Some(format!("{} == {{{}}}", self.peer_side(family), names.join(", ")))
            };
            matches.push((None, self.any_family(of_family), sets));
        }
        matches
    }

    fn plain_blocks(self, blocks: &[(usize, &Block)]) -> String {
        if let [(_, block)] = blocks {
            return format!("{} == {}", self.peer_side(Family::of(&block.net.addr())), block.net);
        }
        let of_family = |family| {
            let nets = blocks.iter().map(|(_, block)| block.net);
            let nets = nets.filter(|net| Family::of(&net.addr()) == family).map(|net| net.to_string());
            let nets: Vec<String> = nets.collect();
            (!nets.is_empty()).then(|| format!("{} == {{{}}}", self.peer_side(family), nets.join(", ")))
        };
        either([Family::V4, Family::V6].into_iter().filter_map(of_family).collect())
    }

    /// The rule's ports, by protocol. None of them if none of the names has a number.
    fn ports(self, ports: Option<&BTreeSet<Port>>) -> Vec<Ports> {
        let Some(ports) = ports else {
            return vec![Ports { protocol: "None", matching: None, sets: BTreeSet::new() }];
        };
        let mut of_protocol: BTreeMap<Protocol, Vec<&Number>> = BTreeMap::new();
        for Port { protocol, number } in ports {
            of_protocol.entry(*protocol).or_default().push(number);
        }
        of_protocol.into_iter().filter_map(|(protocol, numbers)| self.numbers(protocol, &numbers)).collect()
    }

    fn numbers(self, protocol: Protocol, numbers: &[&Number]) -> Option<Ports> {
        let name = spelled(protocol);
        let all = |matching| Some(Ports { protocol: name, matching: Some(matching), sets: BTreeSet::new() });
        if numbers.contains(&&Number::All) {
            return all(name.to_owned());
        }
        let (mut single, mut others, mut sets) = (Vec::new(), Vec::new(), BTreeSet::new());
        for number in numbers {
            match number {
                Number::All => {}
                Number::Range(first, last) if first == last => single.push(first.to_string()),
                Number::Range(first, last) => others.push(format!("{first}<={name}.dst<={last}")),
                Number::Named(port) => {
                    let scope = Store::port_scope(self.key, self.direction);
                    for number in self.store.port_numbers(scope, port, protocol) {
                        let set = SetId::Port(port.clone(), protocol, number);
                        // A number counts only at the pods that give it to the name.
                        let at = self.any_family(|family| {
                            Some(format!("{}.dst == ${}", ip(family), set_name(&set, family).name))
                        });
                        others.push(format!("({name}.dst=={number} && {at})"));
                        sets.insert(set);
                    }
                }
            }
        }
        match (&single[..], &others[..]) {
            ([], []) => None,
            ([one], []) => all(format!("{name} && {name}.dst=={one}")),
            (_, []) => all(format!("{name} && {name}.dst=={{{}}}", single.join(","))),
            ([], [one]) => Some(Ports { protocol: name, matching: Some(format!("{name} && {one}")), sets }),
            _ => {
                let single = single.iter().map(|number| format!("{name}.dst=={number}"));
                let terms: Vec<String> = single.chain(others.iter().cloned()).collect();
                let matching = Some(format!("{name} && ({})", terms.join(" || ")));
                Some(Ports { protocol: name, matching, sets })
            }
        }
    }

    /// The field with the address of the peer.
    fn peer_side(self, family: Family) -> String {
        let side = match self.direction {
            Direction::Ingress => "src",
            Direction::Egress => "dst",
        };
        format!("{}.{side}", ip(family))
    }

    /// The families of pods' addresses.
    fn families(self) -> impl Iterator<Item = Family> {
        self.store.config.families()
    }

    fn any_family(self, of_family: impl Fn(Family) -> Option<String>) -> String {
        either(self.families().filter_map(of_family).collect())
    }
}

/// Lets pods reach themselves through a Service: the source is not the pod's address then.
pub(super) fn allow_hairpin(store: &Store) -> Vec<DesiredRow> {
    let addresses = store.config.hairpin_addresses.iter();
    let sources: Vec<String> =
        addresses.map(|address| format!("{}.src == {address}", ip(Family::of(address)))).collect();
    if sources.is_empty() {
        return Vec::new();
    }
    let sources = either(sources);
    let acl = |direction: Direction| Acl {
        id: ObjectId::allow_hairpin(direction.as_str()),
        // A group with a port on each node's switch: a match that names no group counts on all of them.
        of: super::cluster::port_group(ovn::CLUSTER_PORT_GROUP),
        direction: side(direction),
        priority: ALLOW,
        matching: sources.clone(),
        action: Action::AllowRelated,
        log: None,
        needs: Vec::new(),
    };
    Direction::ALL.into_iter().map(|direction| acl(direction).into()).collect()
}
