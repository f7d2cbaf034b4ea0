//! The addresses at which other machines reach this host: read from the kernel, without those that OVN gave
//! to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures_util::TryStreamExt;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_route::{
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage},
};
use podnet::{link::into_io, netns::host_netlink};

use super::management_port::INTERFACE;
use crate::kernel_thread;

/// The addresses between a host and its gateway router (the default of `--gateway-v4-masquerade-subnet`).
/// They are the same on every node.
const MASQUERADE: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 169, 0), 29);
/// The same of IPv6 (`--gateway-v6-masquerade-subnet`).
const MASQUERADE_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd69, 0, 0, 0, 0, 0, 0, 0), 125);

/// An address of the host, and the index of its link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostAddress {
    pub(super) link: u32,
    pub(super) address: IpNet,
}

/// All addresses of the host, in the kernel's order.
pub(super) async fn read() -> io::Result<Vec<HostAddress>> {
    kernel_thread::ask(listed()).await?
}

async fn listed() -> io::Result<Vec<HostAddress>> {
    let netlink = host_netlink()?;
    let links = podnet::link::list().await.map_err(io::Error::other)?;
    let names: BTreeMap<u32, String> = links.into_iter().map(|link| (link.index, link.name)).collect();
    let messages: Vec<AddressMessage> =
        netlink.address().get().execute().try_collect().await.map_err(into_io)?;
    // A link that was made after the list was read has no name here; its event reads everything again.
    let of_ovn = |link: u32| names.get(&link).is_some_and(|name| is_of_ovn(name));
    Ok(messages.iter().filter(|message| !of_ovn(message.header.index)).filter_map(host_address).collect())
}

/// The addresses to publish: those of links that lead to other machines, and those in `known`, whatever their
/// link. A link of kind `dummy` has addresses of Services and of agents of the node (kube-proxy in IPVS mode:
/// one for each Service), and a bridge with nothing but pods leads to no other machine.
pub(super) fn published(all: &[HostAddress], internal: &BTreeSet<u32>, known: &[IpAddr]) -> Vec<IpNet> {
    let is_published =
        |host: &&HostAddress| known.contains(&host.address.addr()) || !internal.contains(&host.link);
    all.iter().filter(is_published).map(|host| host.address).collect()
}

/// Indices of links that lead to no other machine.
pub(super) async fn internal_links() -> io::Result<BTreeSet<u32>> {
    let list = async { host_netlink()?.link().get().execute().try_collect().await.map_err(into_io) };
    let links: Vec<LinkMessage> = kernel_thread::ask(list).await??;
    Ok(internal(&links.iter().map(Device::from).collect::<Vec<_>>()))
}

/// The properties of a link that decide whether it leads to other machines.
#[derive(Debug, Clone)]
struct Device {
    index: u32,
    kind: Option<InfoKind>,
    /// Index of the bridge or bond that it is in.
    controller: Option<u32>,
}

impl From<&LinkMessage> for Device {
    fn from(message: &LinkMessage) -> Self {
        let mut device = Self { index: message.header.index, kind: None, controller: None };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Controller(index) => device.controller = Some(*index),
                LinkAttribute::LinkInfo(infos) => {
                    device.kind = infos.iter().find_map(|info| {
                        if let LinkInfo::Kind(kind) = info { Some(kind.clone()) } else { None }
                    });
                }
                _ => {}
            }
        }
        device
    }
}

/// Indices of the dummies, and of the bridges without a port that leads to other machines.
fn internal(devices: &[Device]) -> BTreeSet<u32> {
    // In a bridge: a veth or tap is a pod's or a virtual machine's end.
    let of_pods = |device: &&Device| matches!(device.kind, Some(InfoKind::Veth | InfoKind::Tun));
    let leads_away =
        |bridge: u32| devices.iter().any(|device| device.controller == Some(bridge) && !of_pods(&device));
    let is_internal = |device: &&Device| match device.kind {
        Some(InfoKind::Dummy) => true,
        Some(InfoKind::Bridge) => !leads_away(device.index),
        _ => false,
    };
    devices.iter().filter(is_internal).map(|device| device.index).collect()
}

