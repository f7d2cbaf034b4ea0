//! An Ethernet address. Knows how it is spelled, not which port has it.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use sha2::{Digest, Sha256};

/// A unicast Ethernet address, printed in lower case as Open vSwitch prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

/// A text or six octets that are not a unicast Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a unicast MAC address of the form 0a:58:0a:f4:01:05")]
pub struct NotAMac;

impl Mac {
    /// The MAC address of the port with this IP address. Every program can compute it.
    ///
    /// `0a:58:`, then the four octets of an IPv4 address, or the first four octets of the SHA-256
    /// of an IPv6 address in the spelling of RFC 5952.
    pub fn from_ip(ip: IpAddr) -> Self {
        // An IPv4-mapped address counts as IPv4, as in Go's `net.IP`.
        let [a, b, c, d] = match ip.to_canonical() {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(v6) => {
                let hash = Sha256::digest(v6.to_string().as_bytes());
                [hash[0], hash[1], hash[2], hash[3]]
            }
        };
        Self([0x0a, 0x58, a, b, c, d])
    }

    /// The link-local address that an interface makes of its MAC address (RFC 4291, appendix A).
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0.map(u16::from);
        Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f)
    }

    /// The six octets, in the order of transmission.
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl TryFrom<[u8; 6]> for Mac {
    type Error = NotAMac;

    fn try_from(octets: [u8; 6]) -> Result<Self, NotAMac> {
        // The lowest bit of the first octet marks group addresses (IEEE 802).
        let unicast = octets[0] & 1 == 0 && octets != [0; 6];
        unicast.then_some(Self(octets)).ok_or(NotAMac)
    }
}

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Self, NotAMac> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let digits = parts
                .next()
                .filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
                .ok_or(NotAMac)?;
            *octet = u8::from_str_radix(digits, 16).map_err(|_| NotAMac)?;
        }
        if parts.next().is_some() {
            return Err(NotAMac);
        }
        octets.try_into()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_read_in_any_case_and_printed_in_lower_case() {
        assert_eq!("0A:58:0a:F4:01:05".parse::<Mac>().unwrap().to_string(), "0a:58:0a:f4:01:05");
    }

    #[test]
    fn what_is_not_a_unicast_address_is_refused() {
        for text in [
            "",
            "0a:58:0a:f4:01",
            "0a:58:0a:f4:01:05:06",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
            "+a:58:0a:f4:01:05",
            "a:58:0a:f4:1:5",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(NotAMac), "{text}");
        }
    }

    /// As upstream's documentation of multicast has them.
    #[test]
    fn an_interface_makes_its_link_local_address_of_its_mac_address() {
        for (mac, address) in [
            ("0a:58:0a:f4:00:01", "fe80::858:aff:fef4:1"),
            ("0a:58:0a:f4:01:01", "fe80::858:aff:fef4:101"),
        ] {
            assert_eq!(mac.parse::<Mac>().unwrap().link_local().to_string(), address);
        }
    }

    #[test]
    fn an_address_follows_from_an_ip_address() {
        for (ip, mac) in [
            ("10.244.1.5", "0a:58:0a:f4:01:05"),
            ("::ffff:10.244.1.5", "0a:58:0a:f4:01:05"),
            ("fd00:10:244:1::5", "0a:58:fc:09:1d:4e"),
            ("fd98::1", "0a:58:ee:33:fc:1a"),
            ("::1:0:0:1", "0a:58:43:17:a7:8b"),
        ] {
            assert_eq!(Mac::from_ip(ip.parse().unwrap()).to_string(), mac, "{ip}");
        }
    }
}
