//! The conversation with Open vSwitch's database: look out, plug, unplug.
//!
//! What the transactions say is decided in [`rows`].

use std::time::Duration;

use contract::{
    external_ids,
    names::{IfName, IfaceId, SandboxId},
    paths::INTEGRATION_BRIDGE,
};
use futures_util::future::{Either, ready};
use ipnet::IpNet;
use ovsdb::{
    Condition, ConnectError, Connection, Endpoints, ErrorKind, Monitor, Monitored, Options, Schema, TransactError, Transaction, Uuid,
};

use crate::{
    plan::{Attachment, Identity},
    rows::{self, InterfaceRow, Plug, PortRow, has_id, has_iface_id},
};

ovsdb::table! {
    /// What a waiting ADD reads of an Interface row.
    pub struct Interface in "Interface" {
        pub name: String,
        /// Assigned by ovs-vswitchd; -1 if it could not open the device.
        pub ofport: Option<i64>,
        /// Why it could not.
        pub error: Option<String>,
        pub external_ids: std::collections::BTreeMap<String, String>,
    }

    /// What an ADD has to know of the bridge before it begins.
    struct BridgeRow in "Bridge" {
        name: String,
        datapath_type: String,
    }

    /// What says how far ovs-vswitchd is.
    struct OpenVSwitch in "Open_vSwitch" {
        cur_cfg: i64,
    }
}

