//! The addresses at which other machines reach this host: read from the kernel, without those that
//! OVN gave to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use ipnet::IpNet;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};
use podnet::{link, netlink::Netlink};

use super::management_port::INTERFACE;
use crate::kernel_thread;

/// An address of the host, and the index of its link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostAddress {
    pub(super) link: u32,
    pub(super) address: IpNet,
}

/// All addresses of the host, in the kernel's order, but those of the masquerade subnets: these are
/// between a host and its gateway router, the same on every node.
pub(super) async fn read(masquerade: [IpNet; 2]) -> io::Result<Vec<HostAddress>> {
    let mut all = read_all().await?;
    retain_others(&mut all, masquerade);
    Ok(all)
}

fn retain_others(all: &mut Vec<HostAddress>, masquerade: [IpNet; 2]) {
    all.retain(|host| !masquerade.iter().any(|subnet| subnet.contains(&host.address.addr())));
}

/// The same with those of the masquerade subnets.
pub(super) async fn read_all() -> io::Result<Vec<HostAddress>> {
    kernel_thread::ask(async { listed(&Netlink::open()?) }).await?
}

fn listed(netlink: &Netlink) -> io::Result<Vec<HostAddress>> {
    let links = link::list_by(netlink).map_err(io::Error::other)?;
    let names: BTreeMap<u32, String> =
        links.into_iter().map(|link| (link.index, link.name)).collect();
    // A link that was made after the list was read has no name here; its event reads everything
    // again.
    let of_ovn = |link: u32| names.get(&link).is_some_and(|name| is_of_ovn(name));
    netlink.addresses(|message| host_address(&message).filter(|host| !of_ovn(host.link)))
}

/// The addresses to publish: those of links that lead to other machines, but those of Services, and
/// those in `known`, whatever their link. The loopback interface (BGP's anycast) and a link of kind
/// `dummy` have addresses of Services and of agents of the node (kube-proxy in IPVS mode: one for
/// each Service), and a bridge with nothing but pods leads to no other machine. Each address has a
/// row for each node port, on all nodes: one of a load balancer, which moves from host to host,
/// would have them written anew with each move.
pub(super) fn published(
    all: &[HostAddress],
    internal: &BTreeSet<u32>,
    known: &[IpAddr],
    is_of_service: impl Fn(IpAddr) -> bool,
) -> Vec<IpNet> {
    let is_published = |host: &&HostAddress| {
        let address = host.address.addr();
        known.contains(&address) || !internal.contains(&host.link) && !is_of_service(address)
    };
    all.iter().filter(is_published).map(|host| host.address).collect()
}

/// Indices of links that lead to no other machine.
pub(super) async fn internal_links() -> io::Result<BTreeSet<u32>> {
    let list = async {
        Netlink::open()?.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()), |answer| {
            match answer {
                RouteNetlinkMessage::NewLink(message) => Some(Device::from(&message)),
                _ => None,
            }
        })
    };
    Ok(internal(&kernel_thread::ask(list).await??))
}

/// The properties of a link that decide whether it leads to other machines.
#[derive(Debug, Clone)]
struct Device {
    index: u32,
    kind: Option<InfoKind>,
    is_loopback: bool,
    /// Index of the bridge or bond that it is in.
    controller: Option<u32>,
}

