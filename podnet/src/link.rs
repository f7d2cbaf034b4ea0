//! The veth between host and pod: created with its peer already in the pod's namespace, found
//! again, deleted.
//!
//! Creating the peer where it belongs, under its final name, address and MTU, is one message.
//! Creating it on the host and moving it would hold the kernel's link lock over an RCU grace
//! period: 25 times slower, and one pod at a time on the whole node.

use std::io;

use contract::{
    mac::Mac,
    names::{IfName, Network},
};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{
        AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
        LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
    },
};
use netlink_sys::protocols::NETLINK_ROUTE;
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth};

use crate::{
    netlink::{
        Netlink, NetlinkError,
        dump::{MOST_TRIES, dump, is_torn, torn},
    },
    netns::Netns,
    ownership_tag,
    plan::{Attachment, Identity},
};

/// The host's end of a pod's veth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEnd {
    pub name: IfName,
    pub mac: Mac,
    pub index: u32,
    /// Index of the pod's end, in the pod's namespace.
    pub pod_index: u32,
}

/// The attributes of a link that this project uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    /// Index of the other end of a veth, in the namespace of that end.
    pub peer_index: Option<u32>,
    pub name: String,
    pub mac: Option<Mac>,
    /// Bytes.
    pub mtu: u32,
    /// Empty if the link has none.
    pub alias: String,
    pub up: bool,
    /// The other end is up, too.
    pub has_carrier: bool,
    pub is_veth: bool,
    /// Index of the device that this one is a port of: a bridge, or a datapath of Open vSwitch in
    /// the kernel.
    pub controller: Option<u32>,
}

/// Why a link cannot be created, found, changed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the host already has a link {0}")]
    HostNameTaken(IfName),
    #[error("the pod already has a link {0}")]
    PodNameTaken(IfName),
    #[error("the pod's namespace is gone")]
    NamespaceGone,
    #[error("link {0} vanished")]
    Vanished(String),
    #[error("link {0} has no Ethernet address")]
    NoMac(String),
    #[error("create the veth {host} with {pod} in the pod")]
    Create { host: IfName, pod: IfName, source: io::Error },
    #[error("{what}")]
    Kernel { what: String, source: io::Error },
}

impl LinkError {
    /// Whether the creation of a veth that ended like this has created nothing: what exists has
    /// another owner.
    pub fn made_nothing(&self) -> bool {
        match self {
            Self::HostNameTaken(_)
            | Self::PodNameTaken(_)
            | Self::NamespaceGone
            | Self::Create { .. } => true,
            Self::Vanished(_) | Self::NoMac(_) | Self::Kernel { .. } => false,
        }
    }
}

/// Creates the veth: the host's end up and with the ownership tag in its alias, the pod's end under
/// its final name.
///
/// # Errors
/// A name is taken, the namespace is gone, or the kernel refuses. [`LinkError::made_nothing`] tells
/// whether a veth was left behind.
pub fn create(
    host: &Netlink,
    pod: &Netlink,
    netns: &Netns,
    attachment: &Attachment,
) -> Result<HostEnd, LinkError> {
    let Identity { sandbox, if_name, network } = &attachment.identity;
    match network {
        Network::Default => {
            let name = sandbox.host_if_name();
            let link = add_pair(host, pod, netns, attachment, &name, LinkState::Up)?;
            // A plugin that dies before this leaves a link without an alias, which DEL finds by its
            // name.
            mark(host, attachment, LinkMessageBuilder::<LinkUnspec>::new().index(link.index))?;
            host_end(pod, if_name, name, &link)
        }
        // The name contains the index of the pod's end, which exists only afterwards. The kernel
        // renames only links that are down.
        Network::Attachment { .. } => {
            let temporary = attachment.identity.temporary_host_name();
            let link = add_pair(host, pod, netns, attachment, &temporary, LinkState::Down)?;
            let end = host_end(pod, if_name, temporary, &link)?;
            let name = sandbox.host_if_name_with(end.pod_index);
            mark(
                host,
                attachment,
                LinkMessageBuilder::<LinkUnspec>::new()
                    .index(link.index)
                    .name(name.to_string())
                    .up(),
            )?;
            Ok(HostEnd { name, ..end })
        }
    }
}

