//! The question which way a packet takes through a node's integration bridge, for `ovnkube trace`.
//! A packet in numbers and addresses: nothing of it is a text for a command.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// A packet that enters the integration bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceRequest {
    pub entry: TraceEntry,
    /// The six octets.
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
    /// Of one family.
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: TraceProtocol,
}

/// Where the packet enters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TraceEntry {
    /// The logical port of an interface of this node (`external_ids:iface-id`).
    Port(String),
    /// A tunnel of OVN (ovn-architecture(7), "Tunnel Encapsulations").
    #[serde(rename_all = "camelCase")]
    Tunnel {
        /// The other node's tunnel endpoint.
        from: IpAddr,
        /// The tunnel key of the logical datapath.
        datapath: u32,
        /// The tunnel keys of the logical ports by which it has entered and is to leave the
        /// datapath.
        inport: u16,
        outport: u16,
    },
    /// The physical network: the uplink of the gateway's bridge, or the host of a node without one.
    Wire,
}

/// What the packet carries: the first packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TraceProtocol {
    /// The destination port.
    Tcp(u16),
    /// The destination port.
    Udp(u16),
    /// An echo request.
    Icmp,
}

impl TraceProtocol {
    /// The same protocol to another port. An echo request has none.
    #[must_use]
    pub fn to_port(self, port: u16) -> Self {
        match self {
            Self::Tcp(_) => Self::Tcp(port),
            Self::Udp(_) => Self::Udp(port),
            Self::Icmp => Self::Icmp,
        }
    }

    /// The destination port.
    pub fn port(self) -> Option<u16> {
        match self {
            Self::Tcp(port) | Self::Udp(port) => Some(port),
            Self::Icmp => None,
        }
    }
}

/// What ovs-vswitchd says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TraceAnswer {
    /// The node's name.
    pub node: String,
    /// The interface by which the packet enters.
    pub interface: String,
    /// Its MTU in bytes, if it is known.
    pub mtu: Option<u32>,
    /// The packet in the notation of ovs-ofctl(8).
    pub flow: String,
    /// The output of `ofproto/trace`.
    pub text: String,
    /// Why there is no such output.
    pub problem: Option<String>,
    /// What the host's kernel does with a connection that it gets from the wire.
    pub host: Option<HostAnswer>,
}

/// What the host's rules for Services do with a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostAnswer {
    /// Where they lead it, one of these; none if no rule is about it.
    pub targets: Vec<SocketAddr>,
    /// Dropped: the client is in none of the ranges.
    pub limited: bool,
    /// Refused: the node has no endpoint.
    pub refused: bool,
}

impl TraceRequest {
    /// The packet in the notation of ovs-ofctl(8), without where it enters; a packet has all of its
    /// TCP flags, so they have no mask. `None` if an address is none of a single machine, or the
    /// families differ.
    pub fn flow(&self) -> Option<String> {
        let Self { source_mac, destination_mac, source, destination, protocol, .. } = self;
        let [from, to] = [source_mac, destination_mac].map(|octets| Mac::try_from(*octets));
        let (from, to) = (from.ok()?, to.ok()?);
        let (suffix, fields, icmp) = match (source, destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => ("", ["nw_src", "nw_dst"], "icmp,icmp_type=8"),
            (IpAddr::V6(_), IpAddr::V6(_)) => {
                ("6", ["ipv6_src", "ipv6_dst"], "icmp6,icmpv6_type=128")
            }
            _ => return None,
        };
        let protocol = match protocol {
            TraceProtocol::Tcp(port) => format!("tcp{suffix},tp_dst={port},tcp_flags=0x002"),
            TraceProtocol::Udp(port) => format!("udp{suffix},tp_dst={port}"),
            TraceProtocol::Icmp => icmp.to_owned(),
        };
        let [source_field, destination_field] = fields;
        Some(format!(
            "{protocol},dl_src={from},dl_dst={to},{source_field}={source},\
             {destination_field}={destination},nw_ttl=64"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_written_as_the_switch_reads_it_and_one_of_two_families_is_none() {
        let mac = [0x0a, 0x58, 10, 244, 1, 3];
        let request = |source: &str, destination: &str, protocol| TraceRequest {
            entry: TraceEntry::Port("shop_cart".to_owned()),
            source_mac: mac,
            destination_mac: mac,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol,
        };
        let flow = request("10.244.1.3", "10.244.1.4", TraceProtocol::Tcp(80)).flow();
        let expected = "tcp,tp_dst=80,tcp_flags=0x002,dl_src=0a:58:0a:f4:01:03,\
                        dl_dst=0a:58:0a:f4:01:03,nw_src=10.244.1.3,nw_dst=10.244.1.4,nw_ttl=64";
        assert_eq!(flow.as_deref(), Some(expected));
        let flow = request("fd00::3", "fd00::4", TraceProtocol::Icmp).flow().unwrap();
        assert!(flow.starts_with("icmp6,icmpv6_type=128,"), "{flow}");
        assert!(flow.contains("ipv6_src=fd00::3,ipv6_dst=fd00::4"), "{flow}");
        assert_eq!(request("10.244.1.3", "fd00::4", TraceProtocol::Udp(53)).flow(), None);
        let group = TraceRequest {
            destination_mac: [1, 0, 0x5e, 0, 0, 1],
            ..request("10.244.1.3", "10.244.1.4", TraceProtocol::Icmp)
        };
        assert_eq!(group.flow(), None);
    }
}
