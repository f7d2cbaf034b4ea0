//! The rows of a node: its switch, its port on the cluster's router, its management port.

use std::collections::BTreeMap;

use ovsdb::Datum;

use crate::{
    rows::{DesiredRow, Membership, RowSet, Table, Value},
    store::Store,
};

/// The rows of the node `name`; none as long as it has no subnet.
pub fn node(store: &Store, name: &str) -> RowSet {
    let Some(node) = store.node(name).filter(|node| !node.subnets.is_empty()) else { return Vec::new() };
    let switch = Table::LogicalSwitch.row(name);
    vec![
        DesiredRow {
            id: switch.clone(),
            columns: vec![("other_config", Value::Pairs { with: BTreeMap::from([("subnet", node.subnets[0].to_string())]), without: &[] })],
            member_of: Vec::new(),
        },
        DesiredRow {
            id: Table::LogicalSwitchPort.row(format!("stor-{name}")),
            columns: vec![
                ("type", Value::Datum(Datum::from("router"))),
                ("addresses", Value::Datum(Datum::set(["router"]))),
                ("options", Value::Pairs { with: BTreeMap::from([("router-port", format!("rtos-{name}"))]), without: &[] }),
            ],
            member_of: vec![Membership { of: switch, column: "ports" }],
        },
    ]
}
