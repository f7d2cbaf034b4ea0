//! The pod's end of the veth: settings, addresses, link up, routes.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressHeaderFlags, AddressMessage},
    route::{RouteAttribute, RouteMessage, RouteMetric, RouteScope},
};
use rtnetlink::{AddressMessageBuilder, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};

use crate::{
    bridge::Datapath,
    link::{HostEnd, LinkError},
    netns::{Inside, NetnsError},
    offload,
    plan::{Attachment, Route},
};

/// Why the pod's end cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum PodEndError {
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("write {path}")]
    Sysctl { path: String, source: io::Error },
    #[error("turn transmit checksum offload off")]
    Offload(#[source] io::Error),
    #[error("address {address}")]
    Address { address: IpNet, source: io::Error },
    #[error("bring the link up")]
    Up(#[source] io::Error),
    #[error("route to {destination}{}", .next_hop.map(|hop| format!(" via {hop}")).unwrap_or_default())]
    Route { destination: IpNet, next_hop: Option<IpAddr>, source: io::Error },
}

/// Configures the pod's end. The order matters: settings before the link is up, routes after it.
///
/// # Errors
/// The kernel refuses a setting, an address, the link or a route; the first one is named.
pub fn configure(
    inside: &Inside,
    attachment: &Attachment,
    host: &HostEnd,
    datapath: Datapath,
) -> Result<(), PodEndError> {
    let if_name = &attachment.identity.if_name;
    // Router advertisements are off on both ends: a pod must not be able to pose as a router
    // (CVE-2020-10749).
    let path = format!("{}/accept_ra", host.name);
    unless_without_ipv6(
        fs::write(format!("/proc/sys/net/ipv6/conf/{path}"), "0"),
        path,
        Ipv6::IfAny,
    )?;
    // OVN gives no address twice, so an address does not have to wait for duplicate address
    // detection.
    for setting in ["accept_ra", "accept_dad"] {
        let written = inside.write_ipv6_setting(if_name.as_str(), setting, "0");
        let ipv6 = if attachment.configures_ipv6() { Ipv6::Needed } else { Ipv6::IfAny };
        unless_without_ipv6(written, format!("{if_name}/{setting}"), ipv6)?;
    }
    match datapath {
        Datapath::Userspace => offload::turn_tx_checksum_off_beside(inside.control(), if_name)
            .map_err(PodEndError::Offload)?,
        Datapath::Kernel => {}
    }

    let index = host.pod_index;
    let up = LinkMessageBuilder::<LinkUnspec>::new().index(index).up().build();
    let add = NLM_F_CREATE | NLM_F_EXCL;
    // The guest of a migrating virtual machine configures its addresses itself. This end must not
    // have them: both would answer for the address.
    let (addresses, routes): (&[IpNet], &[Route]) = if attachment.skip_ip_config {
        (&[], &[])
    } else {
        (&attachment.addresses, &attachment.routes)
    };
    let new_addresses = addresses
        .iter()
        .map(|address| (RouteNetlinkMessage::NewAddress(address_message(index, *address)), add));
    let new_routes = routes
        .iter()
        .map(|route| (RouteNetlinkMessage::NewRoute(route_message(index, route)), add));
    // The kernel carries the messages out in this order. It refuses a route over a link that is
    // down.
    let messages =
        new_addresses.chain([(RouteNetlinkMessage::SetLink(up), 0)]).chain(new_routes).collect();
    inside.netlink.request_all(messages).map_err(|(number, error)| {
        let source = error.into();
        // The messages are the addresses, then the link, then the routes.
        let after_up = number.checked_sub(addresses.len() + 1);
        match (addresses.get(number), after_up.and_then(|number| routes.get(number))) {
            (Some(address), _) => PodEndError::Address { address: *address, source },
            (None, Some(Route { destination, next_hop, .. })) => {
                PodEndError::Route { destination: *destination, next_hop: *next_hop, source }
            }
            (None, None) => PodEndError::Up(source),
        }
    })
}

/// Whether a pod can do without IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ipv6 {
    /// It has an IPv6 address.
    Needed,
    IfAny,
}

/// Ignores the missing settings of a kernel without IPv6, unless the pod needs it.
fn unless_without_ipv6(
    written: io::Result<()>,
    setting: String,
    ipv6: Ipv6,
) -> Result<(), PodEndError> {
    match written {
        Err(source) if ipv6 == Ipv6::Needed || source.kind() != io::ErrorKind::NotFound => {
            Err(PodEndError::Sysctl { path: format!("/proc/sys/net/ipv6/conf/{setting}"), source })
        }
        _ => Ok(()),
    }
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    match address {
        IpNet::V4(net) => AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(net.addr(), net.prefix_len())
            .build(),
        IpNet::V6(net) => {
            let mut message = AddressMessageBuilder::<Ipv6Addr>::new()
                .index(index)
                .address(net.addr(), net.prefix_len())
                .build();
            // Usable at once, whatever the interface's `accept_dad` says.
            message.header.flags |= AddressHeaderFlags::Nodad;
            message
        }
    }
}

fn route_message(index: u32, route: &Route) -> RouteMessage {
    let mut message = match (route.destination, route.next_hop) {
        (IpNet::V4(to), next_hop) => {
            let to = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(to.network(), to.prefix_len())
                .output_interface(index);
            match next_hop {
                Some(IpAddr::V4(gateway)) => to.gateway(gateway),
                _ => to.scope(RouteScope::Link),
            }
            .build()
        }
        (IpNet::V6(to), next_hop) => {
            let to = RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(to.network(), to.prefix_len())
                .output_interface(index);
            match next_hop {
                Some(IpAddr::V6(gateway)) => to.gateway(gateway),
                _ => to,
            }
            .build()
        }
    };
    set_mtu(&mut message, route);
    message
}

fn set_mtu(message: &mut RouteMessage, route: &Route) {
    if let Some(mtu) = route.mtu {
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu.bytes())]));
    }
}
