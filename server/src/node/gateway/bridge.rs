//! The bridge to the outside in Open vSwitch's database: its ports, and the entry that tells
//! ovn-controller of it. Pure.

use contract::external_ids::GATEWAY_BRIDGE;
use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Datum, Monitor, Mutation, Row, Transaction, Updates, Uuid, Where};

use super::{
    nic::{Change, Told},
    trial::Trial,
};

/// The integration bridge.
const INTEGRATION: &str = "br-int";
/// The key of the `Open_vSwitch` table with pairs `NETWORK:BRIDGE`, separated by commas
/// (ovn-controller(8)).
pub(in crate::node) const MAPPINGS: &str = "ovn-bridge-mappings";
/// The network of the controller's localnet ports.
pub(super) const NETWORK: &str = contract::ovn::PHYSICAL_NETWORK;
const MARKED: &str = "true";
/// The key of the `Open_vSwitch` table with the [`Trial`] that has not ended.
const TRIAL: &str = "ovnkube-uplink-trial";
/// The key there with the name of a NIC whose lease was moved to its bridge.
const LEASE: &str = "ovnkube-uplink-lease";
/// The key in a bridge's `other_config` with its MAC address.
const HWADDR: &str = "hwaddr";

ovsdb::table! {
    struct Root in "Open_vSwitch" {
        external_ids: BTreeMap<String, String>,
    }

    struct Bridge in "Bridge" {
        name: String,
        ports: Vec<Uuid>,
        datapath_type: String,
        external_ids: BTreeMap<String, String>,
        other_config: BTreeMap<String, String>,
    }

    struct Port in "Port" {
        name: String,
        interfaces: Vec<Uuid>,
    }

    struct Interface in "Interface" {
        kind: String = "type",
        ofport: Option<i64>,
        error: Option<String>,
        mtu_request: Option<i64>,
    }
}

/// All bridges but br-int, and the mappings.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Seen {
    root: Option<(Uuid, BTreeMap<String, String>)>,
    pub(super) bridges: BTreeMap<String, SeenBridge>,
    /// The type of datapath that ovn-controller's bridge has.
    pub(super) has_integration: bool,
}

/// What the next server has to know of the uplink, if this one dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// A [`Trial`] that has not ended.
    Trial,
    /// The name of a NIC whose lease was moved to its bridge.
    Lease,
}

impl Note {
    fn key(self) -> &'static str {
        match self {
            Self::Trial => TRIAL,
            Self::Lease => LEASE,
        }
    }
}

/// A bridge.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenBridge {
    uuid: Uuid,
    pub(super) in_user_space: bool,
    external_ids: BTreeMap<String, String>,
    /// The MAC address that the bridge is told to have.
    hwaddr: Option<String>,
    ports: BTreeMap<String, SeenPort>,
}

/// A port with its interface; of a bond, the first one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenPort {
    pub(super) kind: String,
    /// Its number, once ovs-vswitchd has it.
    pub(super) number: Option<u32>,
    pub(super) error: Option<String>,
    /// Its first interface.
    interface: Uuid,
    /// How many interfaces it has.
    pub(super) members: usize,
    /// The MTU that it is told to have.
    mtu_request: Option<i64>,
}

/// The monitor request for [`Seen`].
pub(super) fn monitor() -> Monitor {
    Monitor::new()
        .table::<Root>(Where::all())
        .table::<Bridge>(Where::all())
        .table::<Port>(Where::all())
        .table::<Interface>(Where::all())
}

