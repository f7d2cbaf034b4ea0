//! Reads the interface from the kernel, and carries out steps. What is to be done is decided in
//! `link`.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use contract::{mac::Mac, names::IfName};
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
        RouteProtocol, RouteScope, RouteType,
    },
};
use nix::net::if_::if_indextoname;
use podnet::{
    link::{self, into_io},
    netlink::Netlink,
    netns::host_netlink,
    offload,
};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};

use super::{
    link::{SeenLink, SeenRoute, Step},
    plan::{INTERFACE, Neighbour, Route},
    sysctl,
};

/// Marks the routes that this program makes (`rtm_protocol` of rtnetlink(7)). No routing daemon in
/// `/etc/iproute2/rt_protos` has this number.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(88);

/// The rtnetlink connections for an interface: the management port, or the gateway's bridge.
#[derive(Debug)]
pub(in crate::node) struct Kernel {
    /// For steps.
    netlink: Handle,
    /// For what is read.
    reader: Netlink,
    if_name: IfName,
}

impl Refused {
    /// Whether another attempt at `step` is pointless. Other refusals may end: what confines the
    /// server (AppArmor, SELinux) can be configured while it runs.
    pub(super) fn is_final(&self, step: &Step) -> bool {
        matches!(step, Step::SetSysctl(_)) && sysctl::is_forbidden(&self.source)
    }
}

/// A step that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{if_name}: {step}")]
pub(in crate::node) struct Refused {
    if_name: IfName,
    step: String,
    source: io::Error,
}

/// A route of another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Detour {
    /// None if it has several.
    pub(super) link: Option<u32>,
    pub(super) name: String,
    pub(super) via: Option<IpAddr>,
}

impl Kernel {
    /// Opens the connections for the management port. Needs a tokio runtime.
    pub(super) fn open() -> io::Result<Self> {
        Self::open_for(INTERFACE.parse().map_err(io::Error::other)?)
    }

    /// Opens the connections for any interface.
    pub(in crate::node) fn open_for(if_name: IfName) -> io::Result<Self> {
        Ok(Self { netlink: host_netlink()?, reader: Netlink::open_filtering()?, if_name })
    }

    /// Reads the interface. `None` if it does not exist. Blocks: for the kernel thread, like all
    /// that reads.
    pub(in crate::node) fn look(&self) -> io::Result<Option<SeenLink>> {
        let Some(link) =
            link::find(&self.reader, self.if_name.as_str()).map_err(io::Error::other)?
        else {
            return Ok(None);
        };
        let index = link.index;
        // From here on by index: an interface that is made anew under the name meanwhile is not
        // mixed into the answer.
        let mut neighbours = NeighbourMessage::default();
        neighbours.attributes.push(NeighbourAttribute::IfIndex(index));
        let neighbours =
            self.reader.dump(&RouteNetlinkMessage::GetNeighbour(neighbours), |answer| {
                if let RouteNetlinkMessage::NewNeighbour(message) = answer {
                    neighbour(&message, index)
                } else {
                    None
                }
            })?;
        Ok(Some(SeenLink {
            index,
            is_up: link.up,
            mac: link.mac,
            mtu: link.mtu,
            addresses: self.addresses(index, address)?,
            routes: self.routes(index, |message| route(&message, index))?,
            neighbours,
            // Those of other interfaces are not this program's.
            sysctls: if self.if_name.as_str() == INTERFACE {
                sysctl::differing()
            } else {
                Vec::new()
            },
            leaves_checksums: offload::tx_checksum(&self.if_name).ok(),
        }))
    }

    /// What `pick` makes of the addresses of link `index`.
    fn addresses<T>(
        &self,
        index: u32,
        mut pick: impl FnMut(&AddressMessage) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.reader
            .addresses(|message| if message.header.index == index { pick(&message) } else { None })
    }

