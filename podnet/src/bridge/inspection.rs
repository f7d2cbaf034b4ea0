//! The state of a port, for CHECK. Changes nothing.

use contract::paths::INTEGRATION_BRIDGE;
use ovsdb::{Condition, Transaction, Uuid};

use super::{Bridge, BridgeError};
use crate::rows::{self, PortRow};

/// The state of an interface and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    pub on_bridge: bool,
    pub ofport: Option<i64>,
    pub error: Option<String>,
    /// The limits that the port was created with, if it has a record of them: as the next two.
    pub made_with: Option<(Option<u64>, Option<i64>)>,
    /// To the pod, in bits per second.
    pub ingress_limit: Option<u64>,
    /// From the pod, in kilobits per second.
    pub egress_limit: Option<i64>,
}

impl Bridge {
    /// The state of an interface and its port, for CHECK.
    ///
    /// # Errors
    /// The database is out of reach, too slow or refuses.
    pub async fn inspect(&self, interface: Uuid) -> Result<Inspection, BridgeError> {
        let mut tx = Transaction::new();
        let columns = ["ofport", "error", "external_ids", "ingress_policing_rate"];
        let interfaces = tx.select("Interface", interface, &columns);
        let ports = tx.select(
            "Port",
            Condition::includes("interfaces", interface),
            &["qos", "external_ids"],
        );
        let bridge = tx.select("Bridge", Condition::equal("name", INTEGRATION_BRIDGE), &["ports"]);
        let qos = tx.select("QoS", ovsdb::Where::all(), &["other_config"]);
        let outcome = self.transact(tx).await?;
        let row = outcome.rows(interfaces).first();
        let limits =
            outcome.rows(ports).first().and_then(|port| rows::limits_of(&port.map("external_ids")));
        let port = outcome.rows(ports).first().map(PortRow::from);
        let bridge_ports =
            outcome.rows(bridge).first().map(|bridge| bridge.uuids("ports")).unwrap_or_default();
        let max_rate = port.and_then(|port| {
            let qos = outcome.rows(qos).iter().find(|qos| Some(qos.uuid()) == port.qos)?;
            qos.map("other_config").get("max-rate")?.parse().ok()
        });
        Ok(Inspection {
            on_bridge: port.is_some_and(|port| bridge_ports.contains(&port.uuid)),
            ofport: row.and_then(|row| row.integer("ofport")),
            error: row.and_then(|row| row.string("error")).map(str::to_owned),
            made_with: limits,
            // Open vSwitch's ingress is what the pod sends: the names are the other way round.
            ingress_limit: max_rate,
            egress_limit: row
                .and_then(|row| row.integer("ingress_policing_rate"))
                .filter(|rate| *rate > 0),
        })
    }
}
