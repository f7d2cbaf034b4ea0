//! What the kernel says happened to the interface, and to addresses of the host: not what, only that something did. Who is woken looks.

use std::{collections::BTreeSet, io, net::IpAddr};

use netlink_packet_core::NlasIterator;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use nix::libc;
use podnet::netlink::listen::{Heard, Listener, bodies};
use tokio::sync::watch;

use super::{plan::INTERFACE, source_nat::TABLE};

/// linux/rtnetlink.h; not in libc's list for musl.
const RTM_DELNETCONF: u16 = libc::RTM_NEWNETCONF + 1;
/// `RTNLGRP_*` of `linux/rtnetlink.h`: links, neighbours, addresses, routes, and settings of both families.
const GROUPS: [u32; 8] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
];

/// Neighbours whose changes matter; those of pods come and go.
pub(crate) type Gateways = BTreeSet<IpAddr>;

/// Changes whenever something happened.
#[derive(Debug, Clone)]
pub(crate) struct Happened {
    /// To be told which neighbours of the interface matter.
    pub(crate) gateways: watch::Sender<Gateways>,
    /// To the interface, or to the table of its rules.
    pub(crate) to_interface: watch::Receiver<u64>,
    /// To an address of the host, or to its default route.
    pub(crate) to_addresses: watch::Receiver<u64>,
}

/// Which link a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// The interface, by its name, and its index.
    Interface(u32),
    Link(u32),
    Neighbour(u32, IpAddr),
    Address(u32),
    /// The host's way to everybody else, over this link.
    DefaultRoute(u32),
    /// A message that says nothing of links.
    Nothing,
}

/// Listens from now on. Needs a tokio runtime.
pub(crate) fn listen() -> io::Result<Happened> {
    let links = Listener::open(NETLINK_ROUTE, &GROUPS)?;
    let (interface, to_interface) = watch::channel(0);
    let (addresses, to_addresses) = watch::channel(0);
    match rules() {
        Ok(rules) => drop(tokio::spawn(follow_rules(rules, interface.clone()))),
        Err(error) => tracing::info!(%error, "changes of nftables' rules are seen late"),
    }
    let gateways = watch::Sender::new(Gateways::new());
    tokio::spawn(follow(links, interface, addresses, gateways.subscribe()));
    Ok(Happened { gateways, to_interface, to_addresses })
}

/// Tells of rules that change. Only who may administer the network may listen.
fn rules() -> io::Result<Listener> {
    Listener::open(NETLINK_NETFILTER, &[u32::try_from(libc::NFNLGRP_NFTABLES).map_err(io::Error::other)?])
}

async fn follow_rules(rules: Listener, interface: watch::Sender<u64>) {
    while !interface.is_closed() {
        let is_ours = match rules.next().await {
            Ok(Heard::Datagram(datagram)) => bodies(&datagram).iter().any(|(_, body)| is_of_table(body)),
            Ok(Heard::Overflow) => true,
            Err(error) => return tracing::error!(%error, "the kernel does not tell of nftables' rules any more: changes are seen late"),
        };
        if is_ours {
            interface.send_modify(|count| *count += 1);
        }
    }
}

/// Messages of tables, chains and rules all have the table's name as their first attribute.
fn is_of_table(body: &[u8]) -> bool {
    let mut attributes = NlasIterator::new(body.get(4..).unwrap_or_default()).filter_map(Result::ok);
    attributes.any(|attribute| attribute.kind() == 1 && attribute.value().strip_suffix(b"\0") == Some(TABLE.as_bytes()))
}

async fn follow(links: Listener, interface: watch::Sender<u64>, addresses: watch::Sender<u64>, gateways: watch::Receiver<Gateways>) {
    let bump = |sender: &watch::Sender<u64>| sender.send_modify(|count| *count += 1);
    let mut index = None;
    while !interface.is_closed() || !addresses.is_closed() {
        let datagram = match links.next().await {
            Ok(Heard::Datagram(datagram)) => datagram,
            Ok(Heard::Overflow) => {
                bump(&interface);
                bump(&addresses);
                continue;
            }
            Err(error) => return tracing::error!(%error, "the kernel does not tell of changes any more: they are seen late"),
        };
        for (kind, body) in bodies(&datagram) {
            match about(kind, body) {
                About::Interface(number) => {
                    index = Some(number);
                    bump(&interface);
                }
                About::Address(number) | About::Link(number) if Some(number) == index => bump(&interface),
                About::DefaultRoute(number) => {
                    bump(&addresses);
                    if Some(number) == index {
                        bump(&interface);
                    }
                }
                About::Address(_) => bump(&addresses),
                About::Neighbour(number, address) if Some(number) == index && gateways.borrow().contains(&address) => bump(&interface),
                About::Link(_) | About::Neighbour(..) | About::Nothing => {}
            }
        }
    }
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// Bodies of rtnetlink(7): where each kind of message has the link's index.
fn about(kind: u16, body: &[u8]) -> About {
    let number = |at: usize| body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let attribute = |header: usize, kind: u16| {
        let attributes = NlasIterator::new(body.get(header..).unwrap_or_default());
        attributes.filter_map(Result::ok).find(|attribute| attribute.kind() == kind).map(|attribute| attribute.value().to_vec())
    };
    let index_in = |header, kind| attribute(header, kind).and_then(|value| value.try_into().ok()).map(u32::from_ne_bytes);
    let named = |index| match attribute(16, libc::IFLA_IFNAME) {
        Some(name) if name.strip_suffix(b"\0") == Some(INTERFACE.as_bytes()) => About::Interface(index),
        _ => About::Link(index),
    };
    let found = match kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => number(4).map(named),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => number(4).map(About::Address),
        // `NDA_DST`; the addresses of a bridge's table have none.
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
            number(4).zip(attribute(12, 1).and_then(|octets| ip(&octets))).map(|(link, address)| About::Neighbour(link, address))
        }
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            // `rtm_dst_len` and `rtm_table`; a route over several links names none of them there.
            let is_default = body.get(1) == Some(&0) && body.get(4) == Some(&libc::RT_TABLE_MAIN);
            let link = index_in(12, libc::RTA_OIF);
            if is_default { Some(About::DefaultRoute(link.unwrap_or_default())) } else { link.map(About::Link) }
        }
        libc::RTM_NEWNETCONF | RTM_DELNETCONF => index_in(4, 1).map(About::Link),
        _ => None,
    };
    found.unwrap_or(About::Nothing)
}

#[cfg(test)]
mod tests;