    /// What `pick` makes of the routes of the main table over link `index`. A kernel since 4.20
    /// sends no others; a host with a routing daemon may have 100,000 of them.
    fn routes<T>(
        &self,
        index: u32,
        mut pick: impl FnMut(RouteMessage) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            request.header.table = RouteHeader::RT_TABLE_MAIN;
            request.attributes.push(RouteAttribute::Oif(index));
            match self.reader.routes(request, &mut pick) {
                Ok(listed) => routes.extend(listed),
                // A table that never had a route does not exist, and a filtered dump of it is an
                // error.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(routes)
    }

    /// Where a route of another program to the whole of `range` leads: over another link than
    /// `index`.
    pub(super) fn route_elsewhere(&self, range: IpNet, index: u32) -> io::Result<Option<Detour>> {
        // Not of the builder: a question must not have a table, a protocol, a scope or a type.
        let mut request = RouteMessage::default();
        let (family, address) = match range.network() {
            IpAddr::V4(v4) => (AddressFamily::Inet, RouteAddress::Inet(v4)),
            IpAddr::V6(v6) => (AddressFamily::Inet6, RouteAddress::Inet6(v6)),
        };
        request.header.address_family = family;
        request.header.destination_prefix_length = range.max_prefix_len();
        request.attributes.push(RouteAttribute::Destination(address));
        // The answer is the route itself, not what it means for one address.
        request.header.flags = RouteFlags::FibMatch;
        let answer = match self.reader.request(RouteNetlinkMessage::GetRoute(request), 0) {
            Ok(Some(RouteNetlinkMessage::NewRoute(answer))) => answer,
            Ok(_) => return Ok(None),
            Err(error) if error.errno() == Some(nix::libc::ENETUNREACH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let link = answer.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(link) => Some(*link),
            _ => None,
        });
        // A route to a network around the range is not to the range: the default route is one.
        if answer.header.destination_prefix_length != range.prefix_len() || link == Some(index) {
            return Ok(None);
        }
        let name = link.and_then(|link| if_indextoname(link).ok()?.into_string().ok());
        let name = name.unwrap_or_else(|| "several interfaces".to_owned());
        let via = answer.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
            _ => None,
        });
        Ok(Some(Detour { link, name, via }))
    }

    /// Carries out one step on the link with this index.
    pub(in crate::node) async fn take(&self, index: u32, step: &Step) -> Result<(), Refused> {
        let refused =
            |source| Refused { if_name: self.if_name.clone(), step: step.to_string(), source };
        let set = |link: LinkMessageBuilder<LinkUnspec>| {
            self.netlink.link().set(link.index(index).build()).execute()
        };
        let link = LinkMessageBuilder::<LinkUnspec>::new;
        let outcome = match step {
            Step::SetMac(mac) => set(link().address(mac.octets().to_vec())).await,
            Step::SetMtu(mtu) => set(link().mtu(*mtu)).await,
            Step::SetUp => set(link().up()).await,
            Step::AddAddress(address) => {
                return self.add_address(index, *address).await.map_err(refused);
            }
            Step::RemoveAddress(address) => {
                return self.remove_address(index, *address).await.map_err(refused);
            }
            Step::SetNeighbour(Neighbour { address, mac }) => {
                let request = self
                    .netlink
                    .neighbours()
                    .add(index, *address)
                    .link_layer_address(&mac.octets());
                // Replaced: the kernel may have learned an entry for the address by itself.
                request.state(NeighbourState::Permanent).replace().execute().await
            }
            Step::RemoveNeighbour(Neighbour { address, .. }) => {
                let mut request = self.netlink.neighbours().add(index, *address);
                let message = std::mem::take(request.message_mut());
                self.netlink.neighbours().del(message).execute().await
            }
            Step::AddRoute(route) => {
                let message = message(route, index).map_err(refused)?;
                match self.netlink.route().add(message.clone()).execute().await.map_err(into_io) {
                    Err(error) if is_unreachable(&error) => {
                        self.renew_address(index, route.via).await.map_err(refused)?;
                        self.netlink.route().add(message).execute().await
                    }
                    Err(error) => return Err(refused(error)),
                    Ok(()) => Ok(()),
                }
            }
            Step::RemoveRoute(route) => {
                let mut message = message(route, index).map_err(refused)?;
                // The kernel matches a route of any protocol then: one that another program made,
                // too.
                message.header.protocol = RouteProtocol::Unspec;
                // And of any scope (`fib_table_delete`): a route without a gateway has the scope of
                // its link.
                message.header.scope = RouteScope::NoWhere;
                self.netlink.route().del(message).execute().await
            }
            Step::SetSysctl(sysctl) => match sysctl.attribute() {
                Some(attribute) => set(link().append_extra_attribute(attribute)).await,
                None => return sysctl.write().map_err(refused),
            },
            Step::TurnChecksumOffloadOff => {
                return offload::turn_tx_checksum_off(&self.if_name).map_err(refused);
            }
        };
        outcome.map_err(|error| refused(into_io(error)))
    }

    /// Has the kernel forward the IPv4 packets that arrive on the link with this index.
    pub(super) async fn forward(&self, index: u32) -> io::Result<()> {
        let link = LinkMessageBuilder::<LinkUnspec>::new().index(index);
        let request = link.append_extra_attribute(sysctl::forwarding()).build();
        self.netlink.link().set(request).execute().await.map_err(into_io)
    }

    async fn add_address(&self, index: u32, address: IpNet) -> io::Result<()> {
        let mut request = self.netlink.address().add(index, address.addr(), address.prefix_len());
        if address.addr().is_ipv6() {
            // Without duplicate address detection: OVN assigns each address once, and the detection
            // would leave this one tentative, and unusable, for a second.
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        request.execute().await.map_err(into_io)
    }

    /// Gives the link its address beside a gateway again: with it comes the kernel's own route
    /// there, which another program has deleted (`ip route flush dev …`).
    async fn renew_address(&self, index: u32, gateway: IpAddr) -> io::Result<()> {
        for beside in self.addresses(index, address)? {
            if beside.contains(&gateway) {
                self.remove_address(index, beside).await?;
                self.add_address(index, beside).await?;
            }
        }
        Ok(())
    }

    async fn remove_address(&self, index: u32, unwanted: IpNet) -> io::Result<()> {
        // Deleted with the message that the kernel sent, so that every attribute matches.
        let is_unwanted = |message: &AddressMessage| address(message) == Some(unwanted);
        match self.addresses(index, |message| is_unwanted(message).then(|| message.clone()))?.pop()
        {
            Some(message) => self.netlink.address().del(message).execute().await.map_err(into_io),
            None => Ok(()),
        }
    }
}

