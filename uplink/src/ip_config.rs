//! The addresses and routes of a link that follow the node to another link. They stay in the
//! kernel's own form, so that no attribute is lost (lifetime, metric, preferred source, table).
//!
//! Reads and rewrites; changes nothing in the kernel.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv6Addr},
};

use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType},
};
use podnet::netlink::Netlink;

use crate::{BridgeError, nic::Nic};

/// `RT_TABLE_LOCAL` (`linux/rtnetlink.h`). The kernel fills it by itself.
const LOCAL_TABLE: u32 = 255;
/// Bytes of the longest label of an address (`IFNAMSIZ`, without the final zero).
const LONGEST_LABEL: usize = 15;
/// Ticks per second in which the kernel reports the remaining lifetime of a route (`USER_HZ`).
const TICKS: u32 = 100;

/// Addresses in the order in which they were added, and routes with the default routes last.
#[derive(Debug, Clone, Default)]
pub(crate) struct IpConfig {
    pub(crate) addresses: Vec<AddressMessage>,
    pub(crate) routes: Vec<RouteMessage>,
}

impl IpConfig {
    /// The addresses and routes of a link, as they are now. Lists that change while the kernel
    /// makes them are requested again: what is missing from them would stay behind.
    pub(crate) fn of(nic: &Nic) -> Result<Self, BridgeError> {
        let failed = |what: &str| {
            let what = format!("{what} of {}", nic.name);
            move |error| BridgeError::Kernel { what, error }
        };
        let netlink = Netlink::open().map_err(failed("a socket for the addresses"))?;
        let addresses = netlink.addresses(|message| follows(&message, nic).then_some(message));
        // The kernel lists IPv4 addresses in the order in which they were added, and IPv6 addresses
        // in reverse. The order matters: the first address of a subnet is the primary one, the
        // preferred source.
        let (v4, v6): (Vec<_>, Vec<_>) = addresses
            .map_err(failed("the addresses"))?
            .into_iter()
            .partition(|address| address.header.family == AddressFamily::Inet);
        let mut ip_config = Self {
            addresses: v4.into_iter().chain(v6.into_iter().rev()).collect(),
            routes: Vec::new(),
        };
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut all = RouteMessage::default();
            all.header.address_family = family;
            let is_its_own =
                |route: &RouteMessage| names_link(route, nic.index) && is_set_by_somebody(route);
            let routes = netlink.routes(all, |message| is_its_own(&message).then_some(message));
            ip_config.routes.extend(routes.map_err(failed("the routes"))?);
        }
        if let Some(route) = ip_config.routes.iter().find(|route| has_nexthop_object(route)) {
            return Err(BridgeError::NexthopObject(shown_route(route)));
        }
        // The kernel refuses a route whose gateway is not reachable yet: routes on the link come
        // before routes through a gateway.
        ip_config.routes.sort_by_key(|route| {
            (route.header.destination_prefix_length == 0, gateway(route).is_some())
        });
        Ok(ip_config)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.routes.is_empty()
    }

    /// How long the leased address of the family with the shortest lifetime lasts, in seconds. An
    /// IPv6 address of DHCP is a network of its own (RFC 5942, section 4); others are of router
    /// advertisements, and the kernel itself renews these on whichever link hears them.
    pub(crate) fn lease(&self, family: AddressFamily) -> Option<u32> {
        let valid = |address: &AddressMessage| {
            address.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::CacheInfo(info) => Some(info.ifa_valid),
                _ => None,
            })
        };
        let is_leased = |address: &&AddressMessage| match address.header.family {
            AddressFamily::Inet6 => address.header.prefix_len == 128,
            _ => true,
        };
        let own =
            self.passing().filter(|address| address.header.family == family).filter(is_leased);
        own.filter_map(valid).min()
    }

    /// The addresses with a limited lifetime. The program that renews them (DHCP, for example) has
    /// to use the other link from now on.
    pub(crate) fn passing(&self) -> impl Iterator<Item = &AddressMessage> {
        let is_limited = |attribute: &AddressAttribute| match attribute {
            AddressAttribute::CacheInfo(info) => info.ifa_valid != u32::MAX,
            _ => false,
        };
        self.addresses.iter().filter(move |address| address.attributes.iter().any(is_limited))
    }
}

