//! The variables of a chassis: what the templates of load balancers mean there. A NodePort is one
//! load balancer for all nodes then, with a variable instead of each node's addresses.
//!
//! Names are upstream's. Column values follow ovn-nb(5), "Chassis_Template_Var TABLE".

use std::collections::BTreeMap;

use kubeapi::services::Family;

use crate::{
    kinds::{
        node::object::Node,
        service::rows::variables::{self as of_services, node_address},
    },
    rows::{DesiredRow, RowSet, Table, Value},
    world::Store,
};

/// The row of a chassis; none if no node of this zone is on it, or nothing needs variables.
pub fn templates(store: &Store, chassis: &str) -> RowSet {
    if !store.uses_variables() {
        return Vec::new();
    }
    let mut nodes = store.local_nodes().filter(|node| node.chassis.as_deref() == Some(chassis));
    let variables = nodes.next().map(|node| variables(store, node)).unwrap_or_default();
    if variables.is_empty() {
        return Vec::new();
    }
    vec![DesiredRow {
        id: Table::ChassisTemplateVar.row(chassis),
        columns: vec![("variables", Value::Lists(variables))],
        member_of: Vec::new(),
        or_member_of: Vec::new(),
        or_columns: Vec::new(),
        needs: Vec::new(),
    }]
}

fn variables(store: &Store, node: &Node) -> BTreeMap<Box<str>, String> {
    let of_family = |family| {
        let addresses = node.node_port_addresses(family).into_iter().enumerate();
        addresses.map(move |(number, address)| {
            (node_address(family, number).into(), address.to_string())
        })
    };
    let of_node = [Family::V4, Family::V6].into_iter().flat_map(of_family);
    let services = store.services_with_variables();
    of_node.chain(services.flat_map(|key| of_services::variables(store, key, node))).collect()
}
