//! The veth between host and pod: made with its peer already in the pod's namespace, found again, deleted.
//!
//! Creating the peer where it belongs, under its final name, address and MTU, is one message. Creating it on the host and moving it
//! would hold the kernel's link lock over an RCU grace period: 25 times slower, and one pod at a time on the whole node.

use std::io;

use contract::{
    mac::Mac,
    names::{IfName, Network},
};
use futures_util::{StreamExt, TryStreamExt};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{
        AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo,
        LinkMessage,
    },
};
use netlink_sys::protocols::NETLINK_ROUTE;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth};

use crate::{
    dump::dump,
    mark,
    netns::Netns,
    plan::{Attachment, Identity},
};

/// The host's end of a pod's veth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEnd {
    pub name: IfName,
    pub mac: Mac,
    pub index: u32,
    /// Of the pod's end, in the pod's namespace.
    pub pod_index: u32,
}

/// A link, as far as anybody here wants to know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    /// Of a veth: the index of its other end, in the namespace where that is.
    pub peer_index: Option<u32>,
    pub name: String,
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub alias: String,
    pub up: bool,
    /// The other end is up, too.
    pub has_carrier: bool,
    pub is_veth: bool,
}

/// What the kernel refused.
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
    /// Whether the creation of a veth that ended like this has made nothing: what is there belongs to somebody else.
    pub fn made_nothing(&self) -> bool {
        match self {
            Self::HostNameTaken(_) | Self::PodNameTaken(_) | Self::NamespaceGone | Self::Create { .. } => true,
            Self::Vanished(_) | Self::NoMac(_) | Self::Kernel { .. } => false,
        }
    }
}

/// Creates the veth: the host's end up and marked with its owner, the pod's end under its final name.
pub async fn create(host: &Handle, pod: &Handle, netns: &Netns, attachment: &Attachment) -> Result<HostEnd, LinkError> {
    let Identity { sandbox, if_name, network } = &attachment.identity;
    match network {
        Network::Default => {
            let name = sandbox.host_if_name();
            let link = add_pair(host, pod, netns, attachment, &name, LinkState::Up).await?;
            mark(host, attachment, LinkMessageBuilder::<LinkUnspec>::new().index(link.index)).await?;
            host_end(pod, if_name, name, &link).await
        }
        // The name says the index of the pod's end, which exists only afterwards. The kernel renames only links that are down.
        Network::Attachment { .. } => {
            let temporary = attachment.identity.temporary_host_name();
            let link = add_pair(host, pod, netns, attachment, &temporary, LinkState::Down).await?;
            let end = host_end(pod, if_name, temporary, &link).await?;
            let name = sandbox.host_if_name_with(end.pod_index);
            mark(host, attachment, LinkMessageBuilder::<LinkUnspec>::new().index(link.index).name(name.to_string()).up()).await?;
            Ok(HostEnd { name, ..end })
        }
    }
}

/// The link `name`; none if there is none.
pub async fn find(netlink: &Handle, name: &str) -> Result<Option<Link>, LinkError> {
    let found = netlink.link().get().match_name(name.to_owned()).execute().try_next().await;
    match found {
        Ok(message) => Ok(message.map(|message| Link::from(&message))),
        Err(error) => match into_io(error) {
            missing if missing.raw_os_error() == Some(nix::libc::ENODEV) => Ok(None),
            source => Err(LinkError::Kernel { what: format!("look for link {name}"), source }),
        },
    }
}

/// Every link of the host's namespace. Needs a tokio runtime.
pub async fn list() -> Result<Vec<Link>, LinkError> {
    let mut all = LinkMessage::default();
    all.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let mut links = Vec::new();
    let dumped = dump(NETLINK_ROUTE, RouteNetlinkMessage::GetLink(all), |answer| {
        if let RouteNetlinkMessage::NewLink(link) = answer {
            links.push(Link::from(&link));
        }
    });
    dumped.await.map_err(|source| LinkError::Kernel { what: "list links".to_owned(), source })?;
    Ok(links)
}