impl Seen {
    /// Reads the rows from the copy of the database.
    pub(super) fn look(updates: &Updates) -> Self {
        let root = updates.rows::<Root>().next().map(|(uuid, root)| {
            // Only what is compared: other keys change with ovn-controller's start.
            let ids = root
                .external_ids
                .iter()
                .filter(|(key, _)| [MAPPINGS, TRIAL, LEASE].contains(&key.as_str()));
            (uuid, ids.map(|(key, value)| (key.clone(), value.clone())).collect())
        });
        let mut seen = Self { root, ..Self::default() };
        for (uuid, bridge) in updates.rows::<Bridge>() {
            // The ports of pods change all the time, and do not matter here.
            if bridge.name == INTEGRATION {
                seen.has_integration = true;
                continue;
            }
            let port = |uuid: &Uuid| {
                let port = updates.row::<Port>(*uuid)?;
                let uuid = *port.interfaces.first()?;
                let interface = updates.row::<Interface>(uuid)?;
                // -1: ovs-vswitchd could not open the device (ovs-vswitchd.conf.db(5)).
                let number = interface
                    .ofport
                    .and_then(|number| u32::try_from(number).ok())
                    .filter(|it| *it > 0);
                let Interface { kind, error, mtu_request, .. } = interface.clone();
                let members = port.interfaces.len();
                let port_seen =
                    SeenPort { kind, number, error, interface: uuid, members, mtu_request };
                Some((port.name.clone(), port_seen))
            };
            let ports = bridge.ports.iter().filter_map(port).collect();
            let Bridge { name, datapath_type, external_ids, other_config, .. } = bridge.clone();
            let in_user_space = datapath_type == "netdev";
            let hwaddr = other_config.get(HWADDR).cloned();
            seen.bridges
                .insert(name, SeenBridge { uuid, in_user_space, external_ids, hwaddr, ports });
        }
        seen
    }

    /// The bridge to which `interface` belongs: itself, or the one that has it as a port, or the
    /// gateway's that was made for it before it got another name.
    pub(super) fn bridge_of(&self, interface: &str) -> Option<&str> {
        let own = self.bridges.get_key_value(interface);
        let found = own.or_else(|| {
            self.bridges.iter().find(|(_, bridge)| bridge.ports.contains_key(interface))
        });
        let made = || {
            self.bridges
                .get_key_value(&format!("br{interface}"))
                .filter(|(_, bridge)| bridge.is_marked())
        };
        found.or_else(made).map(|(name, _)| name.as_str())
    }

    /// The trial of an uplink that has not ended.
    pub(super) fn trial(&self) -> Option<Trial> {
        self.note(Note::Trial)?.parse().ok()
    }

    /// The NIC whose lease was moved to its bridge.
    pub(super) fn leased(&self) -> Option<&str> {
        self.note(Note::Lease)
    }

    pub(super) fn note(&self, note: Note) -> Option<&str> {
        self.root.as_ref()?.1.get(note.key()).map(String::as_str)
    }

    /// The transaction that writes a note down, or takes it away. `None` if nothing differs.
    pub(super) fn noting(&self, note: Note, text: Option<&str>) -> Option<Transaction> {
        if self.note(note) == text {
            return None;
        }
        let mut tx = Transaction::new();
        let mut mutations = vec![Mutation::delete_keys("external_ids", [note.key()])];
        mutations.extend(
            text.map(|text| Mutation::insert("external_ids", Datum::map([(note.key(), text)]))),
        );
        tx.mutate("Open_vSwitch", self.root.as_ref()?.0, mutations);
        tx.comment("ovnkube: the uplink of the node's gateway");
        Some(tx)
    }

    /// Whether a bridge has a port of this name.
    pub(super) fn has_port(&self, name: &str) -> bool {
        self.bridges.values().any(|bridge| bridge.ports.contains_key(name))
    }

    /// The transaction with which the bridge takes over what of its NIC has changed.
    pub(super) fn following(&self, bridge: &str, changes: &[Change]) -> Option<Transaction> {
        let seen = self.bridges.get(bridge)?;
        let mut tx = Transaction::new();
        for change in changes {
            match change {
                Change::Mac(mac) => {
                    let old = Mutation::delete_keys("other_config", [HWADDR]);
                    let new = Mutation::insert(
                        "other_config",
                        Datum::map([(HWADDR, mac.to_string().as_str())]),
                    );
                    tx.mutate("Bridge", seen.uuid, vec![old, new]);
                }
                Change::Mtu(mtu) => {
                    let own = seen.ports.get(bridge)?.interface;
                    tx.update("Interface", own, Row::new().with("mtu_request", i64::from(*mtu)));
                }
            }
        }
        tx.comment("ovnkube: the NIC of the node's gateway has changed");
        Some(tx)
    }

