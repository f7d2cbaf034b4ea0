//! The way of a packet through this node's switch, for `ovnkube trace`. Asks ovs-vswitchd, and
//! changes nothing.

use std::path::PathBuf;

use contract::{
    error::chain,
    external_ids::IFACE_ID,
    paths::INTEGRATION_BRIDGE,
    wire::{HostAnswer, TraceAnswer, TraceEntry, TraceRequest},
};
use ovsdb::{Condition, Connection, Datum, Endpoint, Options, Transaction};
use podnet::{
    control_socket::{ControlSocket, VSWITCHD},
    daemon::PATIENCE,
};
use tokio::time::timeout;

use super::arrival::Translate;
use super::{ApiResponse, HandlerState};
use crate::api_error::ApiError;

/// Where Open vSwitch is asked.
#[derive(Debug, Clone)]
pub struct SwitchPlaces {
    pub ovsdb: Endpoint,
    /// The directory of ovs-vswitchd's control socket.
    pub run_dir: PathBuf,
    /// Asks the kernel.
    pub(crate) translate: Translate,
}

impl SwitchPlaces {
    /// Without rules of the kernel.
    pub fn without_rules(ovsdb: Endpoint, run_dir: PathBuf) -> Self {
        let translate: Translate = |_, _, _| Box::pin(async { Ok(HostAnswer::default()) });
        Self { ovsdb, run_dir, translate }
    }
}

/// The interface by which the packet enters.
struct Entry {
    name: String,
    mtu: Option<u32>,
    /// In the notation of ovs-ofctl(8): the port, and the fields of a tunnel.
    fields: String,
}

impl HandlerState {
    pub(super) async fn trace(&self, request: &TraceRequest) -> Result<ApiResponse, ApiError> {
        let answer = match self.switch.trace(request).await {
            Ok(answer) => answer,
            Err(problem) => TraceAnswer { problem: Some(problem), ..TraceAnswer::default() },
        };
        ApiResponse::json(&TraceAnswer { node: self.node.clone(), ..answer })
    }
}

impl SwitchPlaces {
    async fn trace(&self, request: &TraceRequest) -> Result<TraceAnswer, String> {
        let packet = request.flow().ok_or("the packet's addresses are not of two machines")?;
        if request.entry == TraceEntry::Wire {
            return self.arrival(request, &packet).await;
        }
        let entry = timeout(PATIENCE, self.entry(&request.entry)).await;
        let entry = entry.map_err(|_| "Open vSwitch's database does not answer".to_owned())??;
        let Entry { name, mtu, fields } = entry;
        let flow = format!("{fields},{packet}");
        let socket = ControlSocket::of(&self.run_dir, VSWITCHD);
        let arguments = [INTEGRATION_BRIDGE, &flow];
        let text = socket.ask("ofproto/trace", &arguments, PATIENCE).await;
        let text = text.map_err(|error| format!("ovs-vswitchd: {}", chain(&error)))?;
        let (node, problem) = (String::new(), None);
        Ok(TraceAnswer { node, interface: name, mtu, flow, text, problem, host: None })
    }

    pub(super) async fn database(&self) -> Result<Connection, String> {
        let options = Options { connect_timeout: PATIENCE, ..Options::default() };
        let database = Connection::open(&self.ovsdb, "Open_vSwitch", options).await;
        database.map_err(|error| chain(&error))
    }

    async fn entry(&self, entry: &TraceEntry) -> Result<Entry, String> {
        let (column, key, value) = match entry {
            TraceEntry::Port(port) => ("external_ids", IFACE_ID, port.clone()),
            TraceEntry::Tunnel { from, .. } => ("options", "remote_ip", from.to_string()),
            TraceEntry::Wire => return Err("the wire is no interface of br-int".to_owned()),
        };
        let missing = || format!("no interface of this node has {column}:{key}={value}");
        let database = self.database().await?;
        let mut query = Transaction::new();
        let condition = Condition::includes(column, Datum::map([(key, value.as_str())]));
        let found = query.select("Interface", condition, &["name", "ofport", "mtu"]);
        let outcome = database.transact(query).await.map_err(|error| chain(&error))?;
        let row = outcome.rows(found).first().ok_or_else(missing)?;
        let name = row.string("name").unwrap_or_default().to_owned();
        let number = row.integer("ofport").filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("ovs-vswitchd has no port for {name}"))?;
        let port = format!("in_port={number}");
        let fields = match entry {
            TraceEntry::Port(_) | TraceEntry::Wire => port,
            TraceEntry::Tunnel { from, datapath, inport, outport } => {
                let source = if from.is_ipv4() { "tun_src" } else { "tun_ipv6_src" };
                let ports = u32::from(*inport) << 16 | u32::from(*outport);
                format!("{port},tun_id={datapath:#x},{source}={from},tun_metadata0={ports:#x}")
            }
        };
        let mtu = row.integer("mtu").and_then(|mtu| u32::try_from(mtu).ok());
        Ok(Entry { name, mtu, fields })
    }
}

#[cfg(test)]
mod tests {
    use contract::wire::TraceProtocol;
    use tokio::time::Instant;

    use super::*;
    use crate::requests::{ApiRequest, Body, test_state};

    #[tokio::test]
    async fn a_switch_that_is_away_is_a_problem_in_the_answer() {
        let state = test_state::handler_state(false).handler_state;
        let request = TraceRequest {
            entry: TraceEntry::Port("shop_cart".to_owned()),
            source_mac: [0x0a, 0x58, 10, 244, 1, 3],
            destination_mac: [0x0a, 0x58, 10, 244, 1, 1],
            source: [10, 244, 1, 3].into(),
            destination: [10, 244, 2, 3].into(),
            protocol: TraceProtocol::Tcp(80),
        };
        let answer = state.answer(ApiRequest::Trace(request), Instant::now()).await.unwrap();
        let Body::Whole(body) = answer.body else { panic!("one body") };
        let answer: TraceAnswer = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer.node, "n1");
        let problem = answer.problem.unwrap();
        assert!(problem.contains("/nonexistent/db.sock"), "{problem}");
    }
}