/// The addresses at which other nodes reach this one, one of each family: the first that is in `known`, or
/// else the first of the link that has such an address.
pub(super) fn primary(all: &[HostAddress], known: &[IpAddr]) -> Vec<IpNet> {
    let Some(link) =
        known.iter().find_map(|ip| all.iter().find(|host| host.address.addr() == *ip)).map(|host| host.link)
    else {
        return Vec::new();
    };
    let of_family = |is_v4: bool| {
        let mut same = all.iter().filter(|host| host.address.addr().is_ipv4() == is_v4);
        let named = same.clone().find(|host| known.contains(&host.address.addr()));
        named.or_else(|| same.find(|host| host.link == link)).map(|host| host.address)
    };
    [true, false].into_iter().filter_map(of_family).collect()
}

/// Whether the link of this name belongs to OVN.
fn is_of_ovn(name: &str) -> bool {
    name.starts_with(INTERFACE) || name == "br-int"
}

/// The address of a message. `None` if it is not usable, or not for other machines.
fn host_address(message: &AddressMessage) -> Option<HostAddress> {
    // Not usable before duplicate address detection is over, nor after it has failed.
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed;
    let find = |pick: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(pick);
    let flags = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    // On a point-to-point link `IFA_ADDRESS` is the peer's address, and `IFA_LOCAL` this host's.
    let local = find(
        |attribute| if let AddressAttribute::Local(address) = attribute { Some(*address) } else { None },
    );
    let ip = local.or_else(|| {
        find(
            |attribute| {
                if let AddressAttribute::Address(address) = attribute { Some(*address) } else { None }
            },
        )
    })?;
    let is_passing = flags.is_some_and(|flags| flags.intersects(unusable));
    let is_masquerade = match ip {
        IpAddr::V4(v4) => MASQUERADE.contains(&v4),
        IpAddr::V6(v6) => MASQUERADE_V6.contains(&v6),
    };
    let is_internal = is_masquerade || ip.is_loopback();
    if message.header.scope != AddressScope::Universe || is_passing || is_internal {
        return None;
    }
    Some(HostAddress { link: message.header.index, address: IpNet::new(ip, message.header.prefix_len).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(link: u32, address: &str) -> HostAddress {
        HostAddress { link, address: address.parse().unwrap() }
    }

    fn texts(addresses: &[IpNet]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_primary_addresses_are_those_that_are_known_and_their_links() {
        let all = [
            host(2, "192.0.2.9/24"),
            host(3, "172.18.0.3/16"),
            host(3, "fc00:f853::3/64"),
            host(2, "2001:db8::1/64"),
        ];
        let known =
            |texts: &[&str]| -> Vec<IpAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        assert_eq!(texts(&primary(&all, &known(&["172.18.0.3"]))), ["172.18.0.3/16", "fc00:f853::3/64"]);
        assert_eq!(
            texts(&primary(&all, &known(&["172.18.0.3", "2001:db8::1"]))),
            ["172.18.0.3/16", "2001:db8::1/64"]
        );
        assert_eq!(texts(&primary(&all, &known(&["10.0.0.1"]))), [] as [&str; 0]);
    }

    #[test]
    fn links_of_services_and_of_pods_lead_nowhere() {
        let device = |index, kind, controller| Device { index, kind, controller };
        let devices = [
            device(2, None, None),
            device(3, Some(InfoKind::Dummy), None),
            // Bridges: an empty one, one with a pod, one with a pod and a NIC.
            device(4, Some(InfoKind::Bridge), None),
            device(5, Some(InfoKind::Bridge), None),
            device(6, Some(InfoKind::Veth), Some(5)),
            device(7, Some(InfoKind::Bridge), None),
            device(8, Some(InfoKind::Veth), Some(7)),
            device(9, None, Some(7)),
            // A node that is a container has a veth as its NIC.
            device(10, Some(InfoKind::Veth), None),
        ];
        assert_eq!(internal(&devices), [3, 4, 5].into());
    }

    #[test]
    fn interfaces_of_ovn_are_recognised() {
        assert!(
            is_of_ovn("ovn-k8s-mp0") && is_of_ovn("br-int") && !is_of_ovn("breth0") && !is_of_ovn("eth0")
        );
    }
}