/// What these tables need to know of the schema. Every Open vSwitch has these columns, and reading the whole schema would be half of
/// what a plugin asks of the database.
fn schema() -> Schema {
    const SCHEMA: &str = r#"{"name": "Open_vSwitch", "version": "8.0.0", "tables": {
        "Open_vSwitch": {"columns": {"cur_cfg": {"type": "integer"}}},
        "Bridge": {"columns": {"name": {"type": "string"}, "datapath_type": {"type": "string"}}},
        "Interface": {"columns": {
            "name": {"type": "string"},
            "ofport": {"type": {"key": "integer", "min": 0}},
            "error": {"type": {"key": "string", "min": 0}},
            "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}}}}"#;
    serde_json::from_str(SCHEMA).expect("a constant that a test reads")
}

/// How often a plug is tried again because somebody else wrote at the same moment.
const MAX_RACES: usize = 8;

/// Who forwards the packets of `br-int`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datapath {
    Kernel,
    /// `datapath_type=netdev`: ovs-vswitchd itself.
    Userspace,
}

impl Datapath {
    /// From the column `datapath_type` of the bridge.
    pub fn of(datapath_type: &str) -> Self {
        if datapath_type == "netdev" { Self::Userspace } else { Self::Kernel }
    }
}

/// A session with the node's Open vSwitch. Clones share it.
#[derive(Debug, Clone)]
pub struct Bridge {
    connection: Connection,
}

/// Sees the Interface row of a port from its first moment on.
#[derive(Debug)]
pub struct Lookout {
    pub datapath: Datapath,
    /// Which port's.
    host: Option<IfName>,
    watch: Monitored,
}

/// A port that was plugged, with its Interface row under observation.
#[derive(Debug)]
pub struct Plugged {
    pub interface: Uuid,
    pub name: IfName,
    pub watch: Monitored,
}

/// What Open vSwitch's database could not do.
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
    #[error("the annotation's address {address} is that of port {port}, sandbox {sandbox}")]
    AddressTaken { address: IpNet, port: String, sandbox: String },
    #[error("others kept changing the ports of {0}")]
    Raced(IfaceId),
    #[error("transaction")]
    Transact(#[from] TransactError),
    #[error("watch the interface")]
    Monitor(#[from] ovsdb::MonitorError),
    #[error("lost the database of Open vSwitch")]
    Lost(#[from] ovsdb::Closed),
}

impl BridgeError {
    /// Whether the database answered and refused, so that asking again gets the same answer.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Transact(error) if error.server_error().is_some())
    }
}

impl Bridge {
    /// Connects to the first endpoint that answers.
    pub async fn connect(endpoints: &Endpoints, timeout: Duration) -> Result<Self, BridgeError> {
        let connect = async {
            let mut last = BridgeError::NoEndpoint;
            for endpoint in endpoints.iter() {
                match Connection::open_known(endpoint, schema(), Options::small()).await {
                    Ok(connection) => return Ok(Self { connection }),
                    Err(error) => last = error.into(),
                }
            }
            Err(last)
        };
        tokio::time::timeout(timeout, connect).await.unwrap_or(Err(BridgeError::Slow(timeout)))
    }

    /// Whether the session still stands.
    pub fn is_alive(&self) -> bool {
        !self.connection.is_closed()
    }

    /// Looks at the bridge, and begins to look out for the port that is going to be plugged, if its name is known.
    pub async fn look_out(&self, host: Option<IfName>) -> Result<Lookout, BridgeError> {
        let mut monitor = Monitor::new().table::<BridgeRow>(Condition::equal("name", INTEGRATION_BRIDGE));
        if let Some(host) = &host {
            monitor = monitor.table_changes::<Interface>(Condition::equal("name", host.as_str()));
        }
        let watch = self.connection.monitor(monitor).await?;
        let (_, bridge) = watch.rows::<BridgeRow>().next().ok_or(BridgeError::NoBridge)?;
        Ok(Lookout { datapath: Datapath::of(&bridge.datapath_type), host, watch })
    }

    /// Plugs the host's end of an attachment, in place of older ports of the same logical port.
    ///
    /// The caller owns the link `host`, so a row of that name is left over from a link that is gone. It may only be the same
    /// sandbox's or the same logical port's. As a rule there is none, so that nobody looks before the transaction's guards say that there is.
    ///
    /// An address that another pod of the node works with is refused after the fact, because looking costs nothing there: the caller
    /// rolls back.
    pub async fn plug(&self, attachment: &Attachment, host: &IfName, lookout: Option<Lookout>) -> Result<Plugged, BridgeError> {
        let mut watch = lookout.filter(|lookout| lookout.host.as_ref() == Some(host)).map(|lookout| lookout.watch);
        let mut older = Vec::new();
        for _ in 0..MAX_RACES {
            let Plug { transaction, interface, same_address } = rows::plug(attachment, host, &older);
            let row = || Monitor::new().table_changes::<Interface>(Condition::equal("name", host.as_str()));
            // Sent back to back: the watch is there before the row is.
            let begun = match watch {
                Some(watch) => Either::Left(ready(Ok(watch))),
                None => Either::Right(self.connection.monitor(row())),
            };
            let (begun, outcome) = tokio::join!(begun, self.connection.transact(transaction));
            let begun = begun?;
            match outcome {
                Ok(outcome) => {
                    let same_address = same_address.map(|selection| outcome.rows(selection)).unwrap_or_default();
                    if let (Some(address), Some(holder)) = (attachment.addresses.first(), rows::holder_of_address(attachment, same_address))
                    {
                        return Err(BridgeError::AddressTaken {
                            address: *address,
                            port: holder.iface_id().unwrap_or_default().to_owned(),
                            sandbox: holder.sandbox().unwrap_or_default().to_owned(),
                        });
                    }
                    return Ok(Plugged { interface: outcome.uuid(&interface), name: host.clone(), watch: begun });
                }
                Err(error) if matches!(error.kind(), Some(ErrorKind::TimedOut)) => {
                    watch = Some(begun);
                    older = self.in_the_way(attachment, host).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(BridgeError::Raced(attachment.iface_id.clone()))
    }

    /// The interfaces that have to go before an attachment can be plugged, with their ports.
    async fn in_the_way(&self, attachment: &Attachment, host: &IfName) -> Result<Vec<(InterfaceRow, Vec<PortRow>)>, BridgeError> {
        let mut tx = Transaction::new();
        let bridges = tx.select("Bridge", Condition::equal("name", INTEGRATION_BRIDGE), &["name"]);
        let same_port = tx.select("Interface", has_iface_id(&attachment.iface_id), &InterfaceRow::COLUMNS);
        let same_name = tx.select("Interface", Condition::equal("name", host.as_str()), &InterfaceRow::COLUMNS);
        let outcome = self.connection.transact(tx).await?;
        if outcome.rows(bridges).is_empty() {
            return Err(BridgeError::NoBridge);
        }
        let interfaces = |selection| outcome.rows(selection).iter().map(InterfaceRow::from).collect::<Vec<_>>();
        let (mut older, same_name) = (interfaces(same_port), interfaces(same_name));

        let sandbox = attachment.identity.sandbox.as_str();
        for row in same_name.into_iter().filter(|row| !older.contains(row)).collect::<Vec<_>>() {
            if row.sandbox() != Some(sandbox) {
                return Err(BridgeError::NameTaken { name: host.clone(), owner: row.sandbox().unwrap_or("unknown").to_owned() });
            }
            older.push(row);
        }
        self.with_ports(older).await
    }

    /// The port that somebody else has plugged for an attachment, if it is there.
    pub async fn find(&self, attachment: &Attachment, host: &IfName) -> Result<Option<Plugged>, BridgeError> {
        let watch = self.connection.monitor(Monitor::new().table::<Interface>(Condition::equal("name", host.as_str()))).await?;
        let sandbox = attachment.identity.sandbox.as_str();
        let own = |row: &Interface| row.external_ids.get(external_ids::SANDBOX).is_some_and(|owner| owner == sandbox);
        let interface = watch.rows::<Interface>().find(|(_, row)| own(row)).map(|(uuid, _)| uuid);
        Ok(interface.map(|interface| Plugged { interface, name: host.clone(), watch }))
    }

    /// The interfaces of a sandbox.
    pub async fn of_sandbox(&self, sandbox: &SandboxId) -> Result<Vec<InterfaceRow>, BridgeError> {
        self.interfaces(has_id(external_ids::SANDBOX, sandbox.as_str()).into()).await
    }

    /// The interfaces of every sandbox.
    pub async fn of_all_sandboxes(&self) -> Result<Vec<InterfaceRow>, BridgeError> {
        let mut all = self.interfaces(ovsdb::Where::all()).await?;
        all.retain(|row| row.sandbox().is_some());
        Ok(all)
    }

    /// The interface of this name.
    pub async fn named(&self, name: &str) -> Result<Option<InterfaceRow>, BridgeError> {
        Ok(self.interfaces(Condition::equal("name", name).into()).await?.pop())
    }

    /// Removes the ports of these interfaces, and the rate limits of `identity`.
    pub async fn unplug(&self, identity: &Identity, interfaces: Vec<InterfaceRow>) -> Result<(), BridgeError> {
        let ports: Vec<PortRow> = self.with_ports(interfaces).await?.into_iter().flat_map(|(_, ports)| ports).collect();
        self.connection.transact(rows::unplug(identity, &ports)).await?;
        Ok(())
    }

    /// Waits until ovs-vswitchd has done everything that the database says by now (`next_cfg` and `cur_cfg` in ovs-vswitchd.conf.db(5)).
    pub async fn settle(&self) -> Result<(), BridgeError> {
        let (transaction, number) = rows::next_configuration();
        let watch = self.connection.monitor(Monitor::new().table::<OpenVSwitch>(ovsdb::Where::all()));
        let (watch, outcome) = tokio::join!(watch, self.connection.transact(transaction));
        let (mut watch, outcome) = (watch?, outcome?);
        let wanted = outcome.rows(number).first().and_then(|row| row.integer("next_cfg")).unwrap_or_default();
        while watch.rows::<OpenVSwitch>().any(|(_, row)| row.cur_cfg < wanted) {
            watch.changed().await?;
        }
        Ok(())
    }

    /// The state of an interface and its port, for CHECK.
    pub async fn inspect(&self, interface: Uuid) -> Result<Inspection, BridgeError> {
        let mut tx = Transaction::new();
        let columns = ["ofport", "error", "external_ids", "ingress_policing_rate"];
        let interfaces = tx.select("Interface", interface, &columns);
        let ports = tx.select("Port", Condition::includes("interfaces", interface), &["qos"]);
        let bridge = tx.select("Bridge", Condition::equal("name", INTEGRATION_BRIDGE), &["ports"]);
        let qos = tx.select("QoS", ovsdb::Where::all(), &["other_config"]);
        let outcome = self.connection.transact(tx).await?;
        let row = outcome.rows(interfaces).first();
        let port = outcome.rows(ports).first().map(PortRow::from);
        let bridge_ports = outcome.rows(bridge).first().map(|bridge| bridge.uuids("ports")).unwrap_or_default();
        let max_rate = port.and_then(|port| {
            let qos = outcome.rows(qos).iter().find(|qos| Some(qos.uuid()) == port.qos)?;
            qos.map("other_config").get("max-rate")?.parse().ok()
        });
        Ok(Inspection {
            on_bridge: port.is_some_and(|port| bridge_ports.contains(&port.uuid)),
            ofport: row.and_then(|row| row.integer("ofport")),
            error: row.and_then(|row| row.string("error")).map(str::to_owned),
            ingress_limit: max_rate,
            egress_limit: row.and_then(|row| row.integer("ingress_policing_rate")).filter(|rate| *rate > 0),
        })
    }

    /// Whether the integration bridge is there.
    pub async fn exists(&self) -> Result<bool, BridgeError> {
        let mut tx = Transaction::new();
        let bridges = tx.select("Bridge", Condition::equal("name", INTEGRATION_BRIDGE), &["name"]);
        Ok(!self.connection.transact(tx).await?.rows(bridges).is_empty())
    }

    async fn interfaces(&self, condition: ovsdb::Where) -> Result<Vec<InterfaceRow>, BridgeError> {
        let mut tx = Transaction::new();
        let selection = tx.select("Interface", condition, &InterfaceRow::COLUMNS);
        Ok(self.connection.transact(tx).await?.rows(selection).iter().map(InterfaceRow::from).collect())
    }

    /// Each interface with the ports that it is in, which is one unless somebody made a bond of it.
    async fn with_ports(&self, interfaces: Vec<InterfaceRow>) -> Result<Vec<(InterfaceRow, Vec<PortRow>)>, BridgeError> {
        if interfaces.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = Transaction::new();
        let selections: Vec<_> =
            interfaces.iter().map(|row| tx.select("Port", Condition::includes("interfaces", row.uuid), &["qos"])).collect();
        let outcome = self.connection.transact(tx).await?;
        let ports = selections.into_iter().map(|selection| outcome.rows(selection).iter().map(PortRow::from).collect());
        Ok(interfaces.into_iter().zip(ports).collect())
    }
}

/// What CHECK reads of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    pub on_bridge: bool,
    pub ofport: Option<i64>,
    pub error: Option<String>,
    /// Bits per second.
    pub ingress_limit: Option<u64>,
    /// Kilobits per second.
    pub egress_limit: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_that_is_assumed_can_be_read_and_has_every_column() {
        let schema = schema();
        let columns = <Interface as ovsdb::Table>::COLUMNS;
        assert!(columns.iter().all(|column| schema.has_column("Interface", column)), "{schema:?}");
        assert!(schema.has_column("Open_vSwitch", "cur_cfg"), "{schema:?}");
    }
}
