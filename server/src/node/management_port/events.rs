//! Notifications of the kernel about the interface, its nftables rules, and the host's addresses.
//! They carry no state: each only wakes the tasks that read it.

use std::{collections::BTreeSet, io, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_core::NlasIterator;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use nix::{libc, net::if_::if_nametoindex};
use podnet::{
    netlink::listen::{Heard, Listener, bodies},
    nftables::ingress::tells_of_port,
};
use tokio::sync::watch;

use super::{plan::INTERFACE, rules::TABLE};

/// `linux/rtnetlink.h`; not in libc's list for musl.
const RTM_DELNETCONF: u16 = libc::RTM_NEWNETCONF + 1;
/// `RTNLGRP_*` of `linux/rtnetlink.h`: links, neighbours, addresses, routes, and settings, of both
/// families.
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

/// What beside the interface itself has events that matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// Neighbours. Those of pods change all the time: each pod that the kubelet probes is one.
    pub(crate) gateways: BTreeSet<IpAddr>,
    /// Masquerade addresses of OVN: their routes and neighbours, over whatever link.
    pub(crate) masquerade: BTreeSet<IpAddr>,
    /// The names of the gateway's interface and of its NIC, which may not be there yet.
    pub(crate) gateway_interfaces: BTreeSet<String>,
    /// Links of the gateway, by index: one that is renamed has an event under a new name.
    pub(crate) gateway_links: BTreeSet<u32>,
    /// Links whose settings matter.
    pub(crate) uplinks: BTreeSet<u32>,
    /// Networks to which any route matters, over whatever link: the ranges of Services' addresses.
    pub(crate) ranges: BTreeSet<IpNet>,
    /// Links over which other programs have routes to these. The kernel drops the IPv4 routes of a
    /// link that goes down without a word of them (`fib_disable_ip`).
    pub(crate) detours: BTreeSet<u32>,
}

/// Channels that change with each event. The numbers only count events.
#[derive(Debug, Clone)]
pub(crate) struct Happened {
    /// What beside the interface itself has events.
    pub(crate) watched: watch::Sender<Watched>,
    /// Events of the interface, or of the table with its rules.
    pub(crate) to_interface: watch::Receiver<u64>,
    /// Those of the table. Without a sender there are none.
    pub(crate) to_table: watch::Receiver<u64>,
    /// Events of the host's addresses and of what leads to masquerade addresses, of its default
    /// routes, and of links with addresses for other machines.
    pub(crate) to_addresses: watch::Receiver<u64>,
}

/// The subject of a message, with the index of its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// The management port itself, recognised by its name.
    Interface(u32),
    Link(u32),
    Neighbour(u32, IpAddr),
    /// A route to a network. The link is 0 if it has several.
    Route(u32, IpNet),
    Address(u32),
    /// The settings under `/proc/sys/net`.
    Settings(u32),
    /// A default route of the main table. 0 if it has several links.
    DefaultRoute(u32),
    /// Nothing that matters here.
    Nothing,
}

/// Subscribes to the events from now on. Needs a tokio runtime.
pub(crate) fn listen() -> io::Result<Happened> {
    let links = Listener::open(NETLINK_ROUTE, &GROUPS)?;
    let (interface, to_interface) = watch::channel(0);
    let (addresses, to_addresses) = watch::channel(0);
    let (table, to_table) = watch::channel(0);
    match rules() {
        Ok(rules) => {
            let ends = unheard([interface.clone(), table.clone()]);
            spawn_until(ends, follow_rules(rules, interface.clone(), table));
        }
        // Not fatal: a kernel without nftables has none to change, and the resync reads the rules
        // anyway.
        Err(error) => {
            tracing::info!(%error, "no nftables notifications: changed rules are noticed at the next resync")
        }
    }
    let watched = watch::Sender::new(Watched::default());
    let ends = unheard([interface.clone(), addresses.clone()]);
    spawn_until(ends, follow(links, interface, addresses, watched.subscribe()));
    Ok(Happened { watched, to_interface, to_table, to_addresses })
}

