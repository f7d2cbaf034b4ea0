//! The default routes, and the address of their interface: the best guess of a node at the address
//! at which others reach it.

use std::{io, net::IpAddr};

use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteNextHopFlags, RouteType},
};
use podnet::netlink::Netlink;

use crate::kernel_thread;

/// `RT_TABLE_MAIN` (`linux/rtnetlink.h`).
const MAIN_TABLE: u32 = 254;

/// The address, IPv4 before IPv6. `None` without a default route.
pub(crate) async fn address() -> io::Result<Option<IpAddr>> {
    kernel_thread::ask(async { looked_up(&Netlink::open()?) }).await?
}

fn looked_up(netlink: &Netlink) -> io::Result<Option<IpAddr>> {
    let preferred = |family| Ok::<_, io::Error>(in_order(netlink, family)?.into_iter().next());
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let Some(route) = preferred(family)? else { continue };
        let of_link =
            |message: AddressMessage| (message.header.index == route.link).then_some(message);
        let addresses = netlink.addresses(of_link)?;
        // The route's own source address is what packets to other nodes leave with.
        let address = route.source.or_else(|| first(&addresses, family));
        if address.is_some() {
            return Ok(address);
        }
    }
    Ok(None)
}

/// The default routes, IPv4 first, of each family those that the kernel prefers first.
pub(crate) async fn routes() -> io::Result<Vec<(AddressFamily, DefaultRoute)>> {
    let read = |netlink: &Netlink| {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            all.extend(in_order(netlink, family)?.into_iter().map(|route| (family, route)));
        }
        Ok(all)
    };
    kernel_thread::ask(async move { read(&Netlink::open()?) }).await?
}

fn in_order(netlink: &Netlink, family: AddressFamily) -> io::Result<Vec<DefaultRoute>> {
    let mut all = RouteMessage::default();
    all.header.address_family = family;
    let routes = netlink.routes(all, |message| {
        let routes = DefaultRoute::read(&message);
        (!routes.is_empty()).then_some(routes)
    })?;
    Ok(preferred_first(routes.into_iter().flatten().collect()))
}

/// A default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DefaultRoute {
    pub(crate) link: u32,
    metric: u32,
    /// `RTA_PREFSRC`: the source address of packets over this route, if the route has one.
    source: Option<IpAddr>,
    /// The next router. `None` on a link without one (a tunnel).
    pub(crate) via: Option<IpAddr>,
}

impl DefaultRoute {
    /// The route of a message, if it is a unicast default route of the main table: one for each
    /// next hop that can be used.
    fn read(message: &RouteMessage) -> Vec<Self> {
        let is_default = message.header.destination_prefix_length == 0
            && message.header.kind == RouteType::Unicast;
        if !is_default {
            return Vec::new();
        }
        let mut hops = Vec::new();
        let mut route = Self { link: 0, metric: 0, source: None, via: None };
        // `rtm_table` has one byte: the attribute, if there is one, has the whole number.
        let mut table = u32::from(message.header.table);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Oif(link) => route.link = *link,
                RouteAttribute::Priority(metric) => route.metric = *metric,
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::PrefSource(RouteAddress::Inet(address)) => {
                    route.source = Some((*address).into())
                }
                RouteAttribute::PrefSource(RouteAddress::Inet6(address)) => {
                    route.source = Some((*address).into())
                }
                RouteAttribute::Gateway(address) => route.via = router(address),
                // The kernel uses all of them but those whose link is down.
                RouteAttribute::MultiPath(all) => {
                    let unusable = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
                    let usable = all.iter().filter(|hop| !hop.flags.intersects(unusable));
                    hops.extend(usable.map(|hop| {
                        let via = hop.attributes.iter().find_map(|attribute| match attribute {
                            RouteAttribute::Gateway(address) => router(address),
                            _ => None,
                        });
                        (hop.interface_index, via)
                    }));
                }
                _ => {}
            }
        }
        if route.link != 0 {
            hops.push((route.link, route.via));
        }
        hops.retain(|_| table == MAIN_TABLE);
        hops.into_iter().map(|(link, via)| Self { link, via, ..route }).collect()
    }
}

fn router(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// The route that the kernel prefers first: that of the lowest metric.
fn preferred_first(mut routes: Vec<DefaultRoute>) -> Vec<DefaultRoute> {
    routes.sort_by_key(|route| route.metric);
    routes
}

/// The first address of an interface that is of global scope, and will stay.
fn first(addresses: &[AddressMessage], family: AddressFamily) -> Option<IpAddr> {
    // For IPv6, `IFA_F_SECONDARY` means temporary (`IFA_F_TEMPORARY`): a privacy address, which
    // expires.
    let passing = AddressFlags::Secondary
        | AddressFlags::Deprecated
        | AddressFlags::Tentative
        | AddressFlags::Dadfailed;
    let meant = |message: &&AddressMessage| {
        let header = &message.header;
        let flags = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Flags(flags) => Some(*flags),
            _ => None,
        });
        header.family == family
            && header.scope == AddressScope::Universe
            && !flags.unwrap_or(AddressFlags::empty()).intersects(passing)
    };
    // On a point-to-point link `IFA_ADDRESS` is the peer's address, and `IFA_LOCAL` this host's.
    let own = |message: &AddressMessage| {
        let local = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        local.or_else(|| {
            message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })
        })
    };
    addresses.iter().filter(meant).find_map(own)
}

#[cfg(test)]
mod tests;
