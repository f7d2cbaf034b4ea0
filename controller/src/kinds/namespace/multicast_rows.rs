//! Multicast of pods: what every switch and the cluster's router need for it, and the rules about
//! it.
//!
//! ```text
//! pod ─▶ its switch: drops all multicast                                    (priority 1011)
//!   └──▶ the group of its namespace: sends, joins, hears the namespace's pods (priority 1012)
//! port to the router: lets all multicast pass                               (priority 1012)
//! ```
//!
//! A switch learns from IGMP and MLD which ports want which groups, and asks them. The router
//! carries packets to the switches of other nodes. Rows and matches are spelled as upstream spells
//! them, so that a database from there is right as it is. Rules of NetworkPolicies have lower
//! priorities: they do not limit multicast.

use contract::ovn::ObjectId;
use kubeapi::services::Family;

use crate::{
    key::SetId,
    rows::{
        Acl, RowName, RowSet,
        acl::{Action, Tier},
        multicast::{ALLOW, TRANSIENT_V6},
        port_group::group_name,
    },
    select::{
        matching::{any_family, port_match, side},
        peer::Direction,
        set_rows::set_name,
    },
    world::Store,
};

/// The rules that let the pods of a namespace hear each other; none without the namespace's
/// annotation.
pub(crate) fn of_namespace(store: &Store, namespace: &str) -> RowSet {
    if !store.has_multicast(namespace) {
        return Vec::new();
    }
    let group = ObjectId::namespace_group(namespace);
    let set = SetId::Namespace(namespace.into());
    let set = |family: Family| set_name(&set, family);
    let sets: Vec<RowName> = store.config.families().map(set).collect();
    let rule = |direction: Direction| {
        let (matching, needs) = match direction {
            Direction::Egress => {
                (any_family(store, |family| Some(sent(family).to_owned())), Vec::new())
            }
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
pub(crate) fn sent(family: Family) -> String {
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
