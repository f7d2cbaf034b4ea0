//! The default routes, and the address of their interface: the best guess of a node at the address at which
//! others reach it.

use std::{io, net::IpAddr};

use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteType},
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
    for (family, route) in preferred(netlink)? {
        let of_link = |message: AddressMessage| (message.header.index == route.link).then_some(message);
        let addresses = netlink.addresses(of_link)?;
        // The route's own source address is what packets to other nodes leave with.
        let address = route.source.or_else(|| first(&addresses, family));
        if address.is_some() {
            return Ok(address);
        }
    }
    Ok(None)
}

/// The default routes that the kernel prefers, at most one of each family, IPv4 first.
pub(crate) async fn routes() -> io::Result<Vec<(AddressFamily, DefaultRoute)>> {
    kernel_thread::ask(async { preferred(&Netlink::open()?) }).await?
}

fn preferred(netlink: &Netlink) -> io::Result<Vec<(AddressFamily, DefaultRoute)>> {
    let mut preferred = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut all = RouteMessage::default();
        all.header.address_family = family;
        let routes = netlink.routes(all, |message| DefaultRoute::read(&message))?;
        preferred.extend(best(routes).map(|route| (family, route)));
    }
    Ok(preferred)
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
    /// The route of a message, if it is a unicast default route of the main table.
    fn read(message: &RouteMessage) -> Option<Self> {
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
                // Several next hops: the kernel uses all of them, so the first is as good as any.
                RouteAttribute::MultiPath(hops) => {
                    let first = hops.first()?;
                    route.link = first.interface_index;
                    route.via = first.attributes.iter().find_map(|attribute| match attribute {
                        RouteAttribute::Gateway(address) => router(address),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        let is_default =
            message.header.destination_prefix_length == 0 && message.header.kind == RouteType::Unicast;
        (is_default && table == MAIN_TABLE && route.link != 0).then_some(route)
    }
}

fn router(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// The default route that the kernel prefers: that of the lowest metric.
fn best(routes: impl IntoIterator<Item = DefaultRoute>) -> Option<DefaultRoute> {
    routes.into_iter().min_by_key(|route| route.metric)
}

/// The first address of an interface that is of global scope, and will stay.
fn first(addresses: &[AddressMessage], family: AddressFamily) -> Option<IpAddr> {
    // For IPv6, `IFA_F_SECONDARY` means temporary (`IFA_F_TEMPORARY`): a privacy address, which expires.
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