/// The link `name`; `None` if there is none.
///
/// # Errors
/// The kernel refuses, or its answer is lost.
pub fn find(netlink: &Netlink, name: &str) -> Result<Option<Link>, LinkError> {
    let asked = LinkMessageBuilder::<LinkUnspec>::new().name(name.to_owned()).build();
    match netlink.request(RouteNetlinkMessage::GetLink(asked), 0) {
        Ok(Some(RouteNetlinkMessage::NewLink(message))) => Ok(Some(Link::from(&message))),
        Ok(_) => Ok(None),
        Err(missing) if missing.errno() == Some(nix::libc::ENODEV) => Ok(None),
        Err(error) => {
            Err(LinkError::Kernel { what: format!("look for link {name}"), source: error.into() })
        }
    }
}

/// Every link of the host's namespace. Needs a tokio runtime.
///
/// # Errors
/// The kernel refuses, or the list changed during each attempt.
pub async fn list() -> Result<Vec<Link>, LinkError> {
    for tries_left in (0..MOST_TRIES).rev() {
        let mut links = Vec::new();
        match dump(NETLINK_ROUTE, all(), |answer| links.extend(listed(&answer))).await {
            Ok(()) => return Ok(links),
            Err(error) if is_torn(&error) && tries_left > 0 => {}
            Err(error) => return Err(unlisted(error)),
        }
    }
    Err(unlisted(torn()))
}

/// [`list`] without a runtime. Blocks while another program holds the kernel's link lock.
///
/// # Errors
/// As [`list`]; or the kernel's answer is lost.
pub fn list_by(netlink: &Netlink) -> Result<Vec<Link>, LinkError> {
    netlink.dump(&all(), |answer| listed(&answer)).map_err(unlisted)
}

/// The request for every link, without its counters, which nothing here reads.
fn all() -> RouteNetlinkMessage {
    let mut all = LinkMessage::default();
    all.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    RouteNetlinkMessage::GetLink(all)
}

fn listed(answer: &RouteNetlinkMessage) -> Option<Link> {
    if let RouteNetlinkMessage::NewLink(link) = answer { Some(Link::from(link)) } else { None }
}

fn unlisted(source: io::Error) -> LinkError {
    LinkError::Kernel { what: "list links".to_owned(), source }
}

/// Deletes a link, and with it its peer. A link that is already gone is no error.
///
/// # Errors
/// The kernel refuses, or its answer is lost.
pub fn delete(host: &Netlink, link: &Link) -> Result<(), LinkError> {
    let unwanted = LinkMessageBuilder::<LinkUnspec>::new().index(link.index).build();
    match host.request(RouteNetlinkMessage::DelLink(unwanted), 0) {
        Err(error) if error.errno() != Some(nix::libc::ENODEV) => Err(LinkError::Kernel {
            what: format!("delete link {}", link.name),
            source: error.into(),
        }),
        _ => Ok(()),
    }
}

/// The operating system's error in a netlink error.
pub fn into_io(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}

/// The state in which the host's end is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Up,
    Down,
}

