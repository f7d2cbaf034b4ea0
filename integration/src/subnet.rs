//! Which addresses nodes and pods get: pure arithmetic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use contract::mac::Mac;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Address families of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both, IPv4 first.
    Dual,
}

/// First host number for pods in a subnet: `.1` is the gateway, `.2` the management port of the
/// node.
pub const FIRST_POD: u32 = 3;

/// Subnets of node `index` (from 1): `10.244.1.0/24` and `fd00:10:244:1::/64` for the first.
///
/// A `v4_len` under 24 makes room for more than 250 pods on a node, `10.244.16.0/20` for the first.
///
/// # Panics
/// If 10.244.0.0/16 has no room for that many nodes with prefixes of that length.
pub fn of_node(index: u32, families: Families, v4_len: u8) -> Vec<IpNet> {
    assert!(
        (16..=24).contains(&v4_len) && index < 1 << (v4_len - 16),
        "10.244.0.0/16 has no /{v4_len} for node {index}"
    );
    let base = u32::from(Ipv4Addr::new(10, 244, 0, 0)) + (index << (32 - v4_len));
    let v4 = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from(base), v4_len));
    // The decimal digits, read as hexadecimal ones: node 10 has `fd00:10:244:10::/64`.
    let group = u16::from_str_radix(&index.to_string(), 16)
        .expect("a small decimal number is a hexadecimal number too");
    let v6 =
        IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x10, 0x244, group, 0, 0, 0, 0), 64));
    match families {
        Families::V4 => vec![v4],
        Families::V6 => vec![v6],
        Families::Dual => vec![v4, v6],
    }
}

/// The networks that contain the addresses of all pods, one per family.
pub fn of_cluster(families: Families) -> Vec<IpNet> {
    let v4 = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16));
    let v6 = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0), 48));
    match families {
        Families::V4 => vec![v4],
        Families::V6 => vec![v6],
        Families::Dual => vec![v4, v6],
    }
}

/// Host number `host` of `subnet`, with its prefix length.
///
/// # Panics
/// If the subnet is too small.
pub fn host(subnet: &IpNet, host: u32) -> IpNet {
    let address = match subnet {
        IpNet::V4(net) => IpAddr::from(Ipv4Addr::from(u32::from(net.network()) + host)),
        IpNet::V6(net) => {
            IpAddr::from(Ipv6Addr::from(u128::from(net.network()) + u128::from(host)))
        }
    };
    assert!(subnet.contains(&address), "{subnet} has no host {host}");
    IpNet::new(address, subnet.prefix_len()).expect("the prefix length of a network is valid")
}

/// The gateway of `subnet`: its first host.
pub fn gateway(subnet: &IpNet) -> IpNet {
    host(subnet, 1)
}

/// A MAC as OVN-Kubernetes derives it from an address.
pub fn mac(address: IpAddr) -> String {
    Mac::from_ip(address).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_subnets_that_the_documents_show() {
        let text: Vec<String> =
            of_node(2, Families::Dual, 24).iter().map(ToString::to_string).collect();
        assert_eq!(text, ["10.244.2.0/24", "fd00:10:244:2::/64"]);
        assert_eq!(of_node(1, Families::V4, 20)[0].to_string(), "10.244.16.0/20");
    }

    #[test]
    fn the_gateway_is_the_first_host_and_the_mac_shows_the_address() {
        let subnet = of_node(1, Families::V4, 24)[0];
        assert_eq!(gateway(&subnet).to_string(), "10.244.1.1/24");
        assert_eq!(mac(host(&subnet, FIRST_POD).addr()), "0a:58:0a:f4:01:03");
    }
}
