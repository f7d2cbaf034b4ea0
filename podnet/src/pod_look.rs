//! What the pod's end of a veth looks like now. Changes nothing.
//!
//! The kernel tells link and addresses by the id that the host's namespace has for the pod's
//! (`IFLA_TARGET_NETNSID`, rtnetlink(7); for addresses since Linux 4.20): that takes
//! `CAP_NET_ADMIN`, and no namespace is entered. Routes, neighbours and drivers it tells only
//! inside, for which the namespace has to have a name, and this process `CAP_SYS_ADMIN`.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use ipnet::IpNet;
use netlink_packet_core::DefaultNla;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{LinkAttribute, LinkMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    nsid::{NsidAttribute, NsidMessage},
    route::{RouteAddress, RouteAttribute, RouteMessage},
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};

use crate::{
    link::Link,
    netlink::Netlink,
    netns::{Inside, Netns},
    offload,
    plan::default_of,
};

pub mod wire;

/// `IFA_TARGET_NETNSID` of `linux/if_addr.h`.
const TARGET_NETNSID: u16 = 10;
/// Namespaces that are compared with the pod's: more than a node has pods.
const MOST_NAMES: usize = 4096;

/// The pod's end of a veth.
#[derive(Debug)]
pub struct PodLook {
    /// `None` if it is gone.
    pub link: Option<Link>,
    pub addresses: Vec<IpNet>,
    /// Of its namespace; or why it is not entered.
    pub tables: Result<PodTables, String>,
}

/// What the kernel tells inside of a namespace, of one link.
#[derive(Debug)]
pub struct PodTables {
    /// Destinations with their gateways.
    pub routes: Vec<(IpNet, Option<IpAddr>)>,
    /// Neighbours that do not answer.
    pub silent_neighbours: Vec<IpAddr>,
    /// Transmit checksum offload; `None` if the driver does not tell.
    pub tx_checksum: Option<bool>,
}

impl PodLook {
    /// Looks at the other end of the host's link `host_link`. `names`: the directory of `ip
    /// netns`. Blocks.
    ///
    /// # Errors
    /// There is no such link, or the kernel refuses.
    pub fn at(host_link: &str, names: &Path) -> io::Result<Self> {
        let host = Netlink::open()?;
        let (netns, peer) = other_end(&host, host_link)?;
        let gone = |why: &str| Self {
            link: None,
            addresses: Vec::new(),
            tables: Err(format!("the other end of {host_link} is gone: {why}")),
        };
        let (Some(netns), Some(index)) = (netns, peer) else {
            return Ok(gone("no other namespace has it"));
        };
        let Some(link) = link_in(&host, netns, index)? else {
            return Ok(gone("its namespace does not have it"));
        };
        let addresses = addresses_in(netns, index)?;
        let tables = tables(&host, netns, &link, names);
        Ok(Self { link: Some(link), addresses, tables })
    }
}

/// The namespace of the pod at the host's link `host_link`. `names`: the directory of `ip netns`.
/// Must be called by the thread that uses it. Blocks.
///
/// # Errors
/// There is no such link, or no name leads to the namespace of its other end.
pub fn netns_of(host_link: &str, names: &Path) -> Result<Netns, String> {
    let failed = |error: io::Error| format!("{host_link}: {error}");
    let host = Netlink::open().map_err(failed)?;
    let (netns, _) = other_end(&host, host_link).map_err(failed)?;
    named(&host, netns.ok_or_else(|| format!("{host_link}: its other end is gone"))?, names)
}

/// The id of the namespace in which the other end of a link is, and its index there.
fn other_end(host: &Netlink, host_link: &str) -> io::Result<(Option<i32>, Option<u32>)> {
    let asked = LinkMessageBuilder::<LinkUnspec>::new().name(host_link.to_owned()).build();
    let Some(RouteNetlinkMessage::NewLink(message)) =
        host.request(RouteNetlinkMessage::GetLink(asked), 0)?
    else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let netns = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkNetNsId(id) => Some(*id),
        _ => None,
    });
    Ok((netns, Link::from(&message).peer_index))
}

