//! Bridges and their ports in Open vSwitch's database, and the wait for ovs-vswitchd to apply them.
//!
//! Knows nothing of addresses and routes.

use std::{collections::BTreeMap, time::Duration};

use contract::paths::INTEGRATION_BRIDGE;
use ovsdb::{
    Condition, ConnectError, Connection, Datum, Endpoint, Monitor, MonitorError, Mutation, Mutator,
    Options, Row, SelectedRow, TransactError, Transaction, Uuid, Where,
};
use tokio::time::timeout;

use crate::nic::Nic;

/// How long ovs-vswitchd may take to apply a change. It normally acts at once, but may be busy with
/// thousands of ports. A tenth of this would undo moves on such a node; ten times as much would
/// keep an administrator waiting for minutes if it does not run.
const PATIENCE: Duration = Duration::from_secs(20);
const DATABASE: &str = "Open_vSwitch";

ovsdb::table! {
    struct Root in "Open_vSwitch" {
        cur_cfg: i64,
    }

    struct Interface in "Interface" {
        name: String,
        ofport: Option<i64>,
        error: Option<String>,
    }
}

/// Why Open vSwitch did not do what was requested.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OvsError {
    #[error("Open vSwitch's database cannot be reached; is ovsdb-server running?")]
    Connect(#[from] ConnectError),
    #[error("Open vSwitch's database refused")]
    Transact(#[from] TransactError),
    #[error("Open vSwitch's database cannot be followed")]
    Monitor(#[from] MonitorError),
    #[error("the connection to Open vSwitch's database broke")]
    Closed(#[from] ovsdb::Closed),
    #[error("Open vSwitch's database is empty; has its service been started once?")]
    NoRoot,
    #[error("ovs-vswitchd has not acted within {} s; is it running?", PATIENCE.as_secs())]
    Slow,
    #[error("bridge {bridge:?} of Open vSwitch has no port {name:?}")]
    NoPort { bridge: String, name: String },
    #[error("ovs-vswitchd cannot use interface {name:?}: {problem}")]
    Interface { name: String, problem: String },
}

/// The database.
#[derive(Debug)]
pub(crate) struct Ovs {
    connection: Connection,
}

/// A bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bridge {
    uuid: Uuid,
    pub(crate) name: String,
    external_ids: BTreeMap<String, String>,
    datapath: String,
    pub(crate) ports: Vec<Port>,
}

/// A port with its interface; of a bond, the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    uuid: Uuid,
    pub(crate) name: String,
    pub(crate) kind: String,
    /// For a patch port: the name of its peer.
    peer: Option<String>,
}

/// A row that was added to the database, as its undo needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    Bridge { name: String },
    Port { bridge: String, name: String },
}

/// The uplink of a bridge: the one that `external_ids` name, else its only port that is a link of
/// the kernel, else the one that the bridge is named after. `ports`: their names, and the types of
/// their interfaces.
pub fn uplink_of<'a>(
    bridge: &str,
    external_ids: &'a BTreeMap<String, String>,
    ports: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Option<&'a str> {
    let written = external_ids.get(UPLINK).map(String::as_str);
    let mut links =
        ports.clone().filter(|(_, kind)| matches!(*kind, "" | "system")).map(|(name, _)| name);
    let only = links.next().filter(|_| links.next().is_none());
    let named = || {
        let name = bridge.strip_prefix("br")?;
        ports.map(|(port, _)| port).find(|port| *port == name)
    };
    written.or(only).or_else(named)
}

impl Bridge {
    pub(crate) fn has_port(&self, name: &str) -> bool {
        self.ports.iter().any(|port| port.name == name)
    }

    /// The bridge's uplink, as [`uplink_of`] finds it.
    pub(crate) fn uplink(&self) -> Option<&str> {
        let ports = self.ports.iter().map(|port| (port.name.as_str(), port.kind.as_str()));
        uplink_of(&self.name, &self.external_ids, ports)
    }

    /// Whether [`Ovs::add_bridge`] made it. An administrator's bridge may record its uplink, too
    /// ([`Ovs::mark`]).
    pub(crate) fn is_made_here(&self) -> bool {
        let uplink = self.external_ids.get(UPLINK);
        uplink.is_some_and(|uplink| self.name.strip_prefix("br") == Some(uplink))
    }

    pub(crate) fn is_userspace(&self) -> bool {
        self.datapath == "netdev"
    }
}

