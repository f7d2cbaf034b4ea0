//! The session with Open vSwitch's database: monitor, plug, unplug.
//!
//! [`rows`] builds the transactions.

use std::{collections::HashSet, net::IpAddr, time::Duration};

use contract::{
    external_ids,
    names::{IfName, IfaceId, SandboxId},
    paths::INTEGRATION_BRIDGE,
};
use futures_util::future::{Either, ready};
use ipnet::IpNet;
use ovsdb::{
    Condition, ConnectError, Connection, Endpoints, ErrorKind, Monitor, Monitored, Mutation,
    Options, Outcome, Schema, TransactError, Transaction, Uuid, Where,
};
use tokio::time::timeout;

use crate::{
    plan::{Attachment, Identity},
    rows::{self, InterfaceRow, Plug, PortRow, has_id, has_iface_id},
};

mod inspection;

pub use inspection::Inspection;

ovsdb::table! {
    /// The columns of an Interface row that a waiting ADD reads.
    pub struct Interface in "Interface" {
        pub name: String,
        /// Assigned by ovs-vswitchd; -1 if it could not open the device.
        pub ofport: Option<i64>,
        /// Why ovs-vswitchd could not open the device.
        pub error: Option<String>,
        pub external_ids: std::collections::BTreeMap<String, String>,
    }

    /// The columns of the bridge that an ADD needs before it begins.
    struct BridgeRow in "Bridge" {
        name: String,
        datapath_type: String,
    }

    /// The configuration that ovs-vswitchd has reached.
    struct OpenVSwitch in "Open_vSwitch" {
        cur_cfg: i64,
    }
}

