//! What this node does with a packet from the wire, for `ovnkube trace`: the gateway's bridge leads
//! it to OVN or to the host, and the host's rules for Services translate it. Asks, and changes
//! nothing.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
};

use contract::{
    error::chain,
    external_ids::GATEWAY_BRIDGE,
    wire::{HostAnswer, TraceAnswer, TraceProtocol, TraceRequest},
};
use ovsdb::{Condition, Datum, SelectedRow, Transaction, Uuid};
use podnet::{
    control_socket::{ControlSocket, VSWITCHD},
    daemon::PATIENCE,
};
use tokio::time::timeout;

use super::trace::SwitchPlaces;
use crate::services::Protocol;

/// Asks the kernel about a connection from another machine to an address and a port.
pub(crate) type Translate = fn(
    IpAddr,
    SocketAddr,
    Protocol,
) -> Pin<Box<dyn Future<Output = io::Result<HostAnswer>> + Send>>;

/// The bridge of the gateway.
struct UplinkBridge {
    name: String,
    uplink: String,
    number: i64,
}

impl SwitchPlaces {
    /// `packet`: in the notation of ovs-ofctl(8).
    pub(super) async fn arrival(
        &self,
        request: &TraceRequest,
        packet: &str,
    ) -> Result<TraceAnswer, String> {
        let host = host(self.translate, request).await?;
        let bridge = timeout(PATIENCE, self.gateway_bridge()).await;
        let bridge = bridge.map_err(|_| "Open vSwitch's database does not answer".to_owned())??;
        let Some(UplinkBridge { name, uplink, number }) = bridge else {
            return Ok(TraceAnswer { host, ..TraceAnswer::default() });
        };
        let flow = format!("in_port={number},{packet}");
        let socket = ControlSocket::of(&self.run_dir, VSWITCHD);
        let text = socket.ask("ofproto/trace", &[&name, &flow], PATIENCE).await;
        let text = text.map_err(|error| format!("ovs-vswitchd: {}", chain(&error)))?;
        Ok(TraceAnswer { interface: uplink, flow, text, host, ..TraceAnswer::default() })
    }

    /// `None` if this node has no gateway.
    async fn gateway_bridge(&self) -> Result<Option<UplinkBridge>, String> {
        let database = self.database().await?;
        let mut query = Transaction::new();
        let marked = Condition::includes("external_ids", Datum::map([(GATEWAY_BRIDGE, "true")]));
        let bridge = query.select("Bridge", marked, &["name", "external_ids", "ports"]);
        let port = query.select("Port", Vec::new(), &["interfaces"]);
        let interface = query.select("Interface", Vec::new(), &["name", "type", "ofport"]);
        let outcome = database.transact(query).await.map_err(|error| chain(&error))?;
        let Some(row) = outcome.rows(bridge).first() else { return Ok(None) };
        let name = row.string("name").unwrap_or_default().to_owned();
        let own = row.uuids("ports");
        let of_bridge = |row: &&SelectedRow| own.contains(&row.uuid());
        let own = outcome.rows(port).iter().filter(of_bridge);
        let own: Vec<Uuid> = own.flat_map(|row| row.uuids("interfaces")).collect();
        let of_bridge = |row: &&SelectedRow| own.contains(&row.uuid());
        let interfaces = outcome.rows(interface).iter().filter(of_bridge);
        let ports = interfaces.clone().map(|row| {
            let text = |column| row.string(column).unwrap_or_default();
            (text("name"), text("type"))
        });
        let external_ids = row.map("external_ids");
        let uplink = uplink::uplink_of(&name, &external_ids, ports);
        let uplink = uplink.ok_or_else(|| format!("bridge {name} names no uplink"))?.to_owned();
        let number = interfaces.clone().find(|row| row.string("name") == Some(&uplink));
        let number = number.and_then(|row| row.integer("ofport")).filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("ovs-vswitchd has no port for {uplink}"))?;
        Ok(Some(UplinkBridge { name, uplink, number }))
    }
}

/// What the kernel does, of a protocol that Services have.
async fn host(translate: Translate, request: &TraceRequest) -> Result<Option<HostAnswer>, String> {
    let (protocol, port) = match request.protocol {
        TraceProtocol::Tcp(port) => (Protocol::Tcp, port),
        TraceProtocol::Udp(port) => (Protocol::Udp, port),
        TraceProtocol::Icmp => return Ok(None),
    };
    let at = SocketAddr::new(request.destination, port);
    let found = translate(request.source, at, protocol).await;
    found.map(Some).map_err(|error| format!("nftables: {}", chain(&error)))
}
