//! Taking an interface away: what DEL does, what rolls a failed ADD back, and what GC does to each stale interface. One code path.
//!
//! Everything is found by the sandbox's id: rows by their `external_ids`, the link by its name and alias. Whatever is missing is
//! fine; whatever belongs to another sandbox stays. An error does not keep the rest from being removed.

use std::{collections::BTreeSet, io, net::IpAddr, thread, time::Duration};

use contract::{external_ids, names::Network};
use ipnet::IpNet;
use tokio::{runtime::Builder, sync::oneshot};

use crate::{
    bridge::{Bridge, BridgeError},
    conntrack,
    error::chain,
    link::{self, Link, LinkError},
    netlink::Netlink,
    plan::Identity,
    rows::InterfaceRow,
    settings::Settings,
};

/// The connections that taking away needs; each may be missing, and the other is used all the same.
#[derive(Debug)]
pub struct Detacher {
    bridge: Result<Bridge, BridgeError>,
    host: Result<Netlink, io::Error>,
}

/// What was there and is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    pub ports: Vec<String>,
    pub links: Vec<String>,
}

/// What could not be removed, or not be looked for.
#[derive(Debug, thiserror::Error)]
#[error("{}", .errors.iter().map(|error| chain(error)).collect::<Vec<_>>().join("; "))]
pub struct Leftover {
    pub removed: Removed,
    pub errors: Vec<DetachError>,
}

/// One thing that went wrong.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    #[error("ports")]
    Ports(#[source] BridgeError),
    #[error("no connection to look for ports: {0}")]
    NoBridge(String),
    #[error("link")]
    Link(#[from] LinkError),
    #[error("no netlink socket to look for links: {0}")]
    NoNetlink(String),
}

impl Leftover {
    /// Whether trying again may help without anybody's doing: nothing but the database was out of reach.
    pub fn is_passing(&self) -> bool {
        self.errors.iter().all(|error| match error {
            DetachError::NoBridge(_) => true,
            DetachError::Ports(error) => !error.is_refusal(),
            DetachError::Link(_) | DetachError::NoNetlink(_) => false,
        })
    }
}

impl Detacher {
    /// Opens what can be opened.
    pub async fn open(settings: &Settings, timeout: Duration) -> Self {
        Self { bridge: Bridge::connect(&settings.ovsdb, timeout).await, host: Netlink::open() }
    }

    /// Goes on with connections that are already there, so that what is still on its way comes before its undoing. A session that
    /// broke is replaced; so is the kernel's socket, which has no such way and may have lost an answer.
    pub async fn go_on(bridge: Option<Bridge>, host: Netlink, settings: &Settings, timeout: Duration) -> Self {
        let bridge = match bridge.filter(Bridge::is_alive) {
            Some(bridge) => Ok(bridge),
            None => Bridge::connect(&settings.ovsdb, timeout).await,
        };
        Self { bridge, host: Netlink::open().or(Ok(host)) }
    }

    /// The session with Open vSwitch, if there is one.
    pub fn bridge(&self) -> Result<&Bridge, DetachError> {
        self.bridge.as_ref().map_err(|error| DetachError::NoBridge(chain(error)))
    }

    /// Removes the interface's ports and rate limits, its link, and the connections of its addresses.
    pub async fn detach(&self, identity: &Identity, known_addresses: &[IpAddr]) -> Result<Removed, Leftover> {
        let mut removed = Removed::default();
        let mut errors = Vec::new();

        let rows = match self.rows(identity).await {
            Ok(rows) => Some(rows),
            Err(error) => {
                errors.push(error);
                None
            }
        };
        let found = rows.as_deref().unwrap_or_default();
        if let (Ok(bridge), Some(rows)) = (&self.bridge, &rows) {
            // Without a row of its own there may still be rate limits of its own.
            match bridge.unplug(identity, rows.clone()).await {
                Ok(()) => removed.ports = rows.iter().map(|row| row.name.clone()).collect(),
                Err(error) => errors.push(DetachError::Ports(error)),
            }
        }
        let flush = flush_connections(found, known_addresses);
        match self.links(identity, found).await {
            Ok(links) => {
                for link in links {
                    match link::delete(self.netlink().expect("links were found with it"), &link) {
                        Ok(()) => removed.links.push(link.name),
                        Err(error) => errors.push(error.into()),
                    }
                }
            }
            Err(error) => errors.push(error),
        }
        flush.await;

        if errors.is_empty() { Ok(removed) } else { Err(Leftover { removed, errors }) }
    }

    async fn rows(&self, identity: &Identity) -> Result<Vec<InterfaceRow>, DetachError> {
        let mut rows = self.bridge()?.of_sandbox(&identity.sandbox).await.map_err(DetachError::Ports)?;
        rows.retain(|row| row.belongs_to(identity));
        Ok(rows)
    }

    /// The interface's links on the host: those that its rows name, and those that a plugin left which died before there was a row.
    async fn links(&self, identity: &Identity, rows: &[InterfaceRow]) -> Result<Vec<Link>, DetachError> {
        let host = self.netlink()?;
        let mut links = Vec::new();
        let plain_name = match identity.network {
            Network::Default => identity.sandbox.host_if_name(),
            Network::Attachment { .. } => identity.temporary_host_name(),
        };
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).chain([plain_name.as_str()]).collect();
        for name in names {
            let Some(link) = link::find(host, name)? else { continue };
            let named_by_row = rows.iter().any(|row| row.name == name);
            // A link of upstream's, or one whose maker died at once, has no alias. It is the interface's by its name, unless a row
            // gives the name to somebody else.
            let unmarked = link.is_veth && link.alias.is_empty();
            if identity.owns(&link.alias) || unmarked && (named_by_row || self.is_unclaimed(name).await) {
                links.push(link);
            }
        }
        if let (Network::Attachment { .. }, true) = (&identity.network, rows.is_empty()) {
            // The name says an index that nobody remembers.
            links.extend(link::list().await?.into_iter().filter(|link| identity.owns(&link.alias)));
        }
        links.dedup_by_key(|link| link.index);
        Ok(links)
    }

    async fn is_unclaimed(&self, name: &str) -> bool {
        match &self.bridge {
            Ok(bridge) => matches!(bridge.named(name).await, Ok(None)),
            Err(_) => false,
        }
    }

    fn netlink(&self) -> Result<&Netlink, DetachError> {
        self.host.as_ref().map_err(|error| DetachError::NoNetlink(error.to_string()))
    }
}