/// Creates the veth, and returns the host's end as it is then.
fn add_pair(
    host: &Netlink,
    pod: &Netlink,
    netns: &Netns,
    attachment: &Attachment,
    name: &IfName,
    state: LinkState,
) -> Result<Link, LinkError> {
    let if_name = &attachment.identity.if_name;
    let mtu = attachment.mtu.bytes();
    // The peer stays down: the kernel refuses a peer that is up before the pair is complete
    // (ENOTCONN).
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(if_name.to_string())
        .mtu(mtu)
        .address(attachment.mac.octets().to_vec())
        .setns_by_fd(netns.raw_fd())
        .build();
    // An explicit address is left alone by udev (systemd.link(5), MACAddressPolicy=persistent),
    // which would change one of the kernel's choice after the result was printed.
    let pair = LinkVeth::new(name.as_str(), if_name.as_str())
        .mtu(mtu)
        .address(attachment.identity.host_mac().octets().to_vec())
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)));
    let pair = if state == LinkState::Up { pair.up() } else { pair };

    let error = match add(host, pair.build()) {
        Ok(Some(link)) => return Ok(link),
        // A kernel before Linux 6.2 does not describe the link that it has created.
        Ok(None) => return existing(host, name),
        Err(error) => error,
    };
    match error.errno() {
        // The error is the same for either end. The pod's end is more likely to be taken: another
        // program may have created a link there.
        Some(nix::libc::EEXIST) if find(pod, if_name.as_str())?.is_some() => {
            Err(LinkError::PodNameTaken(if_name.clone()))
        }
        Some(nix::libc::EEXIST) => Err(LinkError::HostNameTaken(name.clone())),
        Some(nix::libc::EINVAL) if !netns.path().exists() => Err(LinkError::NamespaceGone),
        _ => Err(match error {
            NetlinkError::Refused(source) => {
                LinkError::Create { host: name.clone(), pod: if_name.clone(), source }
            }
            lost @ NetlinkError::Lost(_) => {
                LinkError::Kernel { what: format!("create the veth {name}"), source: lost.into() }
            }
        }),
    }
}

/// Creates a link, and asks the kernel to describe it in its answer, which saves the requests for
/// its address and its peer.
fn add(netlink: &Netlink, link: LinkMessage) -> Result<Option<Link>, NetlinkError> {
    let made = netlink
        .request(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO)?;
    Ok(made.and_then(|made| {
        if let RouteNetlinkMessage::NewLink(link) = made { Some(Link::from(&link)) } else { None }
    }))
}

/// Writes the ownership tag onto the host's end, and keeps IPv6 from giving it an address. Nothing
/// uses that address, and routes and addresses that come and go with each pod would make
/// ovs-vswitchd read all links and routes of the node again.
fn mark(
    host: &Netlink,
    attachment: &Attachment,
    change: LinkMessageBuilder<LinkUnspec>,
) -> Result<(), LinkError> {
    let message = change.alias(ownership_tag::alias(attachment)).build();
    let no_address = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    let mut whole = message.clone();
    whole.attributes.push(LinkAttribute::AfSpecUnspec(vec![no_address]));
    match host.request(RouteNetlinkMessage::SetLink(whole), 0) {
        // A kernel or a link without IPv6.
        Err(error) if error.errno() == Some(nix::libc::EAFNOSUPPORT) => {
            host.request(RouteNetlinkMessage::SetLink(message), 0)
        }
        outcome => outcome,
    }
    .map(drop)
    .map_err(|error| LinkError::Kernel { what: "change a link".to_owned(), source: error.into() })
}

fn existing(netlink: &Netlink, name: &IfName) -> Result<Link, LinkError> {
    find(netlink, name.as_str())?.ok_or_else(|| LinkError::Vanished(name.to_string()))
}

fn host_end(
    pod: &Netlink,
    if_name: &IfName,
    name: IfName,
    link: &Link,
) -> Result<HostEnd, LinkError> {
    let mac = link.mac.ok_or_else(|| LinkError::NoMac(name.to_string()))?;
    let pod_index = match link.peer_index {
        Some(index) => index,
        None => existing(pod, if_name)?.index,
    };
    Ok(HostEnd { name, mac, index: link.index, pod_index })
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Self {
        let has = |flag| message.header.flags.contains(flag);
        let mut link = Self {
            index: message.header.index,
            up: has(LinkFlags::Up),
            has_carrier: has(LinkFlags::LowerUp),
            ..Self::default()
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::IfAlias(alias) => link.alias.clone_from(alias),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Controller(index) => {
                    link.controller = Some(*index).filter(|index| *index > 0)
                }
                // Of a veth, this is the index of its peer.
                LinkAttribute::Link(index) => {
                    link.peer_index = Some(*index).filter(|index| *index > 0)
                }
                LinkAttribute::Address(octets) => {
                    link.mac = <[u8; 6]>::try_from(octets.as_slice())
                        .ok()
                        .and_then(|octets| octets.try_into().ok());
                }
                LinkAttribute::LinkInfo(infos) => {
                    link.is_veth =
                        infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Veth)));
                }
                _ => {}
            }
        }
        link
    }
}
