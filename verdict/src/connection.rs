//! A connection as far as policies can tell: its two ends, and where it leads.

use std::net::IpAddr;

use crate::Labels;

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End<'a> {
    /// None: no pod, or one in its node's network, which policies do not tell from the node.
    pub pod: Option<Pod<'a>>,
    pub address: IpAddr,
}

/// What selectors and names of ports see of a pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pod<'a> {
    pub namespace: &'a str,
    pub labels: &'a Labels<'a>,
    /// `containers[].ports[]` that have names.
    pub ports: &'a [ContainerPort<'a>],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerPort<'a> {
    pub name: &'a str,
    pub protocol: Protocol,
    pub number: u16,
}

/// Where a connection leads, at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub is_ipv6: bool,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// A direction, seen from the pod whose policies are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Ingress,
    Egress,
}

/// A network: an address and a prefix length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cidr(pub IpAddr, pub u8);

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl Direction {
    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }
}

impl Pod<'_> {
    /// Whether one of its containers gives this name to the port.
    pub(crate) fn names(&self, name: &str, Place { protocol, port, .. }: Place) -> bool {
        self.ports.iter().any(|of| of.name == name && of.protocol == protocol && of.number == port)
    }
}

impl Cidr {
    pub fn contains(self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 4),
            IpAddr::V6(v6) => (u128::from(v6), 6),
        };
        let ((own, of), (other, family)) = (bits(self.0), bits(address));
        let mask = u128::MAX.checked_shl(128 - u32::from(self.1)).unwrap_or(0);
        of == family && own & mask == other & mask
    }
}
