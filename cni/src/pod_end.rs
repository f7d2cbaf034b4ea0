//! The pod's end of the veth: settings, addresses, link up, routes.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use contract::names::IfName;
use ipnet::IpNet;
use netlink_packet_route::{
    address::AddressHeaderFlags,
    route::{RouteAttribute, RouteMessage, RouteMetric, RouteScope},
};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};

use crate::{
    bridge::Datapath,
    link::{self, HostEnd, LinkError, into_io},
    netns::{Netns, NetnsError},
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
pub async fn configure(
    pod: &Handle,
    netns: &Netns,
    attachment: &Attachment,
    host: &HostEnd,
    datapath: Datapath,
) -> Result<(), PodEndError> {
    let if_name = &attachment.identity.if_name;
    // No pod believes a router that another pod pretends to be (CVE-2020-10749).
    write_ipv6_setting(&host.name, "accept_ra", false)?;
    netns.enter(|| {
        write_ipv6_setting(if_name, "accept_ra", attachment.has_ipv6())?;
        // OVN gives no address twice, so an address needs no second of being tried out first.
        write_ipv6_setting(if_name, "accept_dad", attachment.has_ipv6())?;
        match datapath {
            Datapath::Userspace => offload::turn_tx_checksum_off(if_name).map_err(PodEndError::Offload),
            Datapath::Kernel => Ok(()),
        }
    })??;

    let index = link::find(pod, if_name.as_str()).await?.ok_or_else(|| LinkError::Vanished(if_name.to_string()))?.index;
    for address in &attachment.addresses {
        add_address(pod, index, *address).await.map_err(|source| PodEndError::Address { address: *address, source })?;
    }
    let up = LinkMessageBuilder::<LinkUnspec>::new().index(index).up().build();
    pod.link().set(up).execute().await.map_err(|error| PodEndError::Up(into_io(error)))?;
    for route in &attachment.routes {
        let Route { destination, next_hop, .. } = *route;
        add_route(pod, index, route).await.map_err(|source| PodEndError::Route { destination, next_hop, source })?;
    }
    Ok(())
}

/// Sets `net.ipv6.conf.IF.NAME` to 0 in the namespace of the calling thread. Where the kernel has no IPv6 the file is missing, which
/// matters only to a pod that is to have an IPv6 address.
fn write_ipv6_setting(if_name: &IfName, name: &str, required: bool) -> Result<(), PodEndError> {
    let path = format!("/proc/sys/net/ipv6/conf/{if_name}/{name}");
    match fs::write(&path, "0") {
        Err(source) if required || source.kind() != io::ErrorKind::NotFound => Err(PodEndError::Sysctl { path, source }),
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