/// Keys of `external_ids` that name bridge and uplink, as upstream spells them.
const ID: &str = "bridge-id";
const UPLINK: &str = "bridge-uplink";
/// The settings of an uplink's port and interface. All other columns are ovs-vswitchd's.
const OF_PORT: &[&str] = &["tag", "trunks", "vlan_mode", "other_config", "external_ids"];
const OF_INTERFACE: &[&str] = &["type", "options", "mtu_request", "other_config", "external_ids"];

impl Ovs {
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Self, OvsError> {
        Ok(Self { connection: Connection::open(endpoint, DATABASE, Options::small()).await? })
    }

    /// All bridges.
    pub(crate) async fn bridges(&self) -> Result<Vec<Bridge>, OvsError> {
        // One transaction, so that all rows are of the same state of the database.
        let mut tx = Transaction::new();
        let roots = tx.select("Open_vSwitch", Where::all(), &["next_cfg"]);
        let bridges = tx.select(
            "Bridge",
            Where::all(),
            &["_uuid", "name", "ports", "external_ids", "datapath_type"],
        );
        let ports = tx.select("Port", Where::all(), &["_uuid", "name", "interfaces"]);
        let interfaces = tx.select("Interface", Where::all(), &["_uuid", "type", "options"]);
        let outcome = self.connection.transact(tx).await?;
        // The start script of Open vSwitch (`ovs-vsctl init`) creates this row.
        if outcome.rows(roots).is_empty() {
            return Err(OvsError::NoRoot);
        }
        let interfaces: BTreeMap<Uuid, _> =
            outcome.rows(interfaces).iter().map(|row| (row.uuid(), row)).collect();
        let ports: BTreeMap<Uuid, Port> = outcome
            .rows(ports)
            .iter()
            .map(|row| {
                let interface =
                    row.uuids("interfaces").first().and_then(|uuid| interfaces.get(uuid)).copied();
                let port = Port {
                    uuid: row.uuid(),
                    name: row.string("name").unwrap_or_default().to_owned(),
                    kind: interface
                        .and_then(|row| row.string("type"))
                        .unwrap_or_default()
                        .to_owned(),
                    peer: interface.and_then(|row| row.map("options").remove("peer")),
                };
                (row.uuid(), port)
            })
            .collect();
        let bridge = |row: &SelectedRow| Bridge {
            uuid: row.uuid(),
            name: row.string("name").unwrap_or_default().to_owned(),
            external_ids: row.map("external_ids"),
            datapath: row.string("datapath_type").unwrap_or_default().to_owned(),
            ports: row.uuids("ports").iter().filter_map(|uuid| ports.get(uuid).cloned()).collect(),
        };
        Ok(outcome.rows(bridges).iter().map(bridge).collect())
    }

    /// Adds a bridge with the NIC as its uplink, on the same datapath type as the integration
    /// bridge: patch ports do not cross datapaths.
    pub(crate) async fn add_bridge(
        &self,
        name: &str,
        nic: &Nic,
        all: &[Bridge],
    ) -> Result<Made, OvsError> {
        let datapath = all
            .iter()
            .find(|bridge| bridge.name == INTEGRATION_BRIDGE)
            .map(|bridge| bridge.datapath.clone());
        let mut tx = Transaction::new();
        let own = Row::new()
            .with("name", name)
            .with("type", "internal")
            .with("mtu_request", i64::from(nic.mtu));
        let own = tx.insert("Interface", own);
        let own = tx.insert("Port", Row::new().with("name", name).with("interfaces", &own));
        let uplink = insert_uplink(&mut tx, nic);
        // `standalone`: the bridge forwards like a switch without any controller. `hwaddr`: the
        // bridge keeps the NIC's MAC address, under which the network knows the node.
        let row = Row::new()
            .with("name", name)
            .with("ports", vec![own, uplink])
            .with("fail_mode", "standalone")
            .with("datapath_type", datapath.unwrap_or_default())
            .with("external_ids", Datum::map([(ID, name), (UPLINK, nic.name.as_str())]))
            .with("other_config", Datum::map([("hwaddr", nic.mac.as_str())]));
        let bridge = tx.insert("Bridge", row);
        tx.mutate("Open_vSwitch", Where::all(), vec![Mutation::insert("bridges", &bridge)]);
        tx.comment(&format!("ovnkube nics-to-bridge {}", nic.name));
        self.connection.transact(tx).await?;
        Ok(Made::Bridge { name: name.to_owned() })
    }

