//! What differs between the chassis that should be there and the rows, and the transactions that
//! write it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use contract::ovn::{self, IS_REMOTE};
use ovsdb::{Atom, Condition, Connection, Datum, Mutation, Row, TransactError, Transaction, Uuid};

use super::{
    RemoteChassisWriter,
    rows::{ChassisRow, EncapRow, PortBindingRow},
};
use crate::{
    remove_node::{CHASSIS, CHASSIS_PRIVATE},
    tunnels::{RemoteChassis, Tunnels},
};

const ENCAP: &str = "Encap";
const PORT_BINDING: &str = "Port_Binding";
/// The only encapsulation with keys that are large enough for switches between zones.
const GENEVE: &str = "geneve";
/// Of `options` in `Encap`: checksums, as ovn-controller has them for its own.
const CHECKSUM: &str = "csum";
/// Of the same: the UDP port, where it is not OVN's own.
const PORT: &str = "dst_port";

/// What has to be written of a chassis that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChassisEdit<'a> {
    Remove {
        row: Uuid,
        name: Arc<str>,
    },
    /// It is of this zone, and counts as another's.
    IsLocal {
        row: Uuid,
        name: Arc<str>,
    },
    /// The node's port is bound to no chassis.
    Unbound {
        port: Uuid,
        chassis: Uuid,
        name: &'a Arc<str>,
    },
    Put {
        row: Option<Uuid>,
        name: &'a Arc<str>,
        tunnels: &'a Tunnels,
    },
}

impl ChassisEdit<'_> {
    pub(super) fn name(&self) -> &Arc<str> {
        match self {
            Self::Remove { name, .. } | Self::IsLocal { name, .. } => name,
            Self::Unbound { name, .. } | Self::Put { name, .. } => name,
        }
    }

    /// How many rows it writes, more or less.
    fn rows(&self) -> usize {
        match self {
            Self::Remove { .. } | Self::IsLocal { .. } | Self::Unbound { .. } => 1,
            Self::Put { tunnels, .. } => 1 + tunnels.addresses.len(),
        }
    }
}

/// Rows in a transaction, more or less: ovsdb-server and what listens to it do nothing else
/// meanwhile.
const MOST_ROWS: usize = 500;