/// The part of the schema that these tables use. Every Open vSwitch has these columns, and reading
/// the whole schema would be half of what a plugin asks of the database.
fn schema() -> Schema {
    const SCHEMA: &str = r#"{"name": "Open_vSwitch", "version": "8.0.0", "tables": {
        "Open_vSwitch": {"columns": {
            "cur_cfg": {"type": "integer"},
            "ovs_version": {"type": {"key": "string", "min": 0}}}},
        "Bridge": {"columns": {"name": {"type": "string"}, "datapath_type": {"type": "string"}}},
        "Interface": {"columns": {
            "name": {"type": "string"},
            "ofport": {"type": {"key": "integer", "min": 0}},
            "error": {"type": {"key": "string", "min": 0}},
            "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}}}}"#;
    serde_json::from_str(SCHEMA).expect("a constant that a test reads")
}

/// How often a plug is tried if other programs write at the same moment. Each attempt reads what is
/// in the way; a port that is lost this often is one that another program keeps writing.
const MAX_RACES: usize = 8;

/// The datapath of `br-int`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datapath {
    /// The kernel forwards the packets.
    Kernel,
    /// `datapath_type=netdev`: ovs-vswitchd forwards the packets itself.
    Userspace,
}

impl Datapath {
    /// From the column `datapath_type` of the bridge.
    pub fn of(datapath_type: &str) -> Self {
        if datapath_type == "netdev" { Self::Userspace } else { Self::Kernel }
    }
}

/// A session with the database of the node's Open vSwitch. Clones share it.
#[derive(Debug, Clone)]
pub struct Bridge {
    connection: Connection,
    /// How long the database may take for an answer.
    patience: Duration,
}

/// A pre-armed monitor: it sees the Interface row of a port from its first moment on.
#[derive(Debug)]
pub struct ArmedMonitor {
    pub datapath: Datapath,
    /// The name of the monitored port, if it is known.
    host: Option<IfName>,
    watch: Monitored,
}

/// A port in the database, with a monitor of its Interface row.
#[derive(Debug)]
pub struct Plugged {
    pub interface: Uuid,
    pub name: IfName,
    pub watch: Monitored,
}

/// Why the work in Open vSwitch's database failed.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("connect to the database of Open vSwitch")]
    Connect(#[from] ConnectError),
    #[error("no endpoint to connect to")]
    NoEndpoint,
    #[error("no answer from the database of Open vSwitch for {} s", .0.as_secs_f32())]
    Slow(Duration),
    #[error("no bridge {INTEGRATION_BRIDGE}")]
    NoBridge,
    #[error("port {name} belongs to sandbox {owner}")]
    NameTaken { name: IfName, owner: String },
    #[error(
        "network {network} is attached to this pod already, as {if_name}: \
         a network twice in one pod is not supported"
    )]
    AttachedTwice { network: String, if_name: String },
    #[error("the annotation's address {address} is that of port {port}, sandbox {sandbox}")]
    AddressTaken { address: IpNet, port: String, sandbox: String },
    #[error("other programs kept changing the ports of {0}")]
    Raced(IfaceId),
    #[error("transaction")]
    Transact(#[from] TransactError),
    #[error("watch the interface")]
    Monitor(#[from] ovsdb::MonitorError),
    #[error("lost the database of Open vSwitch")]
    Lost(#[from] ovsdb::Closed),
}

impl BridgeError {
    /// Whether the database has refused, so that a retry gets the same answer.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Transact(error) if error.server_error().is_some())
    }
}

impl Bridge {
    /// Connects to the first endpoint that answers. `patience` limits the connection, and then each
    /// answer.
    ///
    /// # Errors
    /// [`BridgeError::Slow`] after `patience`; otherwise the error of the last endpoint.
    pub async fn connect(endpoints: &Endpoints, patience: Duration) -> Result<Self, BridgeError> {
        let connect = async {
            let mut last = BridgeError::NoEndpoint;
            for endpoint in endpoints.iter() {
                // Does not request the schema: see `schema`.
                match Connection::open_known(endpoint, schema(), Options::small()).await {
                    Ok(connection) => return Ok(Self { connection, patience }),
                    Err(error) => last = error.into(),
                }
            }
            Err(last)
        };
        timeout(patience, connect).await.unwrap_or(Err(BridgeError::Slow(patience)))
    }

    /// A session over a connection that others use, too. `patience` limits each answer.
    pub fn over(connection: Connection, patience: Duration) -> Self {
        Self { connection, patience }
    }

    /// The same session with another limit for each answer.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Whether the session is still connected.
    pub fn is_alive(&self) -> bool {
        !self.connection.is_closed()
    }

    /// Reads the bridge, and starts to monitor the port that is going to be plugged, if its name is
    /// known.
    ///
    /// # Errors
    /// [`BridgeError::NoBridge`] if there is no integration bridge; [`BridgeError::Monitor`] if the
    /// monitor is refused or the session is lost.
    pub async fn watch_interface(&self, host: Option<IfName>) -> Result<ArmedMonitor, BridgeError> {
        let mut monitor =
            Monitor::new().table::<BridgeRow>(Condition::equal("name", INTEGRATION_BRIDGE));
        if let Some(host) = &host {
            // Changes only: for a monitor that wants the rows there are, ovsdb-server copies the
            // whole table, whatever the condition.
            monitor = monitor.table_changes::<Interface>(Condition::equal("name", host.as_str()));
        }
        let watch = self.connection.monitor(monitor).await?;
        let (_, bridge) = watch.rows::<BridgeRow>().next().ok_or(BridgeError::NoBridge)?;
        Ok(ArmedMonitor { datapath: Datapath::of(&bridge.datapath_type), host, watch })
    }

    /// Plugs the host's end of an attachment, in place of older ports of the same logical port.
    ///
    /// The caller owns the link `host`, so a row of that name is left over from a link that is
    /// gone. It may only belong to the same sandbox or the same logical port. As a rule there is
    /// none, so nothing is looked up before the guards of the transaction fail.
    ///
    /// An address that another pod of the node uses is refused after the port was written, because
    /// the look-up costs nothing in the same transaction. The caller rolls back.
    ///
    /// # Errors
    /// [`BridgeError::NameTaken`], [`BridgeError::AttachedTwice`] or [`BridgeError::AddressTaken`]
    /// if another port is in the way; [`BridgeError::Raced`] if further ones keep appearing;
    /// otherwise the database is out of reach, too slow or refuses.
    pub async fn plug(
        &self,
        attachment: &Attachment,
        host: &IfName,
        armed: Option<ArmedMonitor>,
    ) -> Result<Plugged, BridgeError> {
        let mut watch =
            armed.filter(|armed| armed.host.as_ref() == Some(host)).map(|armed| armed.watch);
        let mut older = Vec::new();
        for _ in 0..MAX_RACES {
            let Plug { transaction, interface, same_address } =
                rows::plug(attachment, host, &older);
            let row = || {
                Monitor::new().table_changes::<Interface>(Condition::equal("name", host.as_str()))
            };
            // Sent back to back, the monitor first: it is in place before the row is.
            let begun = match watch {
                Some(watch) => Either::Left(ready(Ok(watch))),
                None => Either::Right(self.connection.monitor(row())),
            };
            let (begun, outcome) = tokio::join!(begun, self.transact(transaction));
            let begun = begun?;
            match outcome {
                Ok(outcome) => {
                    let same_address =
                        same_address.map(|selection| outcome.rows(selection)).unwrap_or_default();
                    if let Some((address, holder)) =
                        rows::holder_of_address(attachment, same_address)
                    {
                        // The port is written by now: the caller's rollback removes it.
                        return Err(BridgeError::AddressTaken {
                            address,
                            port: holder.iface_id().unwrap_or_default().to_owned(),
                            sandbox: holder.sandbox().unwrap_or_default().to_owned(),
                        });
                    }
                    return Ok(Plugged {
                        interface: outcome.uuid(&interface),
                        name: host.clone(),
                        watch: begun,
                    });
                }
                // A `wait` of the transaction failed (RFC 7047 section 5.2.6): something is in the
                // way.
                Err(BridgeError::Transact(error))
                    if matches!(error.kind(), Some(ErrorKind::TimedOut)) =>
                {
                    // The next attempt uses the same monitor.
                    watch = Some(begun);
                    older = self.in_the_way(attachment, host).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(BridgeError::Raced(attachment.iface_id.clone()))
    }

    /// The interfaces that have to go before an attachment can be plugged, with their ports.
    async fn in_the_way(
        &self,
        attachment: &Attachment,
        host: &IfName,
    ) -> Result<Vec<(InterfaceRow, Vec<PortRow>)>, BridgeError> {
        let mut tx = Transaction::new();
        let bridges = tx.select("Bridge", Condition::equal("name", INTEGRATION_BRIDGE), &["name"]);
        let same_port =
            tx.select("Interface", has_iface_id(&attachment.iface_id), &InterfaceRow::COLUMNS);
        let same_name =
            tx.select("Interface", Condition::equal("name", host.as_str()), &InterfaceRow::COLUMNS);
        let outcome = self.transact(tx).await?;
        if outcome.rows(bridges).is_empty() {
            return Err(BridgeError::NoBridge);
        }
        let interfaces =
            |selection| outcome.rows(selection).iter().map(InterfaceRow::from).collect::<Vec<_>>();
        let (mut older, same_name) = (interfaces(same_port), interfaces(same_name));

        let Identity { sandbox, if_name, .. } = &attachment.identity;
        let sandbox = sandbox.as_str();
        let is_sister = |row: &&InterfaceRow| {
            row.sandbox() == Some(sandbox)
                && row.id(external_ids::POD_IF_NAME).is_some_and(|other| other != if_name.as_str())
        };
        // Another interface of the same sandbox has the logical port. Removing it would cut that
        // one off.
        if let Some(sister) = older.iter().find(is_sister) {
            let if_name = sister.id(external_ids::POD_IF_NAME).unwrap_or_default().to_owned();
            return Err(BridgeError::AttachedTwice {
                network: attachment.network.annotation_key().to_owned(),
                if_name,
            });
        }
        for row in same_name.into_iter().filter(|row| !older.contains(row)).collect::<Vec<_>>() {
            // A row of this name may only be replaced within the same sandbox or logical port.
            if row.sandbox() != Some(sandbox) {
                return Err(BridgeError::NameTaken {
                    name: host.clone(),
                    owner: row.sandbox().unwrap_or("unknown").to_owned(),
                });
            }
            older.push(row);
        }
        self.with_ports(older).await
    }

    /// The port that the server has plugged for an attachment, if it exists.
    ///
    /// # Errors
    /// [`BridgeError::Monitor`] if the monitor is refused or the session is lost.
    pub async fn find(
        &self,
        attachment: &Attachment,
        host: &IfName,
    ) -> Result<Option<Plugged>, BridgeError> {
        let watch = self
            .connection
            .monitor(Monitor::new().table::<Interface>(Condition::equal("name", host.as_str())))
            .await?;
        let sandbox = attachment.identity.sandbox.as_str();
        let own = |row: &Interface| {
            row.external_ids.get(external_ids::SANDBOX).is_some_and(|owner| owner == sandbox)
        };
        // The name alone is not enough: the row may be left over from another sandbox.
        let interface = watch.rows::<Interface>().find(|(_, row)| own(row)).map(|(uuid, _)| uuid);
        Ok(interface.map(|interface| Plugged { interface, name: host.clone(), watch }))
    }

    /// The interfaces of a sandbox.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn of_sandbox(&self, sandbox: &SandboxId) -> Result<Vec<InterfaceRow>, BridgeError> {
        self.interfaces(has_id(external_ids::SANDBOX, sandbox.as_str()).into()).await
    }

    /// The interfaces of every sandbox.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn of_all_sandboxes(&self) -> Result<Vec<InterfaceRow>, BridgeError> {
        let mut all = self.interfaces(Where::all()).await?;
        all.retain(|row| row.sandbox().is_some());
        Ok(all)
    }

    /// The addresses that are in use by interfaces other than `identities`.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn addresses_of_others(
        &self,
        identities: &[Identity],
    ) -> Result<HashSet<IpAddr>, BridgeError> {
        let mut tx = Transaction::new();
        // All rows: no condition can match one address in the list of a row.
        let all = tx.select(
            "Interface",
            Where::all(),
            &[&InterfaceRow::COLUMNS[..], &["ofport"]].concat(),
        );
        let outcome = self.transact(tx).await?;
        let mut addresses = HashSet::new();
        for row in outcome.rows(all) {
            let ofport = row.integer("ofport");
            let row = InterfaceRow::from(row);
            if rows::is_at_work(ofport, &row.external_ids)
                && !identities.iter().any(|identity| row.belongs_to(identity))
            {
                addresses.extend(row.addresses());
            }
        }
        Ok(addresses)
    }

    /// The interface of this name.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn named(&self, name: &str) -> Result<Option<InterfaceRow>, BridgeError> {
        Ok(self.interfaces(Condition::equal("name", name).into()).await?.pop())
    }

    /// Removes the ports of these interfaces, and the rate limits of `identity`.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn unplug(
        &self,
        identity: &Identity,
        interfaces: Vec<InterfaceRow>,
    ) -> Result<(), BridgeError> {
        let ports: Vec<PortRow> =
            self.with_ports(interfaces).await?.into_iter().flat_map(|(_, ports)| ports).collect();
        self.transact(rows::unplug(identity, &ports)).await?;
        Ok(())
    }

    /// Removes the ports of these interfaces, and the rate limits of all `identities`, in one
    /// transaction: all of them, or none if anything is refused.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn unplug_all(
        &self,
        identities: &[Identity],
        interfaces: Vec<InterfaceRow>,
    ) -> Result<(), BridgeError> {
        let ports: Vec<PortRow> =
            self.with_ports(interfaces).await?.into_iter().flat_map(|(_, ports)| ports).collect();
        self.transact(rows::unplug_all(identities, &ports)).await?;
        Ok(())
    }

    /// Waits until ovs-vswitchd has processed the present contents of the database (`next_cfg` and
    /// `cur_cfg` in ovs-vswitchd.conf.db(5)). Waits as long as ovs-vswitchd takes: the caller sets
    /// the limit.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn settle(&self) -> Result<(), BridgeError> {
        let (transaction, number) = rows::next_configuration();
        let watch = self.connection.monitor(Monitor::new().table::<OpenVSwitch>(Where::all()));
        let (watch, outcome) = tokio::join!(watch, self.transact(transaction));
        let (mut watch, outcome) = (watch?, outcome?);
        let wanted = outcome
            .rows(number)
            .first()
            .and_then(|row| row.integer("next_cfg"))
            .unwrap_or_default();
        // Other programs increment `next_cfg`, too: a larger number is as good.
        while watch.rows::<OpenVSwitch>().any(|(_, row)| row.cur_cfg < wanted) {
            watch.changed().await?;
        }
        Ok(())
    }

    /// Whether the integration bridge exists.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn exists(&self) -> Result<bool, BridgeError> {
        let mut tx = Transaction::new();
        let bridges = tx.select("Bridge", Condition::equal("name", INTEGRATION_BRIDGE), &["name"]);
        Ok(!self.transact(tx).await?.rows(bridges).is_empty())
    }

    /// Removes the integration bridge with all its ports. Returns whether there was one.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn remove(&self) -> Result<bool, BridgeError> {
        let mut tx = Transaction::new();
        let bridges = tx.select("Bridge", Condition::equal("name", INTEGRATION_BRIDGE), &["_uuid"]);
        let outcome = self.transact(tx).await?;
        let Some(bridge) = outcome.rows(bridges).first() else { return Ok(false) };
        let mut tx = Transaction::new();
        // ovsdb-server deletes a bridge, and the ports of one, that nothing refers to.
        tx.mutate("Open_vSwitch", Where::all(), vec![Mutation::delete("bridges", bridge.uuid())]);
        tx.comment("ovnkube: integration bridge removed");
        self.transact(tx).await?;
        Ok(true)
    }

    /// The datapath of the integration bridge, and the release of Open vSwitch, which its scripts
    /// write, if they are used.
    ///
    /// # Errors
    /// [`BridgeError::NoBridge`] if there is no integration bridge; otherwise the database is out
    /// of reach, too slow or refuses.
    pub async fn datapath(&self) -> Result<(Datapath, Option<String>), BridgeError> {
        let mut tx = Transaction::new();
        let bridges =
            tx.select("Bridge", Condition::equal("name", INTEGRATION_BRIDGE), &["datapath_type"]);
        let switches = tx.select("Open_vSwitch", Where::all(), &["ovs_version"]);
        let outcome = self.transact(tx).await?;
        let bridge = outcome.rows(bridges).first().ok_or(BridgeError::NoBridge)?;
        let release = outcome.rows(switches).first().and_then(|row| row.string("ovs_version"));
        let datapath = Datapath::of(bridge.string("datapath_type").unwrap_or_default());
        Ok((datapath, release.map(str::to_owned)))
    }

    /// Carries a transaction out. Without an answer in time its outcome is unknown, and the caller
    /// has to look again.
    async fn transact(&self, transaction: Transaction) -> Result<Outcome, BridgeError> {
        let answer = timeout(self.patience, self.connection.transact(transaction)).await;
        Ok(answer.map_err(|_| BridgeError::Slow(self.patience))??)
    }

    async fn interfaces(&self, condition: Where) -> Result<Vec<InterfaceRow>, BridgeError> {
        let mut tx = Transaction::new();
        let selection = tx.select("Interface", condition, &InterfaceRow::COLUMNS);
        Ok(self.transact(tx).await?.rows(selection).iter().map(InterfaceRow::from).collect())
    }

    /// Each interface with its ports: one, unless an administrator has made a bond of it.
    async fn with_ports(
        &self,
        interfaces: Vec<InterfaceRow>,
    ) -> Result<Vec<(InterfaceRow, Vec<PortRow>)>, BridgeError> {
        if interfaces.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = Transaction::new();
        let selections: Vec<_> = interfaces
            .iter()
            .map(|row| tx.select("Port", Condition::includes("interfaces", row.uuid), &["qos"]))
            .collect();
        let outcome = self.transact(tx).await?;
        let ports = selections
            .into_iter()
            .map(|selection| outcome.rows(selection).iter().map(PortRow::from).collect());
        Ok(interfaces.into_iter().zip(ports).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_that_is_assumed_can_be_read_and_has_every_column() {
        let schema = schema();
        let columns = <Interface as ovsdb::Table>::COLUMNS;
        assert!(columns.iter().all(|column| schema.has_column("Interface", column)), "{schema:?}");
        assert!(
            ["cur_cfg", "ovs_version"]
                .iter()
                .all(|column| schema.has_column("Open_vSwitch", column))
        );
    }
}