    /// Adds the NIC as a port to an existing bridge.
    pub(crate) async fn add_uplink(&self, bridge: &Bridge, nic: &Nic) -> Result<Made, OvsError> {
        let mut tx = Transaction::new();
        let uplink = insert_uplink(&mut tx, nic);
        tx.mutate("Bridge", bridge.uuid, vec![Mutation::insert("ports", &uplink)]);
        tx.comment(&format!("ovnkube nics-to-bridge {}", nic.name));
        self.connection.transact(tx).await?;
        Ok(Made::Port { bridge: bridge.name.clone(), name: nic.name.clone() })
    }

    /// Records in `external_ids` what the bridge is for, where that is missing.
    pub(crate) async fn mark(&self, bridge: &Bridge, nic: &Nic) -> Result<(), OvsError> {
        let missing: Vec<_> = [(ID, bridge.name.as_str()), (UPLINK, nic.name.as_str())]
            .into_iter()
            .filter(|(key, _)| !bridge.external_ids.contains_key(*key))
            .collect();
        if !missing.is_empty() {
            let mut tx = Transaction::new();
            tx.mutate(
                "Bridge",
                bridge.uuid,
                vec![Mutation::insert("external_ids", Datum::map(missing))],
            );
            self.connection.transact(tx).await?;
        }
        Ok(())
    }

