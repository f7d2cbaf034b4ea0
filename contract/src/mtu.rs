//! The MTU of a pod's interface.

use std::{fmt, net::IpAddr, str::FromStr};

/// Bytes of the largest IP packet on a link: 576 (the least that IPv4 hosts must take, RFC 791) to
/// 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u32);

/// A number of bytes that is not a valid MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("MTU {0} is not between 576 and 65535")]
pub struct BadMtu(pub u64);

impl Mtu {
    /// The MTU of pods unless configured: 1500 bytes, less 100 for what Geneve adds.
    pub const DEFAULT: Self = Self(1400);

    /// Bytes, 576 to 65535.
    pub fn bytes(self) -> u32 {
        self.0
    }
}

/// What a tunnel from or to this address adds to a pod's packet: the headers of Ethernet inside
/// (14), of IP, of UDP (8), and of Geneve with OVN's option (16).
pub fn tunnel_bytes(address: IpAddr) -> u32 {
    let of_ip = if address.is_ipv4() { 20 } else { 40 };
    14 + of_ip + 8 + 16
}

impl TryFrom<u64> for Mtu {
    type Error = BadMtu;

    fn try_from(bytes: u64) -> Result<Self, BadMtu> {
        match u32::try_from(bytes) {
            Ok(bytes @ 576..=65535) => Ok(Self(bytes)),
            _ => Err(BadMtu(bytes)),
        }
    }
}

impl FromStr for Mtu {
    type Err = BadMtu;

    fn from_str(text: &str) -> Result<Self, BadMtu> {
        text.parse().map_err(|_| BadMtu(0)).and_then(|bytes: u64| bytes.try_into())
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
