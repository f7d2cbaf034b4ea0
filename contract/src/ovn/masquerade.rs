//! The addresses between a node and OVN. They are the same on every node; their numbers are
//! upstream's.

use std::net::IpAddr;

use ipnet::IpNet;

use super::numbered;

/// What an address of a masquerade subnet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Masquerade {
    /// OVN, as the host sees it while both have the node's address.
    Ovn = 1,
    /// Stands for the node's own address behind its gateway router.
    Host = 2,
    /// Where the node sends connections of `externalTrafficPolicy: Local`.
    LocalTraffic = 3,
    /// The next hop of the gateway router towards the node, and of the node towards Services.
    NextHop = 4,
    /// The source of a connection that leads back to its own pod.
    Hairpin = 5,
}

impl Masquerade {
    /// The address in the subnet of one family. A subnet with fewer than 8 addresses has no room
    /// for all: that is not checked.
    pub fn of(self, subnet: &IpNet) -> IpAddr {
        numbered(subnet, self as u8)
    }

    /// The addresses in the subnets of IPv4 and IPv6.
    pub fn in_each(self, subnets: [IpNet; 2]) -> [IpAddr; 2] {
        subnets.map(|subnet| self.of(&subnet))
    }

    /// The address of the family of `like`.
    pub fn like(self, like: IpAddr, subnets: [IpNet; 2]) -> IpAddr {
        let [v4, v6] = self.in_each(subnets);
        if like.is_ipv4() { v4 } else { v6 }
    }
}