/// The edits in the same order, as many at a time as go into a transaction.
pub(super) fn batches<'e, 'a>(
    edits: &'e [ChassisEdit<'a>],
) -> impl Iterator<Item = &'e [ChassisEdit<'a>]> {
    let mut rest = edits;
    std::iter::from_fn(move || {
        let mut rows = 0;
        let fits = |edit: &&ChassisEdit<'_>| {
            let is_room = rows < MOST_ROWS;
            rows += edit.rows();
            is_room
        };
        let (batch, after) = rest.split_at(rest.iter().take_while(fits).count());
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

impl RemoteChassisWriter {
    /// Sends these edits as one transaction.
    pub(super) async fn send(
        &self,
        connection: &Connection,
        options: &EncapOptions,
        differences: &[ChassisEdit<'_>],
    ) -> Result<(), TransactError> {
        let mut transaction = Transaction::new();
        let has_private = connection.schema().table(CHASSIS_PRIVATE).is_some();
        for difference in differences {
            match difference {
                ChassisEdit::Remove { row, name } => {
                    transaction.delete(CHASSIS, Condition::uuid(*row));
                    if has_private {
                        transaction.delete(CHASSIS_PRIVATE, Condition::equal("name", &**name));
                    }
                }
                ChassisEdit::Unbound { port, chassis, .. } => {
                    let columns = Row::new().with("chassis", *chassis);
                    transaction.update(PORT_BINDING, Condition::uuid(*port), columns);
                }
                ChassisEdit::IsLocal { row, .. } => mark(&mut transaction, *row, "false"),
                ChassisEdit::Put { row, name, tunnels } => {
                    self.put(&mut transaction, *row, name, tunnels, options);
                }
            }
        }
        transaction.comment("ovnkube: chassis of other zones");
        connection.transact(transaction).await.map(drop)
    }

    /// What has to be written, removals first: an address may be another chassis' then.
    pub(super) fn differences<'a>(&self, wanted: &'a RemoteChassis) -> Vec<ChassisEdit<'a>> {
        let options = options(wanted);
        let mut differences = Vec::new();
        let mut found: BTreeMap<&str, (Uuid, &ChassisRow)> = BTreeMap::new();
        for (row, chassis) in self.chassis.rows::<ChassisRow>() {
            let is_remote = chassis.is_remote();
            found.insert(&chassis.name, (row, chassis));
            if !is_remote || wanted.wanted.contains_key(&chassis.name) {
                continue;
            }
            if wanted.local.contains(&chassis.name) {
                differences.push(ChassisEdit::IsLocal { row, name: Arc::clone(&chassis.name) });
            } else if !wanted.kept.contains(&*chassis.hostname) {
                differences.push(ChassisEdit::Remove { row, name: Arc::clone(&chassis.name) });
            }
        }
        let unbound: BTreeMap<&str, Uuid> = self
            .chassis
            .rows::<PortBindingRow>()
            .filter(|(_, port)| port.chassis.is_none())
            .map(|(row, port)| (&*port.logical_port, row))
            .collect();
        for (name, tunnels) in &wanted.wanted {
            match found.get(&**name) {
                Some((row, chassis)) if self.is_right(chassis, tunnels, &options) => {
                    let port = unbound.get(&*ovn::transit_to_router(&tunnels.node));
                    let bind =
                        |port: &Uuid| ChassisEdit::Unbound { port: *port, chassis: *row, name };
                    differences.extend(port.map(bind));
                }
                Some((_, chassis)) if is_of_another(chassis, tunnels) => {}
                there => {
                    let row = there.map(|(row, _)| *row);
                    differences.push(ChassisEdit::Put { row, name, tunnels });
                }
            }
        }
        // Rows that lose an address come before those that are new with it.
        differences.sort_by_key(|edit| matches!(edit, ChassisEdit::Put { row: None, .. }));
        differences
    }

    fn is_right(&self, chassis: &ChassisRow, tunnels: &Tunnels, options: &EncapOptions) -> bool {
        let encaps = self.encaps(chassis, options);
        chassis.is_remote()
            && *chassis.hostname == *tunnels.node
            && encaps.len() == tunnels.addresses.len()
            && chassis.encaps.len() == encaps.len()
            && tunnels
                .addresses
                .iter()
                .all(|ip| encaps.get(ip).is_some_and(|(_, is_right)| *is_right))
    }

    /// The chassis' ends of Geneve tunnels by their address, and whether they are as they should
    /// be.
    fn encaps(
        &self,
        chassis: &ChassisRow,
        options: &EncapOptions,
    ) -> BTreeMap<IpAddr, (Uuid, bool)> {
        let rows = chassis.encaps.iter().filter_map(|row| {
            let encap =
                self.chassis.row::<EncapRow>(*row).filter(|encap| *encap.kind == *GENEVE)?;
            let has_options = encap.options.iter().count() == options.len()
                && options
                    .iter()
                    .all(|(key, value)| encap.options.get(key) == Some(value.as_str()));
            let is_right = has_options && *encap.chassis_name == *chassis.name;
            Some((encap.ip.parse().ok()?, (*row, is_right)))
        });
        rows.collect()
    }

    fn put(
        &self,
        transaction: &mut Transaction,
        row: Option<Uuid>,
        name: &Arc<str>,
        tunnels: &Tunnels,
        options: &EncapOptions,
    ) {
        let there = row.and_then(|row| self.chassis.row::<ChassisRow>(row));
        let before = there.map(|chassis| self.encaps(chassis, options)).unwrap_or_default();
        let mut encaps: Vec<Atom> = Vec::new();
        for ip in &tunnels.addresses {
            let columns = Row::new()
                .with("type", GENEVE)
                .with("ip", ip.to_string())
                .with("chassis_name", &**name)
                .with("options", options.clone());
            encaps.push(match before.get(ip) {
                Some((encap, true)) => Atom::Uuid(*encap),
                Some((encap, false)) => {
                    transaction.update(ENCAP, Condition::uuid(*encap), columns);
                    Atom::Uuid(*encap)
                }
                None => Atom::from(&transaction.insert(ENCAP, columns)),
            });
        }
        let columns =
            Row::new().with("hostname", &*tunnels.node).with("encaps", Datum::Set(encaps));
        match row {
            Some(row) => {
                transaction.update(CHASSIS, Condition::uuid(row), columns);
                mark(transaction, row, "true");
            }
            None => {
                let config = Datum::map([(IS_REMOTE, "true")]);
                transaction
                    .insert(CHASSIS, columns.with("name", &**name).with("other_config", config));
            }
        }
    }
}

/// Whether the row is of another host's ovn-controller, which is of this zone.
pub(super) fn is_of_another(chassis: &ChassisRow, tunnels: &Tunnels) -> bool {
    !chassis.is_remote() && *chassis.hostname != *tunnels.node
}

/// The `options` of each end.
pub(super) type EncapOptions = BTreeMap<&'static str, String>;

pub(super) fn options(wanted: &RemoteChassis) -> EncapOptions {
    let port = wanted.port.map(|port| (PORT, port.to_string()));
    [(CHECKSUM, "true".to_owned())].into_iter().chain(port).collect()
}

/// Sets `is-remote`, and leaves the other keys as they are.
fn mark(transaction: &mut Transaction, row: Uuid, value: &str) {
    // Deleted first: an insertion leaves a key that is there as it is (RFC 7047, section 5.1).
    let mutations = vec![
        Mutation::delete_keys("other_config", [IS_REMOTE]),
        Mutation::insert("other_config", BTreeMap::from([(IS_REMOTE, value)])),
    ];
    transaction.mutate(CHASSIS, Condition::uuid(row), mutations);
}
