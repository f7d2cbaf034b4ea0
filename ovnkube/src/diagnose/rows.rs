//! The rows of a pod's port in OVN's databases.

use std::net::IpAddr;

use contract::names::PodKey;
use ovsdb::{Condition, Connection};

use super::{CAUSES, TIME_LINE};
use crate::{
    findings::{Finding, State},
    status::databases::rows,
    trace::topology::Topology,
};

/// Whether the northbound database has the port.
pub(super) async fn committed(north: &Connection, port: &str) -> Finding {
    let found = |state, said: &str| Finding::new(TIME_LINE, "port", state, said);
    let named = Condition::equal("name", port).into();
    match rows(north, "Logical_Switch_Port", named, &["addresses", "enabled"]).await {
        Err(why) => found(State::Unknown, &why),
        Ok(rows) => match rows.first() {
            None => {
                let why = format!(
                    "the northbound database has no logical port {port}: \
                     the control plane has not written it"
                );
                found(State::Failed, &why).next("ovnkube status, and the log of the control plane")
            }
            Some(row) if row.boolean("enabled") == Some(false) => {
                found(State::Failed, &format!("the logical port {port} is disabled"))
                    .next(&format!("ovn-nbctl lsp-get-enabled {port}"))
            }
            Some(row) => {
                let addresses = row.strings("addresses").join("; ");
                found(State::Ok, &format!("{port} in the northbound database, {addresses}"))
            }
        },
    }
}

/// What is said instead of rows, of a pod whose node is in another zone.
pub(super) fn of_other_zone(topology: &Topology, node: &str, pod: &PodKey) -> Option<Finding> {
    topology.way_to_zone(node)?;
    let why = format!("node {node} is in another zone, whose databases have the pod's port");
    let finding = Finding::new(TIME_LINE, "port", State::Unknown, &why);
    Some(finding.next(&format!("ovnkube diagnose {pod}, with the databases of that zone")))
}

/// Whether a chassis has the port, and its flows.
pub(super) fn claimed(topology: &Topology, port: &str) -> Vec<Finding> {
    let found = |name: &str, state, said: &str| Finding::new(TIME_LINE, name, state, said);
    let Some(binding) = topology.port(port) else {
        let why = format!(
            "the southbound database has no port {port}: ovn-northd does not run, or is behind"
        );
        return vec![found("claimed", State::Failed, &why).next("ovn-appctl -t ovn-northd status")];
    };
    let switch = topology.datapath(binding).name;
    if binding.chassis.is_none() {
        let why = format!(
            "no chassis has claimed {port}: the interface is not there, or ovn-controller of \
             {switch} does not run or has no connection"
        );
        let next = format!(
            "ovnkube status and ovn-appctl -t ovn-controller connection-status on {switch}"
        );
        return vec![found("claimed", State::Failed, &why).next(&next)];
    }
    let endpoints: Vec<String> =
        topology.tunnel_endpoints(binding).iter().map(ToString::to_string).collect();
    let said = format!("by the chassis of {switch}, {}", endpoints.join(", "));
    let flows = match binding.is_up {
        true => found("flows", State::Ok, "the port is up"),
        false => {
            let why =
                format!("are not installed yet: ovn-controller of {switch} is behind or hangs");
            let next = format!("ovn-appctl -t ovn-controller connection-status on {switch}");
            found("flows", State::Failed, &why).next(&next)
        }
    };
    vec![found("claimed", State::Ok, &said), flows]
}

/// Addresses of the pod that another port has, too.
pub(super) fn twice(topology: &Topology, port: &str, annotated: &[IpAddr]) -> Vec<Finding> {
    let own = topology.port(port).map(|binding| binding.networks.iter().map(|net| net.addr()));
    let mut addresses: Vec<IpAddr> =
        own.into_iter().flatten().chain(annotated.iter().copied()).collect();
    addresses.sort();
    addresses.dedup();
    let of_address = |address: IpAddr| {
        let others = topology.holders(address).filter(|binding| binding.port != port);
        let others: Vec<&str> = others.map(|binding| binding.port.as_str()).take(5).collect();
        let why = format!(
            "{address} is the address of {}, too: packets reach one of them",
            others.join(", ")
        );
        let finding = Finding::new(CAUSES, "address twice", State::Failed, &why);
        let next = format!(
            "ovn-sbctl find Port_Binding logical_port={}; delete one of the pods",
            others.first()?
        );
        Some(finding.next(&next))
    };
    addresses.into_iter().filter_map(of_address).collect()
}