fn link_in(host: &Netlink, netns: i32, index: u32) -> io::Result<Option<Link>> {
    let mut asked = LinkMessage::default();
    asked.header.index = index;
    asked.attributes.push(LinkAttribute::IfNetnsId(netns));
    match host.request(RouteNetlinkMessage::GetLink(asked), 0) {
        Ok(Some(RouteNetlinkMessage::NewLink(message))) => Ok(Some(Link::from(&message))),
        Ok(_) => Ok(None),
        Err(missing) if missing.errno() == Some(nix::libc::ENODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn addresses_in(netns: i32, index: u32) -> io::Result<Vec<IpNet>> {
    // The kernel reads this attribute of lists with strict checks only.
    let host = Netlink::open_filtering()?;
    let mut found = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut asked = AddressMessage::default();
        asked.header.family = family;
        let id = DefaultNla::new(TARGET_NETNSID, netns.to_ne_bytes().to_vec());
        asked.attributes.push(AddressAttribute::Other(id));
        let listed = host.dump(&RouteNetlinkMessage::GetAddress(asked), |entry| match entry {
            RouteNetlinkMessage::NewAddress(message) => address(&message, index),
            _ => None,
        })?;
        found.extend(listed);
    }
    Ok(found)
}

/// The addresses of a link. `netlink` is of its namespace.
///
/// # Errors
/// The kernel refuses.
pub fn addresses(netlink: &Netlink, index: u32) -> io::Result<Vec<IpNet>> {
    netlink.addresses(|message| address(&message, index))
}

fn address(message: &AddressMessage, index: u32) -> Option<IpNet> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    // The list has the addresses of all links.
    IpNet::new(address.filter(|_| message.header.index == index)?, message.header.prefix_len).ok()
}

/// Destinations and gateways of the routes over a link. `netlink` is of its namespace.
///
/// # Errors
/// The kernel refuses.
pub fn routes(netlink: &Netlink, index: u32) -> io::Result<Vec<(IpNet, Option<IpAddr>)>> {
    let v4 = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let v6 = RouteMessageBuilder::<Ipv6Addr>::new().build();
    let mut found = Vec::new();
    for family in [v4, v6] {
        found.extend(netlink.routes(family, |message| route(&message, index))?);
    }
    Ok(found)
}

fn route(message: &RouteMessage, index: u32) -> Option<(IpNet, Option<IpAddr>)> {
    let ip = |address: &RouteAddress| match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    };
    let (mut destination, mut gateway, mut over) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(address),
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Oif(link) => over = Some(*link),
            _ => {}
        }
    }
    let destination = match destination {
        Some(address) => IpNet::new(address, message.header.destination_prefix_length).ok()?,
        // The kernel leaves the destination out of a default route.
        None => default_of(gateway?),
    };
    (over == Some(index)).then_some((destination, gateway))
}

fn tables(host: &Netlink, netns: i32, link: &Link, names: &Path) -> Result<PodTables, String> {
    let inside = named(host, netns, names)?.inside();
    let inside: Inside = inside.map_err(|error| contract::error::chain(&error))?;
    let unread = |error: io::Error| format!("{}: {error}", link.name);
    let if_name = link.name.parse().ok();
    Ok(PodTables {
        routes: routes(&inside.netlink, link.index).map_err(unread)?,
        silent_neighbours: silent_neighbours(&inside.netlink, link.index).map_err(unread)?,
        tx_checksum: if_name
            .and_then(|name| offload::tx_checksum_beside(inside.control(), &name).ok()),
    })
}

/// The namespace, by one of the names of `ip netns`.
fn named(host: &Netlink, netns: i32, names: &Path) -> Result<Netns, String> {
    let directory = names.display();
    let entries = fs::read_dir(names).map_err(|error| format!("{directory}: {error}"))?;
    for entry in entries.flatten().take(MOST_NAMES) {
        // One that has just gone, and the host's own, are not the pod's.
        let Ok(named) = Netns::open(&entry.path()) else { continue };
        if id_of(host, &named) == Some(netns) {
            return Ok(named);
        }
    }
    Err(format!("no name in {directory} leads to its namespace"))
}

/// The id that the host's namespace has for this one.
fn id_of(host: &Netlink, netns: &Netns) -> Option<i32> {
    let mut asked = NsidMessage::default();
    asked.attributes.push(NsidAttribute::Fd(u32::try_from(netns.raw_fd()).ok()?));
    let answer = host.request(RouteNetlinkMessage::GetNsId(asked), 0).ok()??;
    let RouteNetlinkMessage::NewNsId(answer) = answer else { return None };
    answer.attributes.iter().find_map(|attribute| match attribute {
        NsidAttribute::Id(id) if *id >= 0 => Some(*id),
        _ => None,
    })
}

fn silent_neighbours(netlink: &Netlink, index: u32) -> io::Result<Vec<IpAddr>> {
    let mut asked = NeighbourMessage::default();
    asked.header.ifindex = index;
    netlink.dump(&RouteNetlinkMessage::GetNeighbour(asked), |entry| match entry {
        RouteNetlinkMessage::NewNeighbour(message) if message.header.ifindex == index => {
            let is_silent =
                matches!(message.header.state, NeighbourState::Failed | NeighbourState::Incomplete);
            message.attributes.iter().filter(|_| is_silent).find_map(destination)
        }
        _ => None,
    })
}

fn destination(attribute: &NeighbourAttribute) -> Option<IpAddr> {
    match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_not_there_is_an_error_and_loopback_has_no_other_end() {
        let nowhere = Path::new("/nonexistent");
        assert!(PodLook::at("no-such-link", nowhere).is_err());
        let look = PodLook::at("lo", nowhere).unwrap();
        assert!(look.link.is_none() && look.tables.is_err(), "{look:?}");
        let own = addresses(&Netlink::open().unwrap(), 1).unwrap();
        assert!(own.iter().any(|net| net.addr().is_loopback()), "{own:?}");
    }
}