    /// The transaction that tells ovn-controller of the bridge, and what it does, for the log.
    /// `None` if nothing differs.
    pub(super) fn change(&self, bridge: &str) -> Option<(Transaction, Vec<String>)> {
        let ((root, ids), seen) = (self.root.as_ref()?, self.bridges.get(bridge)?);
        let (mut tx, mut done) = (Transaction::new(), Vec::new());
        let before = ids.get(MAPPINGS).map(String::as_str);
        let mappings = with_mapping(before.unwrap_or_default(), bridge);
        if before != Some(mappings.as_str()) {
            set_mappings(&mut tx, *root, before, &mappings);
            done.push(format!("set external_ids:{MAPPINGS}={mappings}"));
        }
        if seen.external_ids.get(GATEWAY_BRIDGE).is_none_or(|mark| mark != MARKED) {
            set_id(&mut tx, "Bridge", seen.uuid, GATEWAY_BRIDGE, MARKED);
            done.push(format!("marked bridge {bridge} by external_ids:{GATEWAY_BRIDGE}"));
        }
        (!done.is_empty()).then(|| {
            tx.comment("ovnkube: the node's gateway");
            (tx, done)
        })
    }

    /// The bridges of gateways of this program.
    pub(super) fn marked(&self) -> Vec<String> {
        let marked = self
            .bridges
            .iter()
            .filter(|(_, bridge)| bridge.external_ids.contains_key(GATEWAY_BRIDGE));
        marked.map(|(name, _)| name.clone()).collect()
    }

    /// The transaction that takes a bridge's entry and patch ports away. `None` if there are none.
    pub(super) fn closing(&self, bridge: &str, ports: &[&PatchPort]) -> Option<Transaction> {
        let (root, ids) = self.root.as_ref()?;
        let mut tx = Transaction::new();
        let before = ids.get(MAPPINGS).map_or("", String::as_str);
        let after = without_mapping(before, bridge);
        if after == before && ports.is_empty() {
            return None;
        }
        if after != before {
            set_mappings(&mut tx, *root, Some(before), &after);
        }
        for port in ports {
            tx.mutate("Bridge", Where::all(), vec![Mutation::delete("ports", port.uuid)]);
        }
        tx.comment("ovnkube: node cleaned up");
        Some(tx)
    }

    /// The transaction that takes a bridge's mark away.
    pub(super) fn unmarking(&self, bridge: &str) -> Option<Transaction> {
        let mut tx = Transaction::new();
        tx.mutate(
            "Bridge",
            self.bridges.get(bridge)?.uuid,
            vec![Mutation::delete_keys("external_ids", [GATEWAY_BRIDGE])],
        );
        tx.comment("ovnkube: node cleaned up");
        Some(tx)
    }
}

/// One end of a pair of patch ports between br-int and a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PatchPort {
    uuid: Uuid,
    name: String,
}

impl PatchPort {
    /// Whether ovn-controller has made it for a localnet port of this bridge (`BRIDGE_NODE`).
    pub(super) fn is_of(&self, bridge: &str) -> bool {
        let to_integration =
            self.name.strip_prefix("patch-").and_then(|rest| rest.strip_suffix("-to-br-int"));
        let port = to_integration.or_else(|| self.name.strip_prefix("patch-br-int-to-"));
        port.and_then(|port| port.strip_prefix(bridge)).is_some_and(|rest| rest.starts_with('_'))
    }
}

/// All ports with names of patch ports.
pub(super) fn patch_ports(updates: &Updates) -> Vec<PatchPort> {
    let ports = updates.rows::<Port>().filter(|(_, port)| port.name.starts_with("patch-"));
    ports.map(|(uuid, port)| PatchPort { uuid, name: port.name.clone() }).collect()
}

impl SeenPort {
    /// Whether it stands for a link that the kernel has without Open vSwitch.
    pub(super) fn is_link(&self) -> bool {
        matches!(&*self.kind, "" | "system")
    }
}

impl SeenBridge {
    /// The name of the port with the NIC.
    pub(super) fn uplink(&self, name: &str) -> Option<&str> {
        let ports = self.ports.iter().map(|(port, seen)| (port.as_str(), seen.kind.as_str()));
        uplink::uplink_of(name, &self.external_ids, ports)
    }