    /// Puts another port in the place of a bridge's uplink, with the same settings and perhaps the
    /// same name. A port cannot be renamed (`ovs-vswitchd.conf.db(5)`), and in user space one whose
    /// device is another one is dead.
    pub(crate) async fn replace_uplink(
        &self,
        bridge: &str,
        before: &str,
        now: &str,
    ) -> Result<(), OvsError> {
        let named = |name: &str| vec![Condition::equal("name", name)];
        let mut tx = Transaction::new();
        let bridges = tx.select("Bridge", named(bridge), &["_uuid", "external_ids"]);
        let ports = tx.select("Port", named(before), OF_PORT);
        let interfaces = tx.select("Interface", named(before), OF_INTERFACE);
        let outcome = self.connection.transact(tx).await?;
        let (Some(row), Some(old), Some(old_interface)) = (
            outcome.rows(bridges).first(),
            outcome.rows(ports).first(),
            outcome.rows(interfaces).first(),
        ) else {
            return Err(OvsError::NoPort { bridge: bridge.to_owned(), name: before.to_owned() });
        };
        let copy = |from: &SelectedRow, columns: &'static [&'static str]| {
            let settings =
                columns.iter().filter_map(|column| Some((*column, from.datum(column)?.clone())));
            settings
                .fold(Row::new().with("name", now), |row, (column, value)| row.with(column, value))
        };
        let mut tx = Transaction::new();
        // First: a run that is killed before the end leaves a bridge that names what it lacks.
        let named = [
            Mutation::delete_keys("external_ids", [UPLINK]),
            Mutation::insert("external_ids", Datum::map([(UPLINK, now)])),
        ];
        tx.mutate("Bridge", row.uuid(), named.into());
        tx.mutate("Bridge", row.uuid(), vec![Mutation::delete("ports", old.uuid())]);
        // ovs-vswitchd has to see a bridge without the port: it keeps the device of one whose row
        // is another one.
        if before == now {
            tx.comment(&format!("ovnkube: {now} of {bridge} is another device"));
            self.connection.transact(tx).await?;
            self.settle(&[]).await?;
            tx = Transaction::new();
        }
        let interface = tx.insert("Interface", copy(old_interface, OF_INTERFACE));
        let port = tx.insert("Port", copy(old, OF_PORT).with("interfaces", &interface));
        tx.mutate("Bridge", row.uuid(), vec![Mutation::insert("ports", &port)]);
        tx.comment(&format!("ovnkube: {now} is the uplink of {bridge}"));
        self.connection.transact(tx).await?;
        Ok(())
    }

    /// Adds the NIC that the bridge names as its uplink, and lacks.
    pub(crate) async fn restore_uplink(&self, bridge: &str, nic: &Nic) -> Result<(), OvsError> {
        match self.bridges().await?.iter().find(|row| row.name == bridge) {
            Some(row) if !row.has_port(&nic.name) => self.add_uplink(row, nic).await.map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Removes a row that was added. Does not wait for ovs-vswitchd.
    pub(crate) async fn unmake(&self, made: &Made) -> Result<(), OvsError> {
        let all = self.bridges().await?;
        let mut tx = Transaction::new();
        match made {
            Made::Bridge { name } => match all.iter().find(|bridge| bridge.name == *name) {
                Some(bridge) => remove(&mut tx, bridge, &all),
                None => return Ok(()),
            },
            Made::Port { bridge, name } => {
                let bridge = all.iter().find(|row| row.name == *bridge);
                let Some((bridge, port)) = bridge
                    .and_then(|row| Some((row, row.ports.iter().find(|port| port.name == *name)?)))
                else {
                    return Ok(());
                };
                tx.mutate("Bridge", bridge.uuid, vec![Mutation::delete("ports", port.uuid)]);
            }
        }
        self.connection.transact(tx).await?;
        Ok(())
    }

    /// Waits until ovs-vswitchd has applied the current content of the database, and can use these
    /// interfaces.
    pub(crate) async fn settle(&self, interfaces: &[&str]) -> Result<(), OvsError> {
        timeout(PATIENCE, self.settled(interfaces)).await.unwrap_or(Err(OvsError::Slow))
    }

    async fn settled(&self, interfaces: &[&str]) -> Result<(), OvsError> {
        let mut tx = Transaction::new();
        // As ovs-vsctl waits: ovs-vswitchd copies `next_cfg` to `cur_cfg` once it has applied
        // everything up to that transaction (ovs-vswitchd.conf.db(5)).
        tx.mutate(
            "Open_vSwitch",
            Where::all(),
            vec![Mutation::new("next_cfg", Mutator::Add, 1_i64)],
        );
        let next = tx.select("Open_vSwitch", Where::all(), &["next_cfg"]);
        let outcome = self.connection.transact(tx).await?;
        let next = outcome
            .rows(next)
            .first()
            .and_then(|row| row.integer("next_cfg"))
            .ok_or(OvsError::NoRoot)?;

        let named: Vec<Condition> =
            interfaces.iter().map(|name| Condition::equal("name", *name)).collect();
        let mut monitor = Monitor::new().table::<Root>(Where::all());
        if !named.is_empty() {
            monitor = monitor.table::<Interface>(named);
        }
        let mut monitored = self.connection.monitor(monitor).await?;
        loop {
            let done = monitored.rows::<Root>().any(|(_, root)| root.cur_cfg >= next);
            let usable = |name: &&&str| {
                monitored
                    .rows::<Interface>()
                    .any(|(_, row)| row.name == **name && row.ofport.is_some_and(|port| port > 0))
            };
            if done {
                let broken = monitored
                    .rows::<Interface>()
                    .find_map(|(_, row)| Some((row.name.clone(), row.error.clone()?)));
                if let Some((name, problem)) = broken {
                    return Err(OvsError::Interface { name, problem });
                }
                // An `ofport` of -1 means that ovs-vswitchd could not open the device
                // (ovs-vswitchd.conf.db(5)).
                if interfaces.iter().filter(usable).count() == interfaces.len() {
                    return Ok(());
                }
            }
            monitored.changed().await?;
        }
    }
}

/// Adds the uplink's rows. The port is marked `transient`, as upstream does: with
/// `--delete-transient-ports`, Open vSwitch's start script removes it, and the host's own network
/// configuration gets the NIC back.
fn insert_uplink(tx: &mut Transaction, nic: &Nic) -> ovsdb::NamedUuid {
    let interface = tx.insert("Interface", Row::new().with("name", nic.name.as_str()));
    let port = Row::new().with("name", nic.name.as_str()).with("interfaces", &interface);
    tx.insert("Port", port.with("other_config", Datum::map([("transient", "true")])))
}

/// Removes a bridge, and the peers of its patch ports, which would lead nowhere.
fn remove(tx: &mut Transaction, bridge: &Bridge, all: &[Bridge]) {
    tx.mutate("Open_vSwitch", Where::all(), vec![Mutation::delete("bridges", bridge.uuid)]);
    for peer in bridge.ports.iter().filter_map(|port| port.peer.as_ref()) {
        for other in all.iter().filter(|other| other.uuid != bridge.uuid) {
            for port in other.ports.iter().filter(|port| port.name == *peer) {
                tx.mutate("Bridge", other.uuid, vec![Mutation::delete("ports", port.uuid)]);
            }
        }
    }
}
