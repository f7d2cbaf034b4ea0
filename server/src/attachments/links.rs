//! The host's links as rtnetlink reports them: listed once, then followed. Of links other than
//! veths only the names.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage, link::LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc;
use podnet::{
    link::Link,
    netlink::{
        dump::messages,
        listen::{Heard, Listener},
    },
};

/// The links of the host's network namespace, by index.
pub(super) struct Links {
    events: Listener,
    known: Arc<KnownLinks>,
    /// No event was lost since the last list was begun.
    is_complete: bool,
    /// The events that came while a list was made, which may be newer than the list; `None`: no
    /// list is being made.
    meanwhile: Option<Vec<Told>>,
}

/// One event.
#[derive(Debug)]
enum Told {
    Comes(Link),
    Goes(u32),
}

/// The links that the kernel has reported.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownLinks {
    pub(super) veths: HashMap<u32, Link>,
    /// Names of all other links.
    others: HashMap<u32, String>,
}

impl KnownLinks {
    /// Names of the links other than veths.
    pub(super) fn other_names(&self) -> HashSet<&str> {
        self.others.values().map(String::as_str).collect()
    }

    /// Names of all links.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.veths
            .values()
            .map(|link| link.name.as_str())
            .chain(self.others.values().map(String::as_str))
    }

    /// A complete set of links.
    pub(super) fn of(links: impl IntoIterator<Item = Link>) -> Self {
        let mut known = Self::default();
        links.into_iter().for_each(|link| known.comes(link));
        known
    }

    /// Removes a link. Returns its name if it was known.
    fn goes(&mut self, index: u32) -> Option<String> {
        let other = self.others.remove(&index);
        self.veths.remove(&index).map(|link| link.name).or(other)
    }

    fn comes(&mut self, link: Link) {
        if link.is_veth {
            self.veths.insert(link.index, link);
        } else {
            self.others.insert(link.index, link.name);
        }
    }
}

/// What happened to links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkNews {
    /// These links are gone; possibly none.
    Gone(Vec<String>),
    /// Events were lost: anything may have happened.
    Unknown,
}

impl Links {
    /// Listens from now on. Needs a tokio runtime.
    pub(super) fn listen() -> io::Result<Self> {
        let events = Listener::open(NETLINK_ROUTE, &[libc::RTNLGRP_LINK])?;
        Ok(Self { events, known: Arc::default(), is_complete: false, meanwhile: None })
    }

    /// Waits for the next event. Cancellation-safe.
    pub(super) async fn next(&mut self) -> LinkNews {
        match self.events.next().await {
            Ok(Heard::Datagram(datagram)) => self.take(&datagram),
            Ok(Heard::Overflow) => self.lose(),
            Err(error) => {
                tracing::error!(
                    %error,
                    "the kernel reports no link events any more: changes of links go unnoticed"
                );
                std::future::pending().await
            }
        }
    }

    /// Every link; `None` if an event was lost, and a new list has to be made.
    pub(super) fn known(&self) -> Option<Arc<KnownLinks>> {
        self.is_complete.then(|| Arc::clone(&self.known))
    }

    /// A list is being made from now on.
    pub(super) fn listing(&mut self) {
        self.meanwhile = Some(Vec::new());
        // Set before the list is there: an event that is lost from now on makes it incomplete
        // again.
        self.is_complete = true;
    }

    /// Takes the list that was made; `None` if the kernel did not list its links.
    pub(super) fn listed(&mut self, links: Option<Vec<Link>>) {
        let meanwhile = self.meanwhile.take().unwrap_or_default();
        match links {
            Some(links) => self.known = KnownLinks::of(links).into(),
            None => self.is_complete = false,
        }
        let known = Arc::make_mut(&mut self.known);
        // On top of the list, which may be older than these events.
        for told in meanwhile {
            match told {
                Told::Comes(link) => known.comes(link),
                Told::Goes(index) => drop(known.goes(index)),
            }
        }
    }

    fn take(&mut self, datagram: &[u8]) -> LinkNews {
        let mut gone = Vec::new();
        // Copies only while a look uses the links.
        let known = Arc::make_mut(&mut self.known);
        for message in messages(datagram) {
            // A message that cannot be read may have been about any link.
            let Ok(message) = message else { return self.lose() };
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))
                    if is_link(&link) =>
                {
                    let link = Link::from(&link);
                    if let Some(meanwhile) = &mut self.meanwhile {
                        meanwhile.push(Told::Comes(link.clone()));
                    }
                    known.comes(link);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))
                    if is_link(&link) =>
                {
                    let index = link.header.index;
                    if let Some(meanwhile) = &mut self.meanwhile {
                        meanwhile.push(Told::Goes(index));
                    }
                    gone.extend(known.goes(index));
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

/// Whether the message is about the link itself. With the family `AF_BRIDGE` it is about a bridge's
/// port.
fn is_link(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}