/// Deletes a link, and with it its peer. One that is gone already is no error.
pub async fn delete(host: &Handle, link: &Link) -> Result<(), LinkError> {
    match host.link().del(link.index).execute().await.map_err(into_io) {
        Err(error) if error.raw_os_error() != Some(nix::libc::ENODEV) => {
            Err(LinkError::Kernel { what: format!("delete link {}", link.name), source: error })
        }
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

/// How the host's end begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Up,
    Down,
}

/// Creates the veth; its host's end, as it is then.
async fn add_pair(
    host: &Handle,
    pod: &Handle,
    netns: &Netns,
    attachment: &Attachment,
    name: &IfName,
    state: LinkState,
) -> Result<Link, LinkError> {
    let if_name = &attachment.identity.if_name;
    let mtu = attachment.mtu.bytes();
    // The peer stays down: the kernel refuses a peer that is up before the pair is complete (ENOTCONN).
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(if_name.to_string())
        .mtu(mtu)
        .address(attachment.mac.octets().to_vec())
        .setns_by_fd(netns.raw_fd())
        .build();
    let pair = LinkVeth::new(name.as_str(), if_name.as_str()).mtu(mtu).set_info_data(InfoData::Veth(InfoVeth::Peer(peer)));
    let pair = if state == LinkState::Up { pair.up() } else { pair };

    let error = match add(host, pair.build()).await {
        Ok(Some(link)) => return Ok(link),
        // A kernel before Linux 6.2 does not say what it has made.
        Ok(None) => return existing(host, name).await,
        Err(error) => error,
    };
    match error.raw_os_error() {
        // Both ends answer alike; the pod's is the likelier one to be somebody else's.
        Some(nix::libc::EEXIST) if find(pod, if_name.as_str()).await?.is_some() => Err(LinkError::PodNameTaken(if_name.clone())),
        Some(nix::libc::EEXIST) => Err(LinkError::HostNameTaken(name.clone())),
        Some(nix::libc::EINVAL) if !netns.path().exists() => Err(LinkError::NamespaceGone),
        _ => Err(LinkError::Create { host: name.clone(), pod: if_name.clone(), source: error }),
    }
}

/// Creates a link, and asks the kernel to describe it in its answer, which spares the questions for its address and its peer.
async fn add(netlink: &Handle, link: LinkMessage) -> io::Result<Option<Link>> {
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO;
    let mut answers = netlink.clone().request(message).map_err(into_io)?;
    let mut made = None;
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => made = Some(Link::from(&link)),
            _ => {}
        }
    }
    Ok(made)
}

/// Writes onto the host's end whose it is, and keeps IPv6 from giving it an address: nobody talks to this end, and the routes and
/// addresses that come and go with each pod would make ovs-vswitchd read all links and routes of the node again.
async fn mark(host: &Handle, attachment: &Attachment, change: LinkMessageBuilder<LinkUnspec>) -> Result<(), LinkError> {
    let message = change.alias(mark::alias(attachment)).build();
    let no_address = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    let mut whole = message.clone();
    whole.attributes.push(LinkAttribute::AfSpecUnspec(vec![no_address]));
    match host.link().set(whole).execute().await.map_err(into_io) {
        // A kernel or a link without IPv6.
        Err(error) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => set(host, message).await,
        Err(source) => Err(cannot_change(source)),
        Ok(()) => Ok(()),
    }
}

async fn existing(netlink: &Handle, name: &IfName) -> Result<Link, LinkError> {
    find(netlink, name.as_str()).await?.ok_or_else(|| LinkError::Vanished(name.to_string()))
}

async fn host_end(pod: &Handle, if_name: &IfName, name: IfName, link: &Link) -> Result<HostEnd, LinkError> {
    let mac = link.mac.ok_or_else(|| LinkError::NoMac(name.to_string()))?;
    let pod_index = match link.peer_index {
        Some(index) => index,
        None => existing(pod, if_name).await?.index,
    };
    Ok(HostEnd { name, mac, index: link.index, pod_index })
}

async fn set(netlink: &Handle, link: LinkMessage) -> Result<(), LinkError> {
    netlink.link().set(link).execute().await.map_err(|error| cannot_change(into_io(error)))
}

fn cannot_change(source: io::Error) -> LinkError {
    LinkError::Kernel { what: "change a link".to_owned(), source }
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Self {
        let has = |flag| message.header.flags.contains(flag);
        let mut link =
            Self { index: message.header.index, up: has(LinkFlags::Up), has_carrier: has(LinkFlags::LowerUp), ..Self::default() };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::IfAlias(alias) => link.alias.clone_from(alias),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Link(index) => link.peer_index = Some(*index).filter(|index| *index > 0),
                LinkAttribute::Address(octets) => {
                    link.mac = <[u8; 6]>::try_from(octets.as_slice()).ok().and_then(|octets| octets.try_into().ok());
                }
                LinkAttribute::LinkInfo(infos) => {
                    link.is_veth = infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Veth)));
                }
                _ => {}
            }
        }
        link
    }
}
