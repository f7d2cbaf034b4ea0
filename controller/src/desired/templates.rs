//! The variables of a chassis: what the templates of load balancers mean there. A NodePort is one load
//! balancer for all nodes then, with a variable instead of each node's addresses.
//!
//! Names are upstream's. Column values follow ovn-nb(5), "Chassis_Template_Var TABLE".

use std::collections::BTreeMap;

use kubeapi::services::Family;

use crate::{
    rows::{DesiredRow, RowSet, Table, Value},
    store::{Node, Store},
};

/// The beginning of the name of each variable with an address of a node.
pub(crate) const NODE_ADDRESS: &str = "NODEIP_";

/// The variable with a node's address of this family and number, from 0.
pub(super) fn node_address(family: Family, number: usize) -> String {
    format!("{NODE_ADDRESS}{family}_{number}")
}

/// The row of a chassis; none if no node of this zone is on it, or nothing needs variables.
pub fn templates(store: &Store, chassis: &str) -> RowSet {
    if !store.uses_variables() {
        return Vec::new();
    }
    let mut nodes = store.local_nodes().filter(|node| node.chassis.as_deref() == Some(chassis));
    let variables = nodes.next().map(variables).unwrap_or_default();
    if variables.is_empty() {
        return Vec::new();
    }
    vec![DesiredRow {
        id: Table::ChassisTemplateVar.row(chassis),
        columns: vec![("variables", Value::Entries(variables))],
        member_of: Vec::new(),
        or_member_of: Vec::new(),
        needs: Vec::new(),
    }]
}

fn variables(node: &Node) -> BTreeMap<Box<str>, String> {
    let of_family = |family| {
        let addresses = node.template_addresses(family).into_iter().enumerate();
        addresses.map(move |(number, address)| (node_address(family, number).into(), address.to_string()))
    };
    [Family::V4, Family::V6].into_iter().flat_map(of_family).collect()
}