/// Whether the kernel has no route to the gateway of a new route: the one of IPv4, and of IPv6.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::ENETUNREACH | nix::libc::EHOSTUNREACH))
}

/// The address of a message. `None` for an address of link scope, which the kernel generates
/// (`fe80::/64`).
fn address(message: &AddressMessage) -> Option<IpNet> {
    if message.header.scope == AddressScope::Link {
        return None;
    }
    let find =
        |pick: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(pick);
    // On a point-to-point link `IFA_ADDRESS` is the peer's address, and `IFA_LOCAL` this host's.
    let local =
        find(
            |attribute| {
                if let AddressAttribute::Local(address) = attribute { Some(*address) } else { None }
            },
        );
    let address =
        local.or_else(|| {
            find(|attribute| {
                if let AddressAttribute::Address(address) = attribute {
                    Some(*address)
                } else {
                    None
                }
            })
        });
    IpNet::new(address?, message.header.prefix_len).ok()
}

/// The route of a message, if it is a unicast route of the main table over link `index` that the
/// kernel did not make.
fn route(message: &RouteMessage, index: u32) -> Option<SeenRoute> {
    let header = &message.header;
    // `rtm_table` has one byte: the attribute, if there is one, has the whole number.
    let (mut link, mut table, mut to, mut via) = (None, u32::from(header.table), None, None);
    let (mut mtu, mut source) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(oif) => link = Some(*oif),
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(address) => to = ip(address),
            RouteAttribute::Gateway(address) => via = ip(address),
            RouteAttribute::PrefSource(address) => source = ip(address),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| {
                    if let RouteMetric::Mtu(mtu) = metric { Some(*mtu) } else { None }
                });
            }
            _ => {}
        }
    }
    // Those come and go with an address or a router advertisement, without a step of ours.
    let of_kernel =
        header.protocol == RouteProtocol::Kernel || header.protocol == RouteProtocol::Ra;
    if link != Some(index)
        || table != u32::from(RouteHeader::RT_TABLE_MAIN)
        || header.kind != RouteType::Unicast
        || of_kernel
    {
        return None;
    }
    // A default route has no `RTA_DST`, and a route without a next hop no `RTA_GATEWAY`.
    let unspecified = || {
        if header.address_family == AddressFamily::Inet {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        }
    };
    let to = IpNet::new(to.unwrap_or_else(unspecified), header.destination_prefix_length).ok()?;
    let via = via.unwrap_or_else(unspecified);
    Some(SeenRoute { route: Route { to, via, mtu, source }, is_ours: header.protocol == PROTOCOL })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// The message that adds or deletes a route.
fn message(route: &Route, index: u32) -> io::Result<RouteMessage> {
    let invalid = |error| io::Error::other(format!("{error:?}"));
    let builder = RouteMessageBuilder::<IpAddr>::new().output_interface(index).protocol(PROTOCOL);
    let builder =
        builder.destination_prefix(route.to.addr(), route.to.prefix_len()).map_err(invalid)?;
    // Unspecified stands for "no gateway" (see `route`): only a route that another program made has
    // none.
    let builder = if route.via.is_unspecified() {
        builder
    } else {
        builder.gateway(route.via).map_err(invalid)?
    };
    let builder = match route.source {
        Some(source) => builder.pref_source(source).map_err(invalid)?,
        None => builder,
    };
    let mut message = builder.build();
    message
        .attributes
        .extend(route.mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
    Ok(message)
}

/// The neighbour of a message, if it is a permanent one on link `index`.
fn neighbour(message: &NeighbourMessage, index: u32) -> Option<Neighbour> {
    if message.header.ifindex != index || message.header.state != NeighbourState::Permanent {
        return None;
    }
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
            Some(IpAddr::from(*address))
        }
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
            Some(IpAddr::from(*address))
        }
        _ => None,
    });
    let octets = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(octets) => Some(octets),
        _ => None,
    });
    let mac = Mac::try_from(<[u8; 6]>::try_from(octets?.as_slice()).ok()?).ok()?;
    Some(Neighbour { address: address?, mac })
}

#[cfg(test)]
mod tests;