/// An address, rewritten for another link.
///
/// IPv6 addresses skip duplicate address detection (`IFA_F_NODAD`): they are in use already, and
/// would be unusable for about a second.
pub(crate) fn address_on(address: &AddressMessage, from: &Nic, to: &Nic) -> AddressMessage {
    let mut moved = address.clone();
    moved.header.index = to.index;
    moved.header.flags = AddressHeaderFlags::empty();
    // Flags that an administrator can set. The others are states that the kernel reports.
    let kept = AddressFlags::Homeaddress
        | AddressFlags::Managetempaddr
        | AddressFlags::Noprefixroute
        | AddressFlags::Mcautojoin;
    let mut flags = flags_of(address) & kept;
    if address.header.family == AddressFamily::Inet6 {
        flags |= AddressFlags::Nodad;
    }
    moved.attributes.retain_mut(|attribute| match attribute {
        AddressAttribute::Label(label) => {
            *label = label_on(label, &from.name, &to.name);
            true
        }
        AddressAttribute::Flags(_)
        | AddressAttribute::TargetNetNsId(_)
        | AddressAttribute::Protocol(_) => false,
        AddressAttribute::Multicast(_)
        | AddressAttribute::Anycast(_)
        | AddressAttribute::Other(_) => false,
        _ => true,
    });
    moved.attributes.push(AddressAttribute::Flags(flags));
    moved
}

/// The label on the other link: `eth0:1` becomes `breth0:1`, or the link's name if that is too
/// long.
fn label_on(label: &str, from: &str, to: &str) -> String {
    let moved = label.strip_prefix(from).map(|rest| format!("{to}{rest}"));
    moved.filter(|label| label.len() <= LONGEST_LABEL).unwrap_or_else(|| to.to_owned())
}

/// A route, rewritten for another link.
pub(crate) fn route_over(route: &RouteMessage, from: u32, to: u32) -> RouteMessage {
    let mut moved = sendable(route);
    for attribute in &mut moved.attributes {
        match attribute {
            RouteAttribute::Oif(index) if *index == from => *index = to,
            RouteAttribute::MultiPath(hops) => {
                hops.iter_mut()
                    .filter(|hop| hop.interface_index == from)
                    .for_each(|hop| hop.interface_index = to);
            }
            _ => {}
        }
    }
    moved
}

/// A route in the form in which the kernel accepts it: without attributes that it only reports.
pub(crate) fn sendable(route: &RouteMessage) -> RouteMessage {
    let mut route = route.clone();
    // The other flags are states, such as `RTNH_F_LINKDOWN`.
    route.header.flags &= RouteFlags::Onlink;
    let expires = route.attributes.iter().find_map(|attribute| match attribute {
        // The kernel reports the remaining lifetime in ticks, and takes it in seconds.
        RouteAttribute::CacheInfo(info) if info.expires > 0 => Some(info.expires / TICKS),
        _ => None,
    });
    route.attributes.retain(|attribute| {
        !matches!(attribute, RouteAttribute::CacheInfo(_) | RouteAttribute::Expires(_))
    });
    route.attributes.extend(expires.map(RouteAttribute::Expires));
    route
}

/// Whether the route has several next hops. The kernel adds and removes them as one route.
pub(crate) fn is_multipath(route: &RouteMessage) -> bool {
    route.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::MultiPath(_)))
}

/// As `ip address` prints it: `192.0.2.1/24`.
pub(crate) fn shown_address(message: &AddressMessage) -> String {
    ip(message).map_or_else(
        || "an address".to_owned(),
        |address| format!("{address}/{}", message.header.prefix_len),
    )
}

