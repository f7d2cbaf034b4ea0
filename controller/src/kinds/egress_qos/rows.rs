//! The rows of the EgressQoS of a namespace.
//!
//! ```text
//! switch of each node ─▶ one QoS for each rule, with priorities from 1000 down
//! ```
//!
//! A rule has one row, which all switches share. Rows and matches are spelled as upstream spells
//! them, so that a database from there is right as it is.

use std::{collections::BTreeMap, sync::Arc};

use contract::{definition::CustomKind, ovn, ovn::ObjectId};
use kubeapi::services::Family;
use ovsdb::Datum;

use crate::{
    key::SetId,
    kinds::egress_qos::object::{EgressQos, QosRule},
    rows::{DesiredRow, Joins, Membership, RowSet, Table, Value, port_group::bare},
    select::{matching::ip, set_rows::set_name},
    world::Store,
};

/// Matches every packet with an address, whatever families the cluster has. Upstream's.
const EVERYWHERE: &str = "ip4.dst == 0.0.0.0/0 || ip6.dst == ::/0";

/// The rows of the EgressQoS; none without rules, and without a switch.
pub fn egress_qos(store: &Store, namespace: &Arc<str>) -> RowSet {
    let on_switch = |name: &str| Membership {
        joins: Joins::OnceThere,
        ..Membership::of(Table::LogicalSwitch.row(ovn::node_switch(name)), "qos_rules")
    };
    let switches: Vec<Membership> = store.local_nodes().map(|node| on_switch(&node.name)).collect();
    // ovsdb-server keeps no row that nothing holds.
    if switches.is_empty() || **namespace == *ovn::HOST_NETWORK_NAMESPACE {
        return Vec::new();
    }
    let rules = store.custom::<EgressQos>(namespace).into_iter().flat_map(|qos| &qos.rules);
    rules.map(|rule| row(store, namespace, rule, &switches)).collect()
}

fn row(store: &Store, namespace: &Arc<str>, rule: &QosRule, switches: &[Membership]) -> DesiredRow {
    let QosRule { priority, dscp, to, pods: _ } = rule;
    let id = ObjectId::rule(CustomKind::EgressQos, namespace, *priority);
    let priority = i64::try_from(*priority).expect("a priority has four digits");
    let action = Datum::map(BTreeMap::from([("dscp", *dscp)]));
    let set = set_of(namespace, rule);
    DesiredRow {
        columns: vec![
            ("direction", Value::Datum(Datum::set(["to-lport"]))),
            ("priority", Value::Datum(Datum::set([priority]))),
            ("match", Value::Datum(Datum::set([matching(store, to.as_ref(), &set)]))),
            ("action", Value::Datum(action)),
            ("external_ids", Value::pairs(id.external_ids())),
        ],
        member_of: switches.to_vec(),
        needs: store.config.families().map(|family| set_name(&set, family)).collect(),
        ..bare(Table::Qos.row(id.to_string()))
    }
}

/// The set of the pods that the rule is about.
pub(crate) fn set_of(namespace: &Arc<str>, rule: &QosRule) -> SetId {
    match &rule.pods {
        None => SetId::Namespace(Arc::clone(namespace)),
        Some(peer) => SetId::Pods(Arc::clone(&peer.text)),
    }
}

fn matching(store: &Store, to: Option<&ipnet::IpNet>, set: &SetId) -> String {
    let from = |family: Family| format!("{}.src == ${}", ip(family), set_name(set, family).name);
    let from: Vec<String> = store.config.families().map(from).collect();
    let from = match &from[..] {
        [one] => one.clone(),
        both => format!("({})", both.join(" || ")),
    };
    let to = to.map_or_else(
        || EVERYWHERE.to_owned(),
        |net| format!("{}.dst == {net}", ip(Family::of(&net.addr()))),
    );
    format!("({to}) && {from}")
}