impl From<&LinkMessage> for Device {
    fn from(message: &LinkMessage) -> Self {
        let is_loopback = message.header.flags.contains(LinkFlags::Loopback);
        let mut device =
            Self { index: message.header.index, kind: None, is_loopback, controller: None };
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

/// Indices of the loopback interface, of the dummies, and of the bridges without a port that leads
/// to other machines.
fn internal(devices: &[Device]) -> BTreeSet<u32> {
    // In a bridge: a veth or tap is a pod's or a virtual machine's end, and a dummy gives the
    // bridge its MAC address (`virbr0-nic` of libvirt before 7.0).
    let inside = |device: &&Device| {
        matches!(device.kind, Some(InfoKind::Veth | InfoKind::Tun | InfoKind::Dummy))
    };
    let leads_away = |bridge: u32| {
        devices.iter().any(|device| device.controller == Some(bridge) && !inside(&device))
    };
    let is_internal = |device: &&Device| match device.kind {
        _ if device.is_loopback => true,
        Some(InfoKind::Dummy) => true,
        Some(InfoKind::Bridge) => !leads_away(device.index),
        _ => false,
    };
    devices.iter().filter(is_internal).map(|device| device.index).collect()
}

/// The addresses at which other nodes reach this one, one of each family: the first that is in
/// `known`, or else the first of the link that has such an address.
pub(super) fn primary(all: &[HostAddress], known: &[IpAddr]) -> Vec<IpNet> {
    let Some(link) = known
        .iter()
        .find_map(|ip| all.iter().find(|host| host.address.addr() == *ip))
        .map(|host| host.link)
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
    let find =
        |pick: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(pick);
    let flags = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    // On a point-to-point link `IFA_ADDRESS` is the peer's address, and `IFA_LOCAL` this host's.
    let local =
        find(
            |attribute| {
                if let AddressAttribute::Local(address) = attribute { Some(*address) } else { None }
            },
        );
    let ip =
        local.or_else(|| {
            find(|attribute| {
                if let AddressAttribute::Address(address) = attribute {
                    Some(*address)
                } else {
                    None
                }
            })
        })?;
    let is_passing = flags.is_some_and(|flags| flags.intersects(unusable));
    if message.header.scope != AddressScope::Universe || is_passing || ip.is_loopback() {
        return None;
    }
    Some(HostAddress {
        link: message.header.index,
        address: IpNet::new(ip, message.header.prefix_len).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
    use rtnetlink::AddressMessageBuilder;

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
        let known = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert_eq!(
            texts(&primary(&all, &known(&["172.18.0.3"]))),
            ["172.18.0.3/16", "fc00:f853::3/64"]
        );
        assert_eq!(
            texts(&primary(&all, &known(&["172.18.0.3", "2001:db8::1"]))),
            ["172.18.0.3/16", "2001:db8::1/64"]
        );
        assert_eq!(texts(&primary(&all, &known(&["10.0.0.1"]))), [] as [&str; 0]);
    }

    #[test]
    fn links_of_services_and_of_pods_lead_nowhere() {
        let device =
            |index, kind, controller| Device { index, kind, is_loopback: index == 1, controller };
        let devices = [
            device(1, None, None),
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
            // Of older libvirt.
            device(11, Some(InfoKind::Bridge), None),
            device(12, Some(InfoKind::Dummy), Some(11)),
        ];
        assert_eq!(internal(&devices), [1, 3, 4, 5, 11, 12].into());
    }

    #[test]
    fn addresses_of_services_were_published_and_those_that_the_kubelet_names_are_whatever_their_link()
     {
        let all = [
            host(2, "192.0.2.7/24"),
            host(3, "10.96.0.1/32"),
            host(3, "198.51.100.7/32"),
            host(4, "172.17.0.1/16"),
        ];
        let internal = BTreeSet::from([3, 4]);
        let nothing = |_| false;
        assert_eq!(texts(&published(&all, &internal, &[], nothing)), ["192.0.2.7/24"]);
        let known = ["198.51.100.7".parse().unwrap()];
        assert_eq!(
            texts(&published(&all, &internal, &known, nothing)),
            ["192.0.2.7/24", "198.51.100.7/32"]
        );
    }

    #[test]
    fn an_address_of_a_load_balancer_moved_all_node_ports_with_it() {
        let all = [host(2, "192.0.2.7/24"), host(2, "203.0.113.80/32"), host(2, "203.0.113.81/32")];
        let of_service = |address: IpAddr| address.to_string().starts_with("203.0.113.8");
        let known = ["203.0.113.81".parse().unwrap()];
        let published = published(&all, &BTreeSet::new(), &known, of_service);
        assert_eq!(texts(&published), ["192.0.2.7/24", "203.0.113.81/32"]);
    }

    /// With the subnets of newer upstream (`--gateway-v4-masquerade-subnet 169.254.0.0/17`) a node
    /// that had been upstream's published its masquerade address, which is the same on every node.
    #[test]
    fn a_masquerade_address_outside_of_the_default_subnet_was_published() {
        let read = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let netlink = Netlink::open().unwrap();
                for (address, length) in
                    [("169.254.0.2", 17), ("192.0.2.7", 24), ("169.254.200.1", 24)]
                {
                    let address = address.parse().unwrap();
                    let message =
                        AddressMessageBuilder::<Ipv4Addr>::new().index(1).address(address, length);
                    let message = RouteNetlinkMessage::NewAddress(message.build());
                    netlink.request(message, NLM_F_CREATE | NLM_F_EXCL).unwrap();
                }
                let mut all = listed(&netlink).unwrap();
                retain_others(
                    &mut all,
                    ["169.254.0.0/17", "fd69::/112"].map(|net| net.parse().unwrap()),
                );
                all
            })
        });
        let read: Vec<IpNet> = read.join().unwrap().into_iter().map(|host| host.address).collect();
        assert_eq!(texts(&read), ["192.0.2.7/24", "169.254.200.1/24"]);
    }

    /// The kernel goes on by the number of entries that it has sent: with an address before it
    /// removed, one that stays is left out.
    #[test]
    fn an_address_of_the_host_was_missing_because_another_one_was_removed_while_they_were_read() {
        const ADDRESSES: u32 = 2000;
        let number = |n: u32| Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 9, 0, 1)) + n);
        let message = move |n| {
            AddressMessageBuilder::<Ipv4Addr>::new().index(1).address(number(n), 32).build()
        };
        let read = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let (netlink, other) = (Netlink::open().unwrap(), Netlink::open().unwrap());
            let add = |n| (RouteNetlinkMessage::NewAddress(message(n)), NLM_F_CREATE | NLM_F_EXCL);
            for some in (0..ADDRESSES).collect::<Vec<_>>().chunks(100) {
                other.request_all(some.iter().copied().map(add).collect()).unwrap();
            }
            let mut removed = 0;
            netlink.addresses(|address| {
                if removed < 3 {
                    other.request(RouteNetlinkMessage::DelAddress(message(removed)), 0).unwrap();
                    removed += 1;
                }
                host_address(&address)
            })
        });
        let read: BTreeSet<IpAddr> =
            read.join().unwrap().unwrap().iter().map(|host| host.address.addr()).collect();
        let there: BTreeSet<IpAddr> = (3..ADDRESSES).map(|n| number(n).into()).collect();
        assert_eq!(there.difference(&read).collect::<Vec<_>>(), [] as [&IpAddr; 0]);
        assert_eq!(read, there);
    }

    #[test]
    fn interfaces_of_ovn_are_recognised() {
        assert!(
            is_of_ovn("ovn-k8s-mp0")
                && is_of_ovn("br-int")
                && !is_of_ovn("breth0")
                && !is_of_ovn("eth0")
        );
    }
}
