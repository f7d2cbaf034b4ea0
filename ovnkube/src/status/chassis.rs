//! The chassis of the southbound database: each node's tunnel endpoint, and how far its
//! ovn-controller is behind.

use std::collections::BTreeMap;

use ovsdb::{Connection, Uuid, Where};

use super::{CHASSIS, databases::rows};
use crate::findings::{Finding, State};

/// A chassis and its tunnels.
#[derive(Debug, Default)]
struct Chassis {
    hostname: String,
    encaps: Vec<String>,
    nb_cfg: i64,
    ports: usize,
    /// Ports that were claimed, and whose flows are not installed yet.
    waiting: usize,
}

pub(super) async fn findings(south: &Connection, node: Option<&str>) -> Vec<Finding> {
    match read(south).await {
        Ok((chassis, nb_cfg)) => {
            let of_node = |(name, chassis): &(&String, &Chassis)| {
                node.is_none_or(|node| *name == node || is_host(&chassis.hostname, node))
            };
            let mut findings: Vec<Finding> = chassis
                .iter()
                .filter(of_node)
                .map(|(name, chassis)| finding(name, chassis, nb_cfg))
                .collect();
            if findings.is_empty() {
                let (name, of) =
                    node.map_or(("none", String::new()), |node| (node, format!(" of {node}")));
                let why = format!(
                    "the southbound database has no chassis{of}: no ovn-controller has reached it from there"
                );
                let finding = Finding::new(CHASSIS, name, State::Failed, &why);
                findings.push(
                    finding.next("ovn-appctl -t ovn-controller connection-status on the node"),
                );
            }
            findings
        }
        Err(why) => vec![Finding::new(CHASSIS, "chassis", State::Unknown, &why)],
    }
}

/// Whether the host is the node: a host's name may have a domain that the node's lacks.
pub(super) fn is_host(hostname: &str, node: &str) -> bool {
    hostname == node || hostname.split('.').next() == Some(node)
}

/// All chassis by name, and the generation of the configuration that they are to reach.
async fn read(south: &Connection) -> Result<(BTreeMap<String, Chassis>, i64), String> {
    let (chassis, encaps) = (["name", "hostname", "encaps"], ["type", "ip"]);
    let all = rows(south, "Chassis", Where::all(), &chassis).await?;
    let encaps = rows(south, "Encap", Where::all(), &encaps).await?;
    let private = rows(south, "Chassis_Private", Where::all(), &["name", "nb_cfg"]).await?;
    let bindings = rows(south, "Port_Binding", Where::all(), &["chassis", "up", "type"]).await?;
    let global = rows(south, "SB_Global", Where::all(), &["nb_cfg"]).await?;
    let encaps: BTreeMap<Uuid, String> = encaps
        .iter()
        .map(|row| {
            (
                row.uuid(),
                format!(
                    "{} {}",
                    row.string("type").unwrap_or("?"),
                    row.string("ip").unwrap_or("?")
                ),
            )
        })
        .collect();
    let mut found: BTreeMap<String, Chassis> = BTreeMap::new();
    let mut names: BTreeMap<Uuid, String> = BTreeMap::new();
    for row in &all {
        let name = row.string("name").unwrap_or_default().to_owned();
        let tunnels =
            row.uuids("encaps").iter().filter_map(|encap| encaps.get(encap).cloned()).collect();
        let hostname = row.string("hostname").unwrap_or_default().to_owned();
        names.insert(row.uuid(), name.clone());
        found.insert(name, Chassis { hostname, encaps: tunnels, ..Chassis::default() });
    }
    for row in &private {
        if let Some(chassis) = row.string("name").and_then(|name| found.get_mut(name)) {
            chassis.nb_cfg = row.integer("nb_cfg").unwrap_or_default();
        }
    }
    for row in bindings.iter().filter(|row| row.string("type") == Some("")) {
        let name = row.uuids("chassis").first().and_then(|chassis| names.get(chassis));
        if let Some(chassis) = name.and_then(|name| found.get_mut(name)) {
            chassis.ports += 1;
            chassis.waiting += usize::from(row.boolean("up") == Some(false));
        }
    }
    let nb_cfg = global.first().and_then(|row| row.integer("nb_cfg")).unwrap_or_default();
    Ok((found, nb_cfg))
}

fn finding(name: &str, chassis: &Chassis, nb_cfg: i64) -> Finding {
    let Chassis { hostname, encaps, nb_cfg: reached, ports, waiting } = chassis;
    let shown = if hostname.is_empty() { name } else { hostname };
    let behind = nb_cfg - reached;
    let on = |command: &str| format!("{command} on {shown}");
    let found = if encaps.is_empty() {
        Finding::new(
            CHASSIS,
            shown,
            State::Failed,
            "has no tunnel endpoint: other nodes cannot reach its pods",
        )
        .next(&on("ovs-vsctl get Open_vSwitch . external_ids:ovn-encap-ip"))
    } else if *waiting > 0 {
        let why = format!(
            "{waiting} of its {ports} ports have no flows yet: its ovn-controller is behind or hangs"
        );
        Finding::new(CHASSIS, shown, State::Warning, &why)
            .next(&on("ovn-appctl -t ovn-controller connection-status"))
    } else {
        Finding::new(CHASSIS, shown, State::Ok, &format!("{}, {ports} ports", encaps.join(", ")))
    };
    found.with(CHASSIS, name).with("ports", *ports).with("waiting", *waiting).with("behind", behind)
}
