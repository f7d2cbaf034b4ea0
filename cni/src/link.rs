//! The veth between host and pod: made with its peer already in the pod's namespace, found again, deleted.
//!
//! Creating the peer where it belongs, under its final name, address and MTU, is one message. Creating it on the host and moving it
//! would hold the kernel's link lock over an RCU grace period: 25 times slower, and one pod at a time on the whole node.

use std::io;

use contract::{
    mac::Mac,
    names::{IfName, Network},
};
use futures_util::TryStreamExt;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth};
use tokio::try_join;

use crate::{
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
}

/// A link, as far as anybody here wants to know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
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
    let plain_name = sandbox.host_if_name();
    match network {
        Network::Default => {
            add_pair(host, pod, netns, attachment, &plain_name).await?;
            let mark = LinkMessageBuilder::<LinkUnspec>::new().name(plain_name.to_string()).alias(mark::alias(attachment));
            let ((), end) = try_join!(set(host, mark), host_end(host, plain_name.clone()))?;
            Ok(end)
        }
        // The name says the index of the pod's end, which exists only afterwards.
        Network::Attachment { .. } => {
            let temporary = attachment.identity.temporary_host_name();
            add_pair(host, pod, netns, attachment, &temporary).await?;
            let name = sandbox.host_if_name_with(existing(pod, if_name).await?.index);
            let link = || LinkMessageBuilder::<LinkUnspec>::new();
            let index = existing(host, &temporary).await?.index;
            // The kernel renames only links that are down.
            set(host, link().index(index).down()).await?;
            set(host, link().index(index).name(name.to_string()).alias(mark::alias(attachment)).up()).await?;
            host_end(host, name).await
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

/// Every link of the namespace that the connection belongs to.
pub async fn list(netlink: &Handle) -> Result<Vec<Link>, LinkError> {
    let links: Result<Vec<LinkMessage>, _> = netlink.link().get().execute().try_collect().await;
    match links {
        Ok(links) => Ok(links.iter().map(Link::from).collect()),
        Err(error) => Err(LinkError::Kernel { what: "list links".to_owned(), source: into_io(error) }),
    }
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

async fn add_pair(host: &Handle, pod: &Handle, netns: &Netns, attachment: &Attachment, name: &IfName) -> Result<(), LinkError> {
    let if_name = &attachment.identity.if_name;
    let mtu = attachment.mtu.bytes();
    // The peer stays down: the kernel refuses a peer that is up before the pair is complete (ENOTCONN).
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(if_name.to_string())
        .mtu(mtu)
        .address(attachment.mac.octets().to_vec())
        .setns_by_fd(netns.raw_fd())
        .build();
    let pair = LinkVeth::new(name.as_str(), if_name.as_str()).mtu(mtu).up().set_info_data(InfoData::Veth(InfoVeth::Peer(peer)));

    let Err(error) = host.link().add(pair.build()).execute().await.map_err(into_io) else {
        return Ok(());
    };
    match error.raw_os_error() {
        // Both ends answer alike; the pod's is the likelier one to be somebody else's.
        Some(nix::libc::EEXIST) if find(pod, if_name.as_str()).await?.is_some() => Err(LinkError::PodNameTaken(if_name.clone())),
        Some(nix::libc::EEXIST) => Err(LinkError::HostNameTaken(name.clone())),
        Some(nix::libc::EINVAL) if !netns.path().exists() => Err(LinkError::NamespaceGone),
        _ => Err(LinkError::Create { host: name.clone(), pod: if_name.clone(), source: error }),
    }
}

async fn existing(netlink: &Handle, name: &IfName) -> Result<Link, LinkError> {
    find(netlink, name.as_str()).await?.ok_or_else(|| LinkError::Vanished(name.to_string()))
}

async fn host_end(host: &Handle, name: IfName) -> Result<HostEnd, LinkError> {
    let link = existing(host, &name).await?;
    let mac = link.mac.ok_or_else(|| LinkError::NoMac(name.to_string()))?;
    Ok(HostEnd { name, mac, index: link.index })
}

async fn set(netlink: &Handle, link: LinkMessageBuilder<LinkUnspec>) -> Result<(), LinkError> {
    let set = netlink.link().set(link.build()).execute().await;
    set.map_err(|error| LinkError::Kernel { what: "change a link".to_owned(), source: into_io(error) })
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