    /// Whether it is that of a gateway of this program.
    pub(super) fn is_marked(&self) -> bool {
        self.external_ids.contains_key(GATEWAY_BRIDGE)
    }

    /// What the bridge is told to have, and may be told otherwise.
    pub(super) fn told(&self, name: &str) -> Told {
        Told {
            // In user space the bridge's link is a tap, which Open vSwitch takes down for a new MAC
            // address: the node's routes would be gone. There the NIC is promiscuous, and the old
            // address serves.
            mac: self
                .hwaddr
                .as_ref()
                .filter(|_| !self.in_user_space)
                .and_then(|mac| mac.parse().ok()),
            mtu: self.ports.get(name).and_then(|own| own.mtu_request),
        }
    }

    pub(super) fn port(&self, name: &str) -> Option<&SeenPort> {
        self.ports.get(name)
    }

    /// The numbers of all ports except `named`.
    pub(super) fn others(&self, named: &[&str]) -> BTreeSet<u32> {
        let others = self.ports.iter().filter(|(name, _)| !named.contains(&name.as_str()));
        others.filter_map(|(_, port)| port.number).collect()
    }
}

/// Sets the mappings, unless another program has written them since they were read; removes an
/// empty text.
fn set_mappings(tx: &mut Transaction, root: Uuid, before: Option<&str>, after: &str) {
    // Only this key: other keys may change meanwhile. A deletion of a pair that is not there any
    // more is no error, and the insertion then adds nothing (RFC 7047, section 5.1): the next
    // comparison sees that.
    let mut mutations = Vec::new();
    if let Some(before) = before {
        mutations.push(Mutation::delete("external_ids", Datum::map([(MAPPINGS, before)])));
    }
    if !after.is_empty() {
        mutations.push(Mutation::insert("external_ids", Datum::map([(MAPPINGS, after)])));
    }
    tx.mutate("Open_vSwitch", root, mutations);
}

fn set_id(tx: &mut Transaction, table: &str, row: Uuid, key: &str, value: &str) {
    // Deleted first: an insertion leaves a key that is there as it is (RFC 7047, section 5.1).
    let old = Mutation::delete_keys("external_ids", [key]);
    tx.mutate(table, row, vec![old, Mutation::insert("external_ids", Datum::map([(key, value)]))]);
}

fn pairs(mappings: &str) -> impl Iterator<Item = &str> {
    mappings.split(',').map(str::trim).filter(|pair| !pair.is_empty())
}

/// The mappings with the bridge for [`NETWORK`], in the place of another one. Pairs of other
/// networks stay.
fn with_mapping(mappings: &str, bridge: &str) -> String {
    let own = format!("{NETWORK}:{bridge}");
    let is_of_network = |pair: &&str| pair.split(':').next() == Some(NETWORK);
    let others = pairs(mappings).filter(|pair| !is_of_network(pair));
    others.chain([own.as_str()]).collect::<Vec<_>>().join(",")
}

/// The mappings without that of the bridge.
fn without_mapping(mappings: &str, bridge: &str) -> String {
    let own = format!("{NETWORK}:{bridge}");
    pairs(mappings).filter(|pair| *pair != own).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_ports_of_another_bridge_are_not_taken_for_this_ones() {
        let is_of =
            |name: &str| PatchPort { uuid: Uuid::default(), name: name.to_owned() }.is_of("breth0");
        assert!(is_of("patch-breth0_n1-to-br-int") && is_of("patch-br-int-to-breth0_n1"));
        assert!(
            !is_of("patch-breth01_n1-to-br-int")
                && !is_of("patch-x")
                && !is_of("patch-br-int-to-br2_n1")
        );
    }

    #[test]
    fn mappings_of_other_networks_stay() {
        assert_eq!(with_mapping("", "breth0"), "physnet:breth0");
        assert_eq!(
            with_mapping("storage:br2, physnet:br1", "breth0"),
            "storage:br2,physnet:breth0"
        );
        assert_eq!(with_mapping("physnet:breth0", "breth0"), "physnet:breth0");
        assert_eq!(without_mapping("storage:br2,physnet:breth0", "breth0"), "storage:br2");
        assert_eq!(without_mapping("physnet:br1", "breth0"), "physnet:br1");
    }
}