/// Runs the task until `end`: one that only looked after each event would keep its socket until
/// there is one.
fn spawn_until(
    end: impl Future<Output = ()> + Send + 'static,
    task: impl Future<Output = ()> + Send + 'static,
) {
    tokio::spawn(async {
        tokio::select! {
            () = end => {}
            () = task => {}
        }
    });
}

/// Waits until none of them has a receiver.
async fn unheard(senders: [watch::Sender<u64>; 2]) {
    for sender in &senders {
        sender.closed().await;
    }
}

/// Subscribes to changes of nftables. Needs CAP_NET_ADMIN.
fn rules() -> io::Result<Listener> {
    Listener::open(
        NETLINK_NETFILTER,
        &[u32::try_from(libc::NFNLGRP_NFTABLES).map_err(io::Error::other)?],
    )
}

async fn follow_rules(rules: Listener, interface: watch::Sender<u64>, table: watch::Sender<u64>) {
    loop {
        let is_ours = match rules.next().await {
            Ok(Heard::Datagram(datagram)) => {
                bodies(&datagram).iter().any(|(kind, body)| is_of_table(*kind, body))
            }
            // Messages were lost: ours may be among them.
            Ok(Heard::Overflow) => true,
            Err(error) => {
                return tracing::error!(
                    %error,
                    "nftables notifications have ended: changed rules are noticed at the next resync"
                );
            }
        };
        if is_ours {
            // First: the task that the other one wakes has to see it.
            table.send_modify(|count| *count += 1);
            interface.send_modify(|count| *count += 1);
        }
    }
}

/// Whether a message is about [`TABLE`]. In messages of tables, chains and rules, attribute 1 is
/// the name of the table (`NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, `NFTA_RULE_TABLE`). Chains of
/// pods' ports, which come and go with each pod, are in a table of the same name, and no matter of
/// this one's.
fn is_of_table(kind: u16, body: &[u8]) -> bool {
    if tells_of_port(kind, body) {
        return false;
    }
    // The attributes follow `struct nfgenmsg`, which has 4 bytes.
    let mut attributes =
        NlasIterator::new(body.get(4..).unwrap_or_default()).filter_map(Result::ok);
    attributes.any(|attribute| {
        attribute.kind() == 1 && attribute.value().strip_suffix(b"\0") == Some(TABLE.as_bytes())
    })
}

