//! Arithmetic of addresses: every address derived from a subnet is inside it, whatever its size and
//! position.

use std::net::IpAddr;

use arbitrary::{Result, Unstructured};
use contract::{mac::Mac, ovn as addresses};
use ipnet::IpNet;

use crate::draw;

/// `data` is the source of a drawn subnet and offset.
pub(crate) fn check(data: &[u8]) {
    let mut u = Unstructured::new(data);
    if let Ok((subnet, offset, other)) = drawn(&mut u) {
        check_subnet(&subnet, offset, &other);
    }
}

fn drawn(u: &mut Unstructured<'_>) -> Result<(IpNet, u128, IpNet)> {
    Ok((draw::net(u)?, u.arbitrary()?, draw::net(u)?))
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

fn check_subnet(subnet: &IpNet, offset: u128, other: &IpNet) {
    let bits = subnet.max_prefix_len() - subnet.prefix_len();
    let holds = bits == 128 || offset < 1 << bits;
    for offset in [offset, offset % 5] {
        match addresses::nth(subnet, offset) {
            Some(found) => {
                assert!(
                    subnet.contains(&found.addr()) && found.prefix_len() == subnet.prefix_len(),
                    "{subnet}: {found}"
                );
                assert_eq!(
                    number(found.addr()) - number(subnet.network()),
                    offset,
                    "{subnet}: {found}"
                );
            }
            None => assert!(!holds || offset >= 1 << bits, "{subnet} has room for {offset}"),
        }
    }
    let own = [addresses::gateway(subnet), addresses::management(subnet)];
    for address in own.iter().flatten() {
        assert!(addresses::reserved(subnet, address.addr()), "{address} could be a pod's");
    }
    assert!(addresses::reserved(subnet, subnet.network()), "{subnet}: its first address");
    assert_eq!(
        addresses::gateways(&[*subnet, *other]).len(),
        [subnet, other].iter().filter_map(|net| addresses::gateway(net)).count()
    );

    let mac = addresses::port_mac(&[*subnet, *other]).expect("there are addresses");
    let v4_first = [subnet, other].into_iter().find(|net| net.addr().is_ipv4()).unwrap_or(subnet);
    assert_eq!(mac, Mac::from_ip(v4_first.addr()));
    assert_eq!(mac.octets()[..2], [0x0a, 0x58]);
}
