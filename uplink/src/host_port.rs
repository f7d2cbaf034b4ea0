//! The host's own address on a link that Open vSwitch made, and its routes over it; and a link that
//! loses its addresses, because a bridge has it.

use std::{io, net::Ipv4Addr};

use contract::{mac::Mac, names::IfName};
use ipnet::{IpNet, Ipv4Net};
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressMessage},
};
use podnet::{link::into_io, netns::host_netlink, offload::turn_tx_checksum_off};
use rtnetlink::RouteMessageBuilder;

use crate::{BridgeError, ip_config::IpConfig, nic::Nic};

/// What the host has on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    pub link: String,
    /// The only IPv4 address of the link.
    pub address: Ipv4Net,
    /// Networks that are reached over the link.
    pub routes: Vec<Ipv4Net>,
    /// The next hop of these routes.
    pub via: Ipv4Addr,
    /// Whether the link's datapath is in user space, which computes no checksums for the host.
    pub is_userspace: bool,
}

/// Why the host did not get its address or routes.
#[derive(Debug, thiserror::Error)]
#[error("{link}: {what}")]
pub struct HostPortError {
    link: String,
    what: String,
    #[source]
    error: Option<io::Error>,
}

fn failed(link: &str, what: impl Into<String>) -> impl FnOnce(io::Error) -> HostPortError {
    let (link, what) = (link.to_owned(), what.into());
    move |error| HostPortError { link, what, error: Some(error) }
}

/// Brings the link up, and gives it the address and the routes. What is as it should be stays.
/// Needs a tokio runtime.
///
/// # Errors
/// There is no such link, or the kernel refuses.
pub async fn assign(port: &HostPort) -> Result<(), HostPortError> {
    let HostPort { link, address, routes, via, is_userspace } = port;
    let netlink = host_netlink().map_err(failed(link, "the kernel's links"))?;
    let nic = existing(link).await?;
    if *is_userspace {
        let name: IfName = link.parse().map_err(|error| {
            failed(link, "its name")(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{error}"),
            ))
        })?;
        turn_tx_checksum_off(&name).map_err(failed(link, "turn transmit checksums off"))?;
    }
    nic.set_up(&netlink).await.map_err(failed(link, "bring it up"))?;
    let has = remove_others(&nic, Some(*address)).await?;
    if !has {
        let request = netlink.address().add(nic.index, address.addr().into(), address.prefix_len());
        let what = format!("add the address {address}");
        request.execute().await.map_err(into_io).map_err(failed(link, what))?;
    }
    for to in routes {
        let what = format!("add the route to {to} via {via}");
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .output_interface(nic.index)
            .destination_prefix(to.network(), to.prefix_len())
            .gateway(*via)
            .build();
        let request = netlink.route().add(route).replace().execute().await;
        request.map_err(into_io).map_err(failed(link, what))?;
    }
    Ok(())
}

/// Removes all IPv4 addresses of the link. Needs a tokio runtime.
///
/// # Errors
/// There is no such link, or the kernel refuses.
pub async fn flush(link: &str) -> Result<(), HostPortError> {
    remove_others(&existing(link).await?, None).await.map(drop)
}

/// The MAC address of a link. Needs a tokio runtime.
///
/// # Errors
/// There is no such link, or it has none.
pub async fn mac_of(link: &str) -> Result<Mac, HostPortError> {
    let nic = existing(link).await?;
    nic.mac.parse().map_err(|_| HostPortError {
        link: link.to_owned(),
        what: "it has no MAC address".to_owned(),
        error: None,
    })
}

async fn existing(link: &str) -> Result<Nic, HostPortError> {
    let netlink = host_netlink().map_err(failed(link, "the kernel's links"))?;
    Nic::existing(&netlink, link).await.map_err(|error| of_bridge(link, &error))
}

fn of_bridge(link: &str, error: &BridgeError) -> HostPortError {
    HostPortError { link: link.to_owned(), what: contract::error::chain(error), error: None }
}

/// Removes the link's IPv4 addresses but this one. Returns whether the link has it.
async fn remove_others(nic: &Nic, keep: Option<Ipv4Net>) -> Result<bool, HostPortError> {
    let netlink = host_netlink().map_err(failed(&nic.name, "the kernel's links"))?;
    let all = IpConfig::of(nic).map_err(|error| of_bridge(&nic.name, &error))?.addresses;
    let mut has = false;
    for message in all.into_iter().filter(|message| message.header.family == AddressFamily::Inet) {
        if keep.is_some_and(|keep| of(&message) == Some(keep.into())) {
            has = true;
            continue;
        }
        let request = netlink.address().del(message).execute().await;
        request.map_err(into_io).map_err(failed(&nic.name, "remove its addresses"))?;
    }
    Ok(has)
}

fn of(message: &AddressMessage) -> Option<IpNet> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    })?;
    IpNet::new(address, message.header.prefix_len).ok()
}
