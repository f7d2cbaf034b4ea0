//! The pod's interface in Open vSwitch, on its node.

use contract::{
    external_ids::{IFACE_ID, OVN_INSTALLED},
    paths::{INTEGRATION_BRIDGE, PLUGIN_LOG},
};
use ovsdb::{Condition, Connection, Datum};

use super::TIME_LINE;
use crate::{
    findings::{Finding, State},
    status::{Machine, PATIENCE, answer, databases::rows},
};

/// The finding's name.
pub(super) const INTERFACE: &str = "interface";

/// What is said if the pod's node has none.
pub(super) fn none_on(node: &str) -> Finding {
    let why = format!("none on node {node}: no ADD has succeeded, or DEL was called");
    let next = format!("kubectl describe pod, and {PLUGIN_LOG} on the node");
    Finding::new(TIME_LINE, INTERFACE, State::Failed, &why).next(&next)
}

/// Nothing on a machine that does not have the pod.
pub(super) async fn findings(machine: &Machine, port: &str) -> Vec<Finding> {
    let options = ovsdb::Options { connect_timeout: PATIENCE, ..ovsdb::Options::small() };
    let Ok(database) = answer(Connection::open(&machine.ovsdb, "Open_vSwitch", options)).await
    else {
        return Vec::new();
    };
    let own = Condition::includes("external_ids", Datum::map([(IFACE_ID, port)]));
    let columns = ["name", "error", "ofport", "mtu", "external_ids"];
    let Ok(found) = rows(&database, "Interface", own.into(), &columns).await else {
        return Vec::new();
    };
    let finding = |row: &ovsdb::SelectedRow| {
        let name = row.string("name").unwrap_or_default();
        let said = |state, why: &str| {
            let mtu = row.integer("mtu").unwrap_or_default();
            Finding::new(TIME_LINE, INTERFACE, state, why).with("mtu", mtu).with("interface", name)
        };
        let ids = row.map("external_ids");
        let is_installed = ids.get(OVN_INSTALLED).is_some_and(|value| value == "true");
        match (row.strings("error").first(), row.integer("ofport")) {
            (Some(error), _) => said(State::Failed, &format!("{name}: {error}"))
                .next(&format!("ip link show {name}; a new pod gets a new interface")),
            (None, None | Some(..1)) => said(
                State::Failed,
                &format!("{name} has no port in {INTEGRATION_BRIDGE} yet"),
            )
            .next("ovs-appctl -t ovs-vswitchd version, and /var/log/openvswitch/ovs-vswitchd.log"),
            (None, Some(number)) if !is_installed => {
                let why = format!(
                    "{name}, port {number} of {INTEGRATION_BRIDGE}; OVN has not installed its flows"
                );
                said(State::Failed, &why).next("ovn-appctl -t ovn-controller connection-status")
            }
            (None, Some(number)) => {
                let mtu = row.integer("mtu").unwrap_or_default();
                said(
                    State::Ok,
                    &format!("{name}, port {number} of {INTEGRATION_BRIDGE}, MTU {mtu}"),
                )
            }
        }
    };
    let mut findings: Vec<Finding> = found.iter().map(finding).collect();
    if findings.len() > 1 {
        let why = format!("{} interfaces of this node are said to be {port}", findings.len());
        findings.push(
            Finding::new(TIME_LINE, INTERFACE, State::Failed, &why)
                .next(&format!("ovs-vsctl find Interface external_ids:iface-id={port}")),
        );
    }
    findings
}
