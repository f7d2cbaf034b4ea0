//! The rows of the EgressFirewall of a namespace.
//!
//! ```text
//! pod ─▶ group of its namespace: one ACL for each rule, with priorities from 10000 down
//! ```
//!
//! The ACLs are on the way to a port (`to-lport`), as upstream has them, although the group is the
//! one from which packets come: on that way OVN asks them in addition to what a NetworkPolicy says
//! of the pod's connections. Beside the policies, a rule that allows would open what these close
//! (docs/decisions/egress-firewall.md). Matches are spelled as upstream spells them, so that a
//! database from there is right as it is.
//!
//! The rules are about what is outside of the cluster: a network that has addresses of pods, too,
//! is limited to the others.

use std::{net::IpAddr, sync::Arc};

use contract::ovn::{self, ObjectId};
use ipnet::IpNet;
use kubeapi::services::{Family, Protocol};

use crate::{
    key::SetId,
    kinds::egress_firewall::object::{Destination, FirewallAction, FirewallPort, FirewallRule},
    rows::{
        Acl, RowName, RowSet,
        acl::{Action, Direction, Log, Tier},
        port_group::group_name,
    },
    select::{
        matching::{ip, spelled},
        node_addresses::RuleNodes,
        set_rows::set_name,
    },
    world::Store,
};

/// The priority of the first rule; each later one has a lower one. Upstream's.
const FIRST: usize = 10_000;

/// The rows of the EgressFirewall; none without rules.
pub fn egress_firewall(store: &Store, namespace: &Arc<str>) -> RowSet {
    let rules = store.egress_firewall(namespace).into_iter().flat_map(|firewall| &firewall.rules);
    rules.filter_map(|rule| acl(store, namespace, rule)).map(Into::into).collect()
}

/// The ACL of the rule; none if it is about no address.
fn acl(store: &Store, namespace: &Arc<str>, rule: &FirewallRule) -> Option<Acl> {
    let FirewallRule { index, action, to, ports } = rule;
    let group = ObjectId::namespace_group(namespace);
    let addresses = matches(store, namespace, rule);
    if addresses.is_empty() {
        return None;
    }
    let ports =
        ports.as_ref().map_or_else(String::new, |ports| format!(" && ({})", of_ports(ports)));
    let logging = store.logging(namespace);
    let (action, severity) = match action {
        FirewallAction::Allow => (Action::Allow, logging.allow),
        FirewallAction::Deny => (Action::Drop, logging.deny),
    };
    Some(Acl {
        id: ObjectId::egress_firewall_rule(namespace, *index),
        of: group_name(&group),
        direction: Direction::ToPort,
        tier: Tier::NetworkPolicy,
        priority: i64::try_from(FIRST - index).expect("a priority has five digits"),
        matching: format!("({}) && inport == @{}{ports}", addresses.join(" || "), group.hashed()),
        action,
        log: Some(Log { name: format!("EF:{namespace}:{index}"), severity, meter: ovn::ACL_METER }),
        needs: sets(store, namespace, *index, to),
    })
}

/// The sets that the match names.
fn sets(store: &Store, namespace: &Arc<str>, index: usize, to: &Destination) -> Vec<RowName> {
    let set = match to {
        Destination::Name(name) => Some(SetId::Name(Arc::clone(name))),
        Destination::Nodes(peer) => match store.nodes_of_rule(namespace, index, peer) {
            RuleNodes::Set(set) => Some(set),
            RuleNodes::None | RuleNodes::List(_) => None,
        },
        Destination::Anywhere | Destination::Net(_) => None,
    };
    let rows = |set: SetId| store.config.families().map(move |family| set_name(&set, family));
    set.into_iter().flat_map(rows).collect()
}

/// The match of the addresses of a set.
fn in_set(set: &SetId, family: Family) -> String {
    format!("{}.dst == ${}", ip(family), set_name(set, family).name)
}

/// The addresses that the match of a rule lists; none of a rule that lists none.
pub(crate) fn addresses_of_nodes(matching: &str) -> Option<Vec<IpAddr>> {
    let (addresses, _) = matching.strip_prefix('(')?.split_once(") && inport == ")?;
    addresses.split(" || ").map(|one| one.split_once(".dst == ")?.1.parse().ok()).collect()
}

/// The matches of the addresses, any of which fits.
fn matches(
    store: &Store,
    namespace: &Arc<str>,
    FirewallRule { index, action, to, .. }: &FirewallRule,
) -> Vec<String> {
    match to {
        // In parentheses: OVN does not read `&&` beside `||`.
        Destination::Anywhere => {
            let of_family = |family: Family| format!("({})", outside(store, &family.everything()));
            store.config.families().map(of_family).collect()
        }
        Destination::Net(net) => vec![outside(store, net)],
        Destination::Name(name) => {
            let set = SetId::Name(Arc::clone(name));
            let of_family = |family| in_set(&set, family);
            // Addresses of the cluster itself are in no set of a name, so that none is opened. They
            // stay denied.
            let own = store.own_addresses_of_name(name).filter(|_| *action == FirewallAction::Deny);
            let own = own.map(|address| format!("{}.dst == {address}", ip(Family::of(&address))));
            store.config.families().map(of_family).chain(own).collect()
        }
        Destination::Nodes(peer) => match store.nodes_of_rule(namespace, *index, peer) {
            RuleNodes::None => Vec::new(),
            RuleNodes::Set(set) => {
                store.config.families().map(|family| in_set(&set, family)).collect()
            }
            RuleNodes::List(addresses) => {
                let mut texts: Vec<_> = addresses
                    .iter()
                    .map(|address| (address.to_string(), Family::of(address)))
                    .collect();
                // Upstream's order.
                texts.sort();
                texts
                    .into_iter()
                    .map(|(text, family)| format!("{}.dst == {text}", ip(family)))
                    .collect()
            }
        },
    }
}

/// Matches the addresses of the network that pods cannot have.
fn outside(store: &Store, net: &IpNet) -> String {
    let dst = format!("{}.dst", ip(Family::of(&net.addr())));
    let of_pods = store.config.cluster_subnets.iter().map(|subnet| subnet.cidr);
    let excluded = of_pods.filter(|of| of.contains(net) || net.contains(of));
    let excluded: Vec<String> = excluded.map(|of| format!("{dst} != {of}")).collect();
    if excluded.is_empty() {
        return format!("{dst} == {net}");
    }
    format!("{dst} == {net} && {}", excluded.join("&&"))
}

/// Matches any of the ports.
fn of_ports(ports: &[FirewallPort]) -> String {
    let of_protocol = |protocol: Protocol| {
        let name = spelled(protocol);
        let mut own = ports.iter().filter(|port| port.protocol == protocol).peekable();
        own.peek()?;
        let numbers: Option<Vec<String>> =
            own.map(|port| Some(format!(" {name}.dst == {} ", port.number?))).collect();
        Some(match numbers {
            Some(numbers) => format!("({name} && ({}))", numbers.join("||")),
            None => format!("({name})"),
        })
    };
    let order = [Protocol::Udp, Protocol::Tcp, Protocol::Sctp];
    order.into_iter().filter_map(of_protocol).collect::<Vec<_>>().join(" || ")
}
