//! What the flows of the external bridge follow from, as plain data. Must not know where a value
//! comes from.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use contract::{mac::Mac, mtu::Mtu};
use ipnet::IpNet;

use super::flow::{Family, OfPort, Protocol};

/// How pods reach the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Through the gateway router, by the patch port.
    Shared,
    /// Through the host's routes.
    Local,
}

/// The bridge and its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalBridge {
    pub ports: Ports,
    /// The address of the bridge, the uplink and the gateway router, which are one on the wire.
    pub mac: Mac,
    /// The VLAN of the node's traffic on the uplink. The bridge's own port stays untagged.
    pub vlan: Option<Vlan>,
    pub datapath: Datapath,
    /// The UDP ports of tunnels between nodes, such as Geneve's.
    pub tunnel_ports: BTreeSet<u16>,
}

/// The numbers of the bridge's ports (`Interface.ofport`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// P: the NIC.
    pub uplink: OfPort,
    /// T: the patch port to br-int.
    pub patch: OfPort,
    /// L: the bridge itself ([`OfPort::LOCAL`]), or the port that stands for the host on a DPU.
    pub host: OfPort,
    /// All other ports. They hear ARP and neighbour solicitations for addresses of Services.
    pub others: BTreeSet<OfPort>,
}

/// Which datapath the bridge has (`Bridge.datapath_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datapath {
    /// `system`: conntrack reassembles fragments into one packet.
    Kernel,
    /// `netdev`: conntrack looks at a packet's fragments together, but they stay fragments.
    Userspace,
}

/// A VLAN's number, 1 to 4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vlan(u16);

/// A number that is not a VLAN's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("VLAN {0} is not between 1 and 4094")]
pub struct BadVlan(pub u16);

impl Vlan {
    /// The number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for Vlan {
    type Error = BadVlan;

    fn try_from(number: u16) -> Result<Self, BadVlan> {
        (1..=4094).contains(&number).then_some(Self(number)).ok_or(BadVlan(number))
    }
}

/// The first of five consecutive conntrack zones that the flows use (`--conntrack-zone`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone(u16);

/// A number after which four more do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("conntrack zone {0} is not between 1 and 65531")]
pub struct BadZone(pub u16);

impl Zone {
    /// Upstream's default.
    pub const DEFAULT: Self = Self(64000);

    /// Connections with the world; their mark says whose they are.
    pub(super) fn world(self) -> u16 {
        self.0
    }

    /// Between the host and OVN: the host's side of masquerading.
    pub(super) fn host_masquerade(self) -> u16 {
        self.0 + 1
    }

    /// Between the host and OVN: the side of OVN.
    pub(super) fn ovn_masquerade(self) -> u16 {
        self.0 + 2
    }

    /// Services whose endpoint is the host, with the client's address kept.
    pub(super) fn host_endpoints(self) -> u16 {
        self.0 + 3
    }

    /// Fragments, before their port is known.
    pub(super) fn fragments(self) -> u16 {
        self.0 + 4
    }
}

impl TryFrom<u16> for Zone {
    type Error = BadZone;

    fn try_from(first: u16) -> Result<Self, BadZone> {
        (1..=u16::MAX - 4).contains(&first).then_some(Self(first)).ok_or(BadZone(first))
    }
}

/// The node's addresses of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddresses {
    /// N: the address that the node shares with its gateway router.
    pub node: IpAddr,
    /// Further addresses of the host that pods may reach. Those of another family are skipped.
    pub others: BTreeSet<IpAddr>,
    pub masquerade: Masquerade,
}

/// The addresses that the host and OVN have for each other while both have the node's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masquerade {
    /// Base + 1: OVN, as the host sees it.
    pub ovn: IpAddr,
    /// Base + 2: the host, as OVN sees it.
    pub host: IpAddr,
}

/// With which source address pods leave the gateway router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodSource {
    /// The node's.
    Node,
    /// Their own (`--disable-snat-multiple-gws`): answers to them, and to the management ports,
    /// arrive from outside.
    Own { management: BTreeSet<IpAddr> },
}

/// A Service's port, as the world sees it on this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exposed {
    pub protocol: Protocol,
    pub front: Front,
    /// With `externalTrafficPolicy: Local` and an endpoint that is this host: its address and port.
    /// The host is then asked directly, with the client's address kept. A named port has to be
    /// resolved; as long as it is not, `None`.
    pub host_endpoint: Option<SocketAddr>,
    /// The networks of the clients that may connect, all of the front's family. `None`: those of
    /// any.
    pub clients: Option<Vec<IpNet>>,
}

/// Where the world finds a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Front {
    /// A port on the node's addresses of the family.
    NodePort { family: Family, port: u16 },
    /// An external IP, or the address of a load balancer, with the Service's port.
    Address { address: IpAddr, port: u16 },
}

impl Front {
    /// The family of the addresses.
    pub fn family(self) -> Family {
        match self {
            Self::NodePort { family, .. } => family,
            Self::Address { address, .. } => Family::of(address),
        }
    }

    /// The port that the world connects to.
    pub fn port(self) -> u16 {
        match self {
            Self::NodePort { port, .. } | Self::Address { port, .. } => port,
        }
    }
}

/// All that [`super::table()`] depends on. Lists have to be complete: what is missing in them is
/// removed from the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub mode: Mode,
    pub bridge: ExternalBridge,
    /// One for each family that the node has.
    pub hosts: Vec<HostAddresses>,
    pub cluster_subnets: Vec<IpNet>,
    /// Ranges of Services.
    pub service_ranges: Vec<IpNet>,
    pub pod_source: PodSource,
    /// The MTU of pods.
    pub mtu: Mtu,
    pub zone: Zone,
    pub services: BTreeSet<Exposed>,
}