async fn follow(
    links: Listener,
    interface: watch::Sender<u64>,
    addresses: watch::Sender<u64>,
    watched: watch::Receiver<Watched>,
) {
    let bump = |sender: &watch::Sender<u64>| sender.send_modify(|count| *count += 1);
    // Addresses, routes and neighbours have an index only. An interface that is made later has a
    // message with its name; one that was there before the listener may never have one.
    let mut index = if_nametoindex(INTERFACE).ok();
    loop {
        let datagram = match links.next().await {
            Ok(Heard::Datagram(datagram)) => datagram,
            Ok(Heard::Overflow) => {
                // Messages were lost: anything may have changed.
                bump(&interface);
                bump(&addresses);
                continue;
            }
            Err(error) => {
                return tracing::error!(
                    %error,
                    "netlink notifications have ended: changes are noticed at the next resync"
                );
            }
        };
        for (kind, body) in bodies(&datagram) {
            if link_name(kind, body)
                .is_some_and(|name| watched.borrow().gateway_interfaces.contains(&name))
            {
                bump(&addresses);
            }
            match about(kind, body) {
                About::Interface(number) => {
                    index = Some(number);
                    bump(&interface);
                }
                About::Address(number) | About::Link(number) if Some(number) == index => {
                    bump(&interface)
                }
                About::Settings(number)
                    if Some(number) == index || watched.borrow().uplinks.contains(&number) =>
                {
                    bump(&interface)
                }
                // The tunnel address may follow it; over the interface it is a route like any
                // other, too.
                About::DefaultRoute(number) => {
                    bump(&addresses);
                    if Some(number) == index {
                        bump(&interface);
                    }
                }
                About::Address(_) => bump(&addresses),
                About::Neighbour(number, address)
                    if Some(number) == index && watched.borrow().gateways.contains(&address) =>
                {
                    bump(&interface)
                }
                About::Neighbour(_, address) if watched.borrow().masquerade.contains(&address) => {
                    bump(&addresses)
                }
                About::Route(_, to) if watched.borrow().masquerade.contains(&to.addr()) => {
                    bump(&addresses)
                }
                About::Link(number) => {
                    let (is_uplink, is_detour) = {
                        let watched = watched.borrow();
                        let is_uplink = watched.uplinks.contains(&number)
                            || watched.gateway_links.contains(&number);
                        (is_uplink, watched.detours.contains(&number))
                    };
                    // Its MAC address, or its name.
                    if is_uplink {
                        bump(&addresses);
                    }
                    if is_detour {
                        bump(&interface);
                    }
                }
                About::Route(number, to)
                    if Some(number) == index || watched.borrow().ranges.contains(&to) =>
                {
                    bump(&interface)
                }
                About::Settings(_) | About::Neighbour(..) | About::Route(..) | About::Nothing => {}
            }
        }
    }
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// The attribute of this kind, after a header of `header` bytes.
fn attribute(body: &[u8], header: usize, kind: u16) -> Option<Vec<u8>> {
    let mut attributes = NlasIterator::new(body.get(header..)?).filter_map(Result::ok);
    attributes
        .find(|attribute| attribute.kind() == kind)
        .map(|attribute| attribute.value().to_vec())
}

/// The name in a message about a link. 16 bytes: `struct ifinfomsg`.
fn link_name(kind: u16, body: &[u8]) -> Option<String> {
    let is_link = matches!(kind, libc::RTM_NEWLINK | libc::RTM_DELLINK);
    let name = attribute(body, 16, libc::IFLA_IFNAME).filter(|_| is_link)?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\0")?).into_owned())
}

/// What a message of rtnetlink(7) is about. Each kind of message has the index of its link at
/// another place.
fn about(kind: u16, body: &[u8]) -> About {
    let number = |at: usize| {
        body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)
    };
    let attribute = |header, kind| attribute(body, header, kind);
    let index_in = |header, kind| {
        attribute(header, kind).and_then(|value| value.try_into().ok()).map(u32::from_ne_bytes)
    };
    let named = |index| match link_name(kind, body) {
        Some(name) if name == INTERFACE => About::Interface(index),
        _ => About::Link(index),
    };
    let found = match kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => number(4).map(named),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => number(4).map(About::Address),
        // `NDA_DST`, after the 12 bytes of `struct ndmsg`; entries of a bridge's forwarding table
        // have none.
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => number(4)
            .zip(attribute(12, 1).and_then(|octets| ip(&octets)))
            .map(|(link, address)| About::Neighbour(link, address)),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            // `rtm_dst_len` and `rtm_table`. A route over several links has `RTA_MULTIPATH` and no
            // `RTA_OIF`.
            let is_default = body.get(1) == Some(&0) && body.get(4) == Some(&libc::RT_TABLE_MAIN);
            let link = index_in(12, libc::RTA_OIF);
            let to = attribute(12, libc::RTA_DST)
                .and_then(|octets| IpNet::new(ip(&octets)?, *body.get(1)?).ok());
            match to {
                _ if is_default => Some(About::DefaultRoute(link.unwrap_or_default())),
                Some(to) => Some(About::Route(link.unwrap_or_default(), to)),
                None => link.map(About::Link),
            }
        }
        // `NETCONFA_IFINDEX`, after `struct netconfmsg`, which is padded to 4 bytes.
        libc::RTM_NEWNETCONF | RTM_DELNETCONF => index_in(4, 1).map(About::Settings),
        _ => None,
    };
    found.unwrap_or(About::Nothing)
}

#[cfg(test)]
mod tests;