/// Starts to remove the connections of all addresses, on a thread of its own: the kernel takes as long for it as for deleting a
/// link, and blocks its caller for both. Best effort: a kernel without connection tracking has no connections to remove.
fn flush_connections(rows: &[InterfaceRow], known: &[IpAddr]) -> impl Future<Output = ()> {
    let of_rows = rows.iter().filter_map(|row| row.id(external_ids::IP_ADDRESSES)).flat_map(|list| list.split(','));
    let of_rows = of_rows.filter_map(|address| address.parse::<IpNet>().ok()).map(|net| net.addr());
    let addresses: Vec<IpAddr> = of_rows.chain(known.iter().copied()).collect();
    let flushing = (!addresses.is_empty() && conntrack::has_connections()).then(|| start_flush(addresses));
    async {
        match flushing {
            None => {}
            Some(flushing) => match flushing.await {
                Ok(connections) => tracing::debug!(connections, "flushed tracked connections"),
                Err(error) => tracing::debug!(%error, "cannot flush tracked connections"),
            },
        }
    }
}

/// Begins at once where a thread can be had; otherwise the work is done by whoever waits for it.
fn start_flush(addresses: Vec<IpAddr>) -> impl Future<Output = io::Result<usize>> {
    let (sender, receiver) = oneshot::channel();
    let apart = addresses.clone();
    let started = thread::Builder::new().spawn(move || {
        let flush = || Builder::new_current_thread().enable_all().build()?.block_on(conntrack::flush(&apart));
        // Nobody waits where DEL has lost its patience.
        let _ = sender.send(flush());
    });
    async move {
        match started {
            Ok(_) => receiver.await.unwrap_or_else(|_| Err(io::Error::other("the thread has panicked"))),
            Err(_) => conntrack::flush(&addresses).await,
        }
    }
}
