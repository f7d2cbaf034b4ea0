//! The pod's end of the veth: settings, addresses, link up, routes.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use netlink_packet_route::{
    address::AddressHeaderFlags,
    route::{RouteAttribute, RouteMessage, RouteMetric, RouteScope},
};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};
use tokio::try_join;

use crate::{
    bridge::Datapath,
    link::{HostEnd, LinkError, into_io},
    netns::{Inside, NetnsError},
    offload,
    plan::{Attachment, Route},
};

/// What could not be configured inside the pod.
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
pub async fn configure(inside: &Inside, attachment: &Attachment, host: &HostEnd, datapath: Datapath) -> Result<(), PodEndError> {
    let if_name = &attachment.identity.if_name;
    // No pod believes a router that another pod pretends to be (CVE-2020-10749).
    let path = format!("{}/accept_ra", host.name);
    unless_without_ipv6(fs::write(format!("/proc/sys/net/ipv6/conf/{path}"), "0"), path, false)?;
    // OVN gives no address twice, so an address needs no second of being tried out first.
    for setting in ["accept_ra", "accept_dad"] {
        let written = inside.write_ipv6_setting(if_name.as_str(), setting, "0");
        unless_without_ipv6(written, format!("{if_name}/{setting}"), attachment.has_ipv6())?;
    }
    match datapath {
        Datapath::Userspace => offload::turn_tx_checksum_off_beside(inside.control(), if_name).map_err(PodEndError::Offload)?,
        Datapath::Kernel => {}
    }

    // Sent together: the kernel carries them out in this order, and the first that it refuses is the error.
    let pod = &inside.netlink;
    let addresses = futures_util::future::try_join_all(attachment.addresses.iter().map(|address| async move {
        add_address(pod, host.pod_index, *address).await.map_err(|source| PodEndError::Address { address: *address, source })
    }));
    let up = LinkMessageBuilder::<LinkUnspec>::new().index(host.pod_index).up().build();
    let up = async { pod.link().set(up).execute().await.map_err(|error| PodEndError::Up(into_io(error))) };
    let routes = futures_util::future::try_join_all(attachment.routes.iter().map(|route| async move {
        let Route { destination, next_hop, .. } = *route;
        add_route(pod, host.pod_index, route).await.map_err(|source| PodEndError::Route { destination, next_hop, source })
    }));
    try_join!(biased; addresses, up, routes).map(drop)
}

/// Where the kernel has no IPv6 its settings are missing, which matters only to a pod that is to have an IPv6 address.
fn unless_without_ipv6(written: io::Result<()>, setting: String, required: bool) -> Result<(), PodEndError> {
    match written {
        Err(source) if required || source.kind() != io::ErrorKind::NotFound => {
            Err(PodEndError::Sysctl { path: format!("/proc/sys/net/ipv6/conf/{setting}"), source })
        }
        _ => Ok(()),
    }
}

async fn add_address(pod: &Handle, index: u32, address: IpNet) -> io::Result<()> {
    let mut request = pod.address().add(index, address.addr(), address.prefix_len());
    if address.addr().is_ipv6() {
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
    }
    request.execute().await.map_err(into_io)
}

async fn add_route(pod: &Handle, index: u32, route: &Route) -> io::Result<()> {
    let mut message = match (route.destination, route.next_hop) {
        (IpNet::V4(to), next_hop) => {
            let to = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(to.network(), to.prefix_len()).output_interface(index);
            match next_hop {
                Some(IpAddr::V4(gateway)) => to.gateway(gateway),
                _ => to.scope(RouteScope::Link),
            }
            .build()
        }
        (IpNet::V6(to), next_hop) => {
            let to = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(to.network(), to.prefix_len()).output_interface(index);
            match next_hop {
                Some(IpAddr::V6(gateway)) => to.gateway(gateway),
                _ => to,
            }
            .build()
        }
    };
    set_mtu(&mut message, route);
    pod.route().add(message).execute().await.map_err(into_io)
}

fn set_mtu(message: &mut RouteMessage, route: &Route) {
    if let Some(mtu) = route.mtu {
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu.bytes())]));
    }
}