/// As `ip route` prints it: `192.0.2.0/24 via 198.51.100.1 table 7`.
pub(crate) fn shown_route(route: &RouteMessage) -> String {
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => shown(address),
        _ => None,
    });
    let length = route.header.destination_prefix_length;
    let mut text = match destination {
        Some(destination) if length > 0 => format!("{destination}/{length}"),
        _ => "default".to_owned(),
    };
    if let Some(gateway) = gateway(route) {
        let _ = write!(text, " via {gateway}");
    }
    let table = table(route);
    if table != 254 {
        let _ = write!(text, " table {table}");
    }
    text
}

/// Whether an address follows the node to the other link. The kernel gives each link a link-local
/// address of its own, which stays; one that an administrator has set follows.
fn follows(address: &AddressMessage, nic: &Nic) -> bool {
    if address.header.index != nic.index {
        return false;
    }
    match ip(address) {
        // The kernel's own ones: temporary, of stable privacy (RFC 7217), or derived from the MAC
        // address.
        Some(IpAddr::V6(v6)) if v6.is_unicast_link_local() => {
            let flags = flags_of(address);
            flags.contains(AddressFlags::Permanent)
                && !flags.contains(AddressFlags::StablePrivacy)
                && Some(v6) != eui64(&nic.mac)
        }
        Some(_) => true,
        None => false,
    }
}

/// The link-local address that is derived from a MAC address (RFC 4291, appendix A).
fn eui64(mac: &str) -> Option<Ipv6Addr> {
    let octets: Vec<u8> =
        mac.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<_, _>>().ok()?;
    let [a, b, c, d, e, f] = octets[..] else { return None };
    Some(Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}

fn flags_of(address: &AddressMessage) -> AddressFlags {
    let full = address.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    full.unwrap_or_else(|| AddressFlags::from_bits_retain(u32::from(address.header.flags.bits())))
}

/// The link's own address. On a point-to-point link, `Local` is that, and `Address` is the peer's.
fn ip(address: &AddressMessage) -> Option<IpAddr> {
    let find =
        |pick: fn(&AddressAttribute) -> Option<IpAddr>| address.attributes.iter().find_map(pick);
    let local =
        find(
            |attribute| {
                if let AddressAttribute::Local(address) = attribute { Some(*address) } else { None }
            },
        );
    local.or_else(|| {
        find(
            |attribute| {
                if let AddressAttribute::Address(address) = attribute {
                    Some(*address)
                } else {
                    None
                }
            },
        )
    })
}

fn names_link(route: &RouteMessage, index: u32) -> bool {
    route.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Oif(link) => *link == index,
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
        _ => false,
    })
}

/// Whether a program or an administrator has added the route. The kernel adds the others itself,
/// with an address or a link.
fn is_set_by_somebody(route: &RouteMessage) -> bool {
    route.header.kind == RouteType::Unicast
        && route.header.protocol != RouteProtocol::Kernel
        && table(route) != LOCAL_TABLE
        && !route.header.flags.contains(RouteFlags::Cloned)
}

fn has_nexthop_object(route: &RouteMessage) -> bool {
    route.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::NhId(_)))
}

fn table(route: &RouteMessage) -> u32 {
    let full = route.attributes.iter().find_map(|attribute| {
        if let RouteAttribute::Table(table) = attribute { Some(*table) } else { None }
    });
    full.unwrap_or_else(|| route.header.table.into())
}

fn gateway(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|attribute| {
        if let RouteAttribute::Gateway(address) = attribute { shown(address) } else { None }
    })
}

fn shown(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_as_far_as_they_fit() {
        assert_eq!(label_on("eth0", "eth0", "breth0"), "breth0");
        assert_eq!(label_on("eth0:1", "eth0", "breth0"), "breth0:1");
        assert_eq!(label_on("breth0:1", "breth0", "eth0"), "eth0:1");
        assert_eq!(label_on("ethernet0:lab12", "ethernet0", "brethernet0"), "brethernet0");
        assert_eq!(label_on("other", "eth0", "breth0"), "breth0");
    }

    #[test]
    fn the_kernels_own_link_local_address_is_known() {
        assert_eq!(eui64("52:54:00:12:34:56"), Some("fe80::5054:ff:fe12:3456".parse().unwrap()));
        assert_eq!(eui64("nonsense"), None);
    }
}
