//! The addresses of this host.

use std::{collections::HashSet, io, net::IpAddr};

use netlink_packet_route::address::AddressAttribute;
use podnet::netlink::Netlink;

use crate::kernel_thread;

/// Every address of the host but loopback ones, on any link.
///
/// # Errors
/// The kernel does not list them.
pub(crate) async fn read() -> io::Result<HashSet<IpAddr>> {
    kernel_thread::ask(async { list() }).await.flatten()
}

/// The same, on a thread that may block.
pub(crate) fn list() -> io::Result<HashSet<IpAddr>> {
    let all = Netlink::open()?.addresses(|message| {
        // On a point-to-point link `IFA_ADDRESS` is the peer's address, and `IFA_LOCAL` this
        // host's.
        let local = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let any = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        local.or(any).filter(|address| !address.is_loopback())
    });
    Ok(all?.into_iter().collect())
}
