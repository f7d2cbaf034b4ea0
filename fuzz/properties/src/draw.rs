//! Values of the project's types, drawn from a fuzzer's bytes. Contains no property.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use arbitrary::{Result, Unstructured};
use contract::mac::Mac;
use ipnet::IpNet;

/// A unicast address: the bits of a drawn one are adjusted.
pub(crate) fn mac(u: &mut Unstructured<'_>) -> Result<Mac> {
    let mut octets: [u8; 6] = u.arbitrary()?;
    octets[0] = octets[0] & !1 | 2;
    Ok(octets.try_into().expect("unicast, and not zero"))
}

/// An arbitrary address with an arbitrary prefix length.
pub(crate) fn net(u: &mut Unstructured<'_>) -> Result<IpNet> {
    let (address, longest) = if u.arbitrary()? {
        (IpAddr::V4(Ipv4Addr::from(u.arbitrary::<u32>()?)), 32)
    } else {
        (IpAddr::V6(Ipv6Addr::from(u.arbitrary::<u128>()?)), 128)
    };
    Ok(IpNet::new(address, u.int_in_range(0..=longest)?).expect("no longer than the address"))
}

/// An arbitrary address of the same family as `net`.
pub(crate) fn ip_of(u: &mut Unstructured<'_>, net: IpNet) -> Result<IpAddr> {
    Ok(match net {
        IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(u.arbitrary::<u32>()?)),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(u.arbitrary::<u128>()?)),
    })
}

/// Decisions, one byte each. When all bytes are used up, every decision is 0.
#[derive(Debug, Default)]
pub(crate) struct Bytes(VecDeque<u8>);

impl Bytes {
    pub(crate) fn of(data: &[u8]) -> Self {
        Self(data.iter().copied().collect())
    }

    pub(crate) fn below(&mut self, end: u8) -> u8 {
        self.0.pop_front().unwrap_or_default() % end
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(crate) fn and(one: IpAddr, other: IpAddr) -> IpAddr {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one & other).into(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one & other).into(),
        _ => panic!("{one} and {other} are of two families"),
    }
}

pub(crate) fn or(one: IpAddr, other: IpAddr) -> IpAddr {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one | other).into(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one | other).into(),
        _ => panic!("{one} and {other} are of two families"),
    }
}
