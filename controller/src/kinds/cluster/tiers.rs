//! Every tier of ACLs is asked about connections that a policy has stopped.
//!
//! OVN of 25.03 and 26.03 (others with tiers not tried) lets such a connection pass in the first
//! tier where no ACL matches: the flow for what no ACL decides is an answer there, and not the next
//! question (`ovn-sbctl lflow-list`, `ls_out_acl_eval`, priority 1: `ip && ct.est &&
//! ct_mark.blocked == 1`). So each second packet of a connection from before a policy went through:
//! a packet that is dropped marks the connection, the next one passes and takes the mark away. An
//! ACL that matches everything and passes to the next tier is before that flow. Before its
//! neighbour, too, which has new connections tracked: so the last tier allows what no tier decides,
//! and has it tracked.
//!
//! Upstream has no such rows. A start on its database writes nothing: they come with this
//! controller's first change.

use contract::ovn::{self, ObjectId};

use crate::{
    rows::{
        Acl, RowName, RowSet, Table,
        acl::{Action, Direction, Tier},
        port_group::port_group,
    },
    world::Store,
};

/// Behind every other ACL of its tier.
const LAST: i64 = 0;
/// The tiers, with what happens to what they do not decide.
const TIERS: [(Tier, Action); 4] = [
    (Tier::First, Action::Pass),
    (Tier::Admin, Action::Pass),
    (Tier::NetworkPolicy, Action::Pass),
    (Tier::Baseline, Action::AllowRelated),
];

pub(crate) fn next_tiers(store: &Store) -> RowSet {
    if !store.asks_every_tier() {
        return RowSet::new();
    }
    let acl = |(tier, action): (Tier, Action)| Acl {
        id: ObjectId::next_tier(tier.number()),
        // A group with a port on each node's switch: a match that names no group counts on all of
        // them.
        of: port_group(ovn::CLUSTER_PORT_GROUP),
        direction: Direction::ToPort,
        tier,
        priority: LAST,
        matching: "ip".to_owned(),
        action,
        log: None,
        needs: Vec::new(),
    };
    TIERS.into_iter().map(acl).map(Into::into).collect()
}

/// The names of these rows.
pub(crate) fn names() -> impl Iterator<Item = RowName> {
    TIERS
        .into_iter()
        .map(|(tier, _)| Table::Acl.row(ObjectId::next_tier(tier.number()).to_string()))
}
