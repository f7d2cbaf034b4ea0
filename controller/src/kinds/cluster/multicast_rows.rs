//! The rules of the whole cluster about multicast.

use contract::ovn::{self, ObjectId};

use crate::{
    config::Multicast,
    rows::{
        Acl, RowSet,
        acl::{Action, Tier},
        multicast::{ALLOW, DROP, TRANSIENT_V6},
        port_group::port_group,
    },
    select::{
        matching::{port_match, side},
        peer::Direction,
    },
    world::Store,
};

/// The rules of the whole cluster.
pub(crate) fn of_cluster(store: &Store) -> RowSet {
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
            // The group has a port on each node's switch: a match that names no group counts on all
            // of them.
            acl("DefaultDeny", ovn::CLUSTER_PORT_GROUP, direction, DROP, all.clone(), Action::Drop),
            acl("AllowInterNode", ovn::ROUTER_PORT_GROUP, direction, ALLOW, between, Action::Allow),
        ]
    };
    Direction::ALL.into_iter().flat_map(rules).map(Into::into).collect()
}
