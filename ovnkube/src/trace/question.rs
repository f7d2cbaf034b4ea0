//! The question of `ovnkube trace`: two ends and the first packet between them.

use contract::wire::TraceProtocol;

use crate::{explain::Asked, findings::Format};

/// Which packet is followed.
#[derive(Debug, Clone)]
pub struct TraceQuestion {
    pub from: Asked,
    pub to: Asked,
    pub protocol: TraceProtocol,
    /// Bytes of the IP packet.
    pub size: Option<u32>,
    /// The node at which a packet from outside arrives.
    pub via: Option<String>,
    pub format: Format,
}

impl TraceQuestion {
    /// What the packet is, for people.
    pub(super) fn packet(&self) -> String {
        let packet = match self.protocol {
            TraceProtocol::Tcp(port) => format!("TCP port {port}"),
            TraceProtocol::Udp(port) => format!("UDP port {port}"),
            TraceProtocol::Icmp => "an echo request".to_owned(),
        };
        let size = self.size.map(|size| format!(", {size} bytes")).unwrap_or_default();
        packet + &size
    }

    /// The port in the notation of `policy explain`.
    pub(super) fn port(&self) -> Option<String> {
        match self.protocol {
            TraceProtocol::Tcp(port) => Some(format!("{port}/tcp")),
            TraceProtocol::Udp(port) => Some(format!("{port}/udp")),
            TraceProtocol::Icmp => None,
        }
    }

    /// The command that asks the same.
    pub(super) fn command(&self) -> String {
        let protocol = match self.protocol {
            TraceProtocol::Tcp(port) => format!(" --tcp {port}"),
            TraceProtocol::Udp(port) => format!(" --udp {port}"),
            TraceProtocol::Icmp => " --icmp".to_owned(),
        };
        let via = self.via.as_deref().map(|node| format!(" --via {node}")).unwrap_or_default();
        format!("ovnkube trace {} {}{protocol}{via}", self.from, self.to)
    }
}
