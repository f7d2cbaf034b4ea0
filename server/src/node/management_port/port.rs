//! The port in Open vSwitch's database: its actual rows, and the transaction that corrects them.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use contract::external_ids::{IFACE_ID, OVN_INSTALLED};
use ovsdb::{Condition, Monitor, Mutation, NamedUuid, Row, Transaction, Updates, Uuid, Where};
use podnet::bridge::Datapath;

use super::plan::{Desired, INTERFACE};

/// The integration bridge, which ovn-controller creates.
pub(super) const BRIDGE: &str = "br-int";

ovsdb::table! {
    struct Bridge in "Bridge" {
        name: String,
        ports: Vec<Uuid>,
        datapath_type: String,
    }

    struct Port in "Port" {
        name: String,
        interfaces: Vec<Uuid>,
    }

    struct Interface in "Interface" {
        name: String,
        kind: String = "type",
        mac: Option<String>,
        mtu_request: Option<i64>,
        external_ids: BTreeMap<String, String>,
        error: Option<String>,
    }
}

/// The actual rows of the port.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Seen {
    bridge: Option<Uuid>,
    /// The bridge's datapath. In user space, a checksum that the sender left to the device stays
    /// wrong.
    pub(super) datapath: Option<Datapath>,
    port: Option<SeenPort>,
    /// Ports of this node under the names of earlier versions, each with its bridge.
    old: Vec<(Uuid, Uuid)>,
}

#[derive(Debug, Clone, PartialEq)]
struct SeenPort {
    port: Uuid,
    /// The bridge that the port is on, if it is not [`BRIDGE`].
    elsewhere: Option<Uuid>,
    interface: Option<(Uuid, Interface)>,
}

/// The names of a node's port in earlier versions: `k8s-` and the node's name, whole, or in lower
/// case and cut off at the 15 characters that the kernel allows.
pub(super) fn old_names(node: &str) -> BTreeSet<String> {
    const LONGEST: usize = 15;
    let whole = format!("k8s-{node}");
    let short = whole.to_lowercase().chars().take(LONGEST).collect();
    [whole, short].into()
}

/// The monitor request for [`Seen`].
pub(super) fn monitor(node: &str) -> Monitor {
    let old = old_names(node).into_iter().map(|name| Condition::equal("name", name));
    let ports: Vec<Condition> =
        [Condition::equal("name", INTERFACE)].into_iter().chain(old).collect();
    Monitor::new()
        // All bridges: the port may be on another one.
        .table::<Bridge>(Where::all())
        .table::<Port>(ports)
        .table::<Interface>(Condition::equal("name", INTERFACE))
}

impl Seen {
    /// Reads the rows from the copy of the database.
    pub(super) fn look(updates: &Updates, node: &str) -> Self {
        let bridges: Vec<(Uuid, &Bridge)> = updates.rows::<Bridge>().collect();
        let bridge_of = |port: Uuid| {
            bridges.iter().find(|(_, bridge)| bridge.ports.contains(&port)).map(|(uuid, _)| *uuid)
        };
        let integration = bridges.iter().find(|(_, bridge)| bridge.name == BRIDGE);
        let bridge = integration.map(|(uuid, _)| *uuid);
        let find = |name: &str| updates.rows::<Port>().find(|(_, port)| port.name == name);
        let port = find(INTERFACE).map(|(uuid, port)| {
            let interface = port
                .interfaces
                .iter()
                .find_map(|uuid| Some((*uuid, updates.row::<Interface>(*uuid)?.clone())));
            SeenPort {
                port: uuid,
                elsewhere: bridge_of(uuid).filter(|on| Some(*on) != bridge),
                interface,
            }
        });
        // A port without a bridge is about to be deleted by ovsdb-server: nothing refers to its
        // row.
        let old = old_names(node)
            .iter()
            .filter_map(|name| find(name))
            .filter_map(|(uuid, _)| Some((uuid, bridge_of(uuid)?)))
            .collect();
        Self {
            bridge,
            datapath: integration.map(|(_, bridge)| Datapath::of(&bridge.datapath_type)),
            port,
            old,
        }
    }

    /// Whether the integration bridge exists.
    pub(super) fn has_bridge(&self) -> bool {
        self.bridge.is_some()
    }

    /// The error that ovs-vswitchd reports for the interface.
    pub(super) fn error(&self) -> Option<&str> {
        self.interface().and_then(|interface| interface.error.as_deref())
    }

    /// Whether ovn-controller has connected the interface to the logical port `iface_id`.
    pub(super) fn is_installed(&self, iface_id: &str) -> bool {
        let ids = self.interface().map(|interface| &interface.external_ids);
        ids.is_some_and(|ids| {
            // Both: `ovn-installed` may still be that of a logical port before.
            ids.get(OVN_INSTALLED).is_some_and(|it| it == "true")
                && ids.get(IFACE_ID).is_some_and(|id| id == iface_id)
        })
    }

