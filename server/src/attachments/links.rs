//! The host's ends of veths, as the kernel tells of them: listed once, then followed.

use std::{collections::HashMap, io};

use cni::{
    dump::messages,
    link::{self, Link, LinkError},
};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage, link::LinkMessage};
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE};
use nix::libc;

/// The veths of the host's namespace, by index.
pub(super) struct Links {
    events: TokioSocket,
    links: HashMap<u32, Link>,
    /// The events told all since the last list.
    is_complete: bool,
}

/// What happened to links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkNews {
    /// These veths are gone; perhaps none.
    Gone(Vec<String>),
    /// Anything may have happened.
    Unknown,
}

impl Links {
    /// Listens from now on. Needs a tokio runtime.
    pub(super) fn listen() -> io::Result<Self> {
        let mut events = TokioSocket::new(NETLINK_ROUTE)?;
        events.socket_mut().bind(&SocketAddr::new(0, 0))?;
        events.socket_mut().add_membership(libc::RTNLGRP_LINK)?;
        Ok(Self { events, links: HashMap::new(), is_complete: false })
    }

    /// Waits for the next event. Cancellation-safe.
    pub(super) async fn next(&mut self) -> LinkNews {
        match self.events.recv_from_full().await {
            Ok((datagram, _)) => self.take(&datagram),
            // The kernel had more to say than there was room for.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.lose(),
            Err(error) => {
                tracing::error!(%error, "the kernel does not tell of links any more: what happens to them is seen late");
                std::future::pending().await
            }
        }
    }

    /// Every veth there is now, from the kernel itself.
    pub(super) async fn list(&mut self) -> Result<&HashMap<u32, Link>, LinkError> {
        let links = link::list().await?;
        self.links = links.into_iter().filter(|link| link.is_veth).map(|link| (link.index, link)).collect();
        self.is_complete = true;
        Ok(&self.links)
    }

    /// Every veth, as far as the kernel has told; from the kernel itself if something may be missing.
    pub(super) async fn known(&mut self) -> Result<&HashMap<u32, Link>, LinkError> {
        if self.is_complete { Ok(&self.links) } else { self.list().await }
    }

    fn take(&mut self, datagram: &[u8]) -> LinkNews {
        let mut gone = Vec::new();
        for message in messages(datagram) {
            let Ok(message) = message else { return self.lose() };
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) if is_link(&link) => {
                    let link = Link::from(&link);
                    if link.is_veth {
                        self.links.insert(link.index, link);
                    }
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) if is_link(&link) => {
                    if let Some(link) = self.links.remove(&link.header.index) {
                        gone.push(link.name);
                    }
                }
                _ => {}
            }
        }
        LinkNews::Gone(gone)
    }

    fn lose(&mut self) -> LinkNews {
        self.is_complete = false;
        LinkNews::Unknown
    }
}

/// Of the link itself, not of its place in a bridge.
fn is_link(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}
