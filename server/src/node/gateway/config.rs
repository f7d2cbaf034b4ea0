//! What an administrator says of the gateway.

use std::{collections::BTreeSet, net::IpAddr};

use contract::{names::IfName, node_annotation::GatewayMode as Annotated};
use ipnet::IpNet;
use uplink::flows;

/// How packets of pods leave the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayMode {
    /// Through OVN and the bridge.
    Shared,
    /// Through the management port and the host's routes.
    Local,
}

impl From<GatewayMode> for Annotated {
    fn from(mode: GatewayMode) -> Self {
        match mode {
            GatewayMode::Shared => Self::Shared,
            GatewayMode::Local => Self::Local,
        }
    }
}

impl From<GatewayMode> for flows::Mode {
    fn from(mode: GatewayMode) -> Self {
        match mode {
            GatewayMode::Shared => Self::Shared,
            GatewayMode::Local => Self::Local,
        }
    }
}

/// What to do with a NIC that other programs configure, such as a DHCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagedNic {
    /// It is left alone: nobody would renew its address on the bridge.
    Refuse,
    /// It is moved like others, on the administrator's word.
    Move,
}

/// The configuration of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    pub mode: GatewayMode,
    /// A NIC, a bridge, or a NIC in a bridge. `None`: that of the default route.
    pub interface: Option<IfName>,
    /// What to do with a NIC that other programs configure.
    pub managed_nic: ManagedNic,
    /// The next routers, at most one of each family. Of a family without one, that of the default
    /// route.
    pub next_hops: Vec<IpAddr>,
    /// The VLAN of pods' packets outside.
    pub vlan: Option<u16>,
    /// Whether the gateway router translates the source of each pod for itself, and some may have
    /// no translation.
    pub snat_per_pod: bool,
    /// Whether the gateway router serves node ports.
    pub node_ports: bool,
    /// The UDP ports of the tunnels between nodes.
    pub tunnel_ports: BTreeSet<u16>,
    /// The first of the flows' conntrack zones.
    pub conntrack_zone: u16,
    /// The addresses between host and gateway router, IPv4 and IPv6.
    pub masquerade: [IpNet; 2],
}

impl GatewayConfig {
    /// Whether the gateway router serves node ports for the world: in shared mode alone, whatever
    /// the option says.
    pub(crate) fn router_serves_node_ports(&self) -> bool {
        self.node_ports && self.mode == GatewayMode::Shared
    }
}