    fn interface(&self) -> Option<&Interface> {
        self.port.as_ref()?.interface.as_ref().map(|(_, interface)| interface)
    }

    /// The transaction that makes the port the desired one, and what it does, for the log. `None`
    /// if nothing differs.
    pub(super) fn change(&self, desired: &Desired) -> Option<(Transaction, Vec<String>)> {
        let bridge = self.bridge?;
        let (mut tx, mut done) = (Transaction::new(), Vec::new());
        for (port, on) in &self.old {
            // ovsdb-server deletes a Port row, and its Interface row, once no bridge refers to it.
            tx.mutate("Bridge", *on, vec![Mutation::delete("ports", *port)]);
            done.push("removed the port under its old name".to_owned());
        }
        match &self.port {
            Some(SeenPort { port, elsewhere, interface: Some((uuid, interface)) }) => {
                if let Some(other) = elsewhere {
                    tx.mutate("Bridge", *other, vec![Mutation::delete("ports", *port)]);
                    tx.mutate("Bridge", bridge, vec![Mutation::insert("ports", *port)]);
                    done.push(format!("moved the port to {BRIDGE}"));
                }
                correct(&mut tx, &mut done, *uuid, interface, desired);
            }
            // ovs-vswitchd finds the device by the name of the Interface row: without that row the
            // port cannot work.
            Some(SeenPort { port, interface: None, .. }) => {
                tx.mutate("Bridge", Where::all(), vec![Mutation::delete("ports", *port)]);
                insert(&mut tx, bridge, desired);
                done.push("made the port anew".to_owned());
            }
            None => {
                insert(&mut tx, bridge, desired);
                done.push(format!("added the port to {BRIDGE}"));
            }
        }
        (!done.is_empty()).then(|| {
            tx.comment("ovnkube: management port");
            (tx, done)
        })
    }

    /// The transaction that removes the port under all its names. `None` if there is no port.
    pub(super) fn removal(&self) -> Option<Transaction> {
        let port = self.port.as_ref().map(|seen| seen.port);
        let ports: Vec<Uuid> =
            port.into_iter().chain(self.old.iter().map(|(port, _)| *port)).collect();
        if ports.is_empty() {
            return None;
        }
        let mut tx = Transaction::new();
        for port in ports {
            tx.mutate("Bridge", Where::all(), vec![Mutation::delete("ports", port)]);
        }
        tx.comment("ovnkube: node cleaned up");
        Some(tx)
    }
}

/// Adds the port to `bridge`.
fn insert(tx: &mut Transaction, bridge: Uuid, desired: &Desired) {
    let Desired { iface_id, mac, mtu, .. } = desired;
    let ids = BTreeMap::from([(IFACE_ID.to_owned(), iface_id.clone())]);
    let row =
        Row::new().with("name", INTERFACE).with("type", "internal").with("mac", mac.to_string());
    let interface = tx.insert(
        "Interface",
        row.with("mtu_request", i64::from(mtu.bytes())).with("external_ids", ids),
    );
    let port: NamedUuid =
        tx.insert("Port", Row::new().with("name", INTERFACE).with("interfaces", &interface));
    tx.mutate("Bridge", bridge, vec![Mutation::insert("ports", &port)]);
}

/// Updates the columns that differ, and names them in `done`. Columns of others stay.
fn correct(
    tx: &mut Transaction,
    done: &mut Vec<String>,
    uuid: Uuid,
    interface: &Interface,
    desired: &Desired,
) {
    let mut row = Row::new();
    let mut columns = Vec::new();
    if interface.kind != "internal" {
        row.set("type", "internal");
        columns.push("type");
    }
    if interface.mac.as_deref() != Some(&desired.mac.to_string()) {
        row.set("mac", desired.mac.to_string());
        columns.push("mac");
    }
    let mtu = i64::from(desired.mtu.bytes());
    // Without it, ovs-vswitchd gives an internal port the lowest MTU of its bridge
    // (ovs-vswitchd.conf.db(5)).
    if interface.mtu_request != Some(mtu) {
        row.set("mtu_request", mtu);
        columns.push("mtu_request");
    }
    if !row.is_empty() {
        tx.update("Interface", uuid, row);
    }
    if interface.external_ids.get(IFACE_ID) != Some(&desired.iface_id) {
        let ids = BTreeMap::from([(IFACE_ID.to_owned(), desired.iface_id.clone())]);
        // Deleted first: an insertion leaves a key that is there as it is (RFC 7047, section 5.1).
        tx.mutate(
            "Interface",
            uuid,
            vec![
                Mutation::delete_keys("external_ids", [IFACE_ID]),
                Mutation::insert("external_ids", ids),
            ],
        );
        columns.push("external_ids:iface-id");
    }
    if !columns.is_empty() {
        done.push(format!("corrected {}", columns.join(", ")));
    }
}

#[cfg(test)]
mod tests;
