//! Multicast of pods: what every switch and the cluster's router need for it, and the rules about it.
//!
//! ```text
//! pod ─▶ its switch: drops all multicast                                    (priority 1011)
//!   └──▶ the group of its namespace: sends, joins, hears the namespace's pods (priority 1012)
//! port to the router: lets all multicast pass                               (priority 1012)
//! ```
//!
//! A switch learns from IGMP and MLD which ports want which groups, and asks them. The router carries packets
//! to the switches of other nodes. Rows and matches are spelled as upstream spells them, so that a database
//! from there is right as it is. Rules of NetworkPolicies have lower priorities: they do not limit multicast.

use std::collections::BTreeMap;

use contract::ovn::{self, ObjectId};
use ipnet::IpNet;
use kubeapi::services::Family;

use super::{
    cluster::port_group,
    matching::{any_family, port_match, side},
    policy::group_name,
    set::set_name,
};
use crate::{
    config::Multicast,
    key::SetId,
    rows::{
        Acl, RowName, RowSet,
        acl::{Action, Tier},
    },
    store::{Direction, Store},
};

/// Multicast is dropped, unless a rule of the next priority lets it pass. Both are upstream's.
const DROP: i64 = 1011;
/// See [`DROP`].
const ALLOW: i64 = 1012;
/// Matches groups of IPv6 that are not assigned for good: those have the bit `T` (RFC 4291 §2.7). Neighbour
/// discovery needs the others.
const TRANSIENT_V6: &str = "(ip6.dst[120..127] == 0xff && ip6.dst[116] == 1)";

/// The keys of a switch's `other_config` that [`of_switch`] gives values.
pub(super) const SWITCH_KEYS: [&str; 5] =
    ["mcast_snoop", "mcast_querier", "mcast_eth_src", "mcast_ip4_src", "mcast_ip6_src"];
/// The key of the router's `options` that lets it carry multicast.
pub(super) const RELAY: &str = "mcast_relay";

/// The rules of the whole cluster.
pub(super) fn of_cluster(store: &Store) -> RowSet {
    if store.config.multicast == Multicast::Off {
        return Vec::new();
    }
    let all = format!("(ip4.mcast || mldv1 || mldv2 || {TRANSIENT_V6})");
    let routers = ObjectId::cluster_port_group(ovn::ROUTER_PORT_GROUP);
    let acl = |kind, group, direction: Direction, priority, matching, action| Acl {
        id: ObjectId::multicast(kind, direction.as_str()),
        of: port_group(group),
        direction: side(direction),
        tier: Tier::NetworkPolicy,
        priority,
        matching,
        action,
        log: None,
        needs: Vec::new(),
    };
    let rules = |direction: Direction| {
        let between = format!("{} && {all}", port_match(direction, &routers));
        [
            // The group has a port on each node's switch: a match that names no group counts on all of them.
            acl("DefaultDeny", ovn::CLUSTER_PORT_GROUP, direction, DROP, all.clone(), Action::Drop),
            acl("AllowInterNode", ovn::ROUTER_PORT_GROUP, direction, ALLOW, between, Action::Allow),
        ]
    };
    Direction::ALL.into_iter().flat_map(rules).map(Into::into).collect()
}

/// The rules that let the pods of a namespace hear each other; none without the namespace's annotation.
pub(super) fn of_namespace(store: &Store, namespace: &str) -> RowSet {
    if !store.has_multicast(namespace) {
        return Vec::new();
    }
    let group = ObjectId::namespace_group(namespace);
    let set = SetId::Namespace(namespace.into());
    let set = |family: Family| set_name(&set, family);
    let sets: Vec<RowName> = store.config.families().map(set).collect();
    let rule = |direction: Direction| {
        let (matching, needs) = match direction {
            Direction::Egress => (any_family(store, |family| Some(sent(family).to_owned())), Vec::new()),
            Direction::Ingress => {
                (any_family(store, |family| Some(heard(family, &set(family).name))), sets.clone())
            }
        };
        Acl {
            id: ObjectId::multicast_of(namespace, direction.as_str()),
            of: group_name(&group),
            direction: side(direction),
            tier: Tier::NetworkPolicy,
            priority: ALLOW,
            matching: format!("{} && {matching}", port_match(direction, &group)),
            action: Action::Allow,
            log: None,
            needs,
        }
        .into()
    };
    Direction::ALL.into_iter().map(rule).collect()
}

/// Matches what a pod sends to groups, and with what it joins them: IGMP is sent to a group, too.
fn sent(family: Family) -> String {
    match family {
        Family::V4 => "ip4.mcast".to_owned(),
        Family::V6 => format!("(mldv1 || mldv2 || {TRANSIENT_V6})"),
    }
}

/// Matches the switch's questions, and what pods in the set send.
fn heard(family: Family, set: &str) -> String {
    match family {
        Family::V4 => format!("(igmp || (ip4.src == ${set} && ip4.mcast))"),
        Family::V6 => format!("(mldv1 || mldv2 || (ip6.src == ${set} && {TRANSIENT_V6}))"),
    }
}

/// What the `other_config` of a node's switch has for multicast: it learns who has joined which group, and
/// asks in the name of the router's port.
pub(super) fn of_switch(store: &Store, subnets: &[IpNet]) -> BTreeMap<&'static str, String> {
    let gateways = ovn::gateways(subnets);
    let Some(mac) = ovn::port_mac(&gateways).filter(|_| store.config.multicast == Multicast::On) else {
        return BTreeMap::new();
    };
    let switches = ["mcast_snoop", "mcast_querier"].map(|key| (key, "true".to_owned()));
    let sources = gateways.iter().map(|gateway| match gateway {
        IpNet::V4(v4) => ("mcast_ip4_src", v4.addr().to_string()),
        // MLD is sent from link-local addresses alone (RFC 3810 §5).
        IpNet::V6(_) => ("mcast_ip6_src", mac.link_local().to_string()),
    });
    switches.into_iter().chain([("mcast_eth_src", mac.to_string())]).chain(sources).collect()
}
