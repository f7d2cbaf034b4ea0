//! Taking an interface away: what DEL does, what rolls a failed ADD back, and what GC does to each stale interface. One code path.
//!
//! Everything is found by the sandbox's id: rows by their `external_ids`, the link by its name and alias. Whatever is missing is
//! fine; whatever belongs to another sandbox stays. An error does not keep the rest from being removed.

use std::{collections::BTreeSet, io, net::IpAddr, thread, time::Duration};

use contract::names::{IfName, Network};
use rustix::process::setpriority_process;
use tokio::{runtime::Builder, sync::oneshot, task::spawn_blocking, time::timeout};

use crate::{
    bridge::{Bridge, BridgeError},
    chain::chain,
    conntrack::{self, Flushed},
    link::{self, Link, LinkError},
    netlink::Netlink,
    plan::Identity,
    rows::InterfaceRow,
    settings::Settings,
};

/// How long the flush of tracked connections may take. The kernel looks through 250,000 in a tenth of a second; what is left ends by itself.
const FLUSH_PATIENCE: Duration = Duration::from_secs(3);

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
            Some(bridge) => Ok(bridge.with_patience(timeout)),
            None => Bridge::connect(&settings.ovsdb, timeout).await,
        };
        Self { bridge, host: Netlink::open().or(Ok(host)) }
    }

    /// The session with Open vSwitch, if there is one.
    pub fn bridge(&self) -> Result<&Bridge, DetachError> {
        self.bridge.as_ref().map_err(|error| DetachError::NoBridge(chain(error)))
    }

    /// Removes the interface's ports and rate limits, its link, and the connections of its addresses unless another interface works with
    /// them.
    pub async fn detach(&self, identity: &Identity, connections: Connections<'_>) -> Result<Removed, Leftover> {
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
        let mut abandoned = connections.addresses(found);
        if let (Ok(bridge), Some(rows)) = (&self.bridge, &rows) {
            // Without a row of its own there may still be rate limits of its own.
            let (unplugged, left) = tokio::join!(
                bridge.unplug(identity, rows.clone()),
                of_nobody_else(bridge, std::slice::from_ref(identity), std::mem::take(&mut abandoned))
            );
            match unplugged {
                Ok(()) => removed.ports = rows.iter().map(|row| row.name.clone()).collect(),
                Err(error) => errors.push(DetachError::Ports(error)),
            }
            abandoned = left;
        } else {
            // Nobody knows whose the addresses are now.
            abandoned.clear();
        }
        let flush = flush_connections(abandoned);
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

    /// Removes what several interfaces have, each as [`Self::detach`] does: their ports in one transaction, their links among `links`, which are all
    /// that the host has, and the connections of their addresses in one go. What each had, in the same order.
    ///
    /// # Errors
    /// If their ports cannot be removed, nothing is.
    pub async fn detach_all(&self, identities: &[Identity], links: &[Link]) -> Result<Vec<Removed>, Leftover> {
        let nothing = |error| Leftover { removed: Removed::default(), errors: vec![error] };
        let bridge = self.bridge().map_err(nothing)?;
        let all = bridge.of_all_sandboxes().await.map_err(|error| nothing(DetachError::Ports(error)))?;
        let claimed: BTreeSet<&str> = all.iter().map(|row| row.name.as_str()).collect();
        let (mut removed, mut ports, mut doomed) = (Vec::new(), Vec::new(), Vec::new());
        for identity in identities {
            let rows: Vec<&InterfaceRow> = all.iter().filter(|row| row.belongs_to(identity)).collect();
            let plain_name = plain_name(identity);
            let is_its_own = |link: &&Link| {
                let named_by_row = rows.iter().any(|row| row.name == link.name);
                let by_name = named_by_row || link.name == plain_name.as_str() && !claimed.contains(link.name.as_str());
                identity.owns(&link.alias) || link.is_veth && link.alias.is_empty() && by_name
            };
            let own: Vec<Link> = links.iter().filter(is_its_own).cloned().collect();
            let names = |link: &Link| link.name.clone();
            removed.push(Removed { ports: rows.iter().map(|row| row.name.clone()).collect(), links: own.iter().map(names).collect() });
            ports.extend(rows.into_iter().cloned());
            doomed.extend(own);
        }
        bridge.unplug_all(identities, ports.clone()).await.map_err(|error| nothing(DetachError::Ports(error)))?;
        let abandoned = of_nobody_else(bridge, identities, Connections::Of(&[]).addresses(&ports)).await;
        let flush = flush_connections(abandoned);
        let errors = delete_all(doomed).await;
        flush.await;
        if errors.is_empty() { Ok(removed) } else { Err(Leftover { removed: Removed::default(), errors }) }
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
        let plain_name = plain_name(identity);
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

/// The name that its link has where no row names it.
fn plain_name(identity: &Identity) -> IfName {
    match identity.network {
        Network::Default => identity.sandbox.host_if_name(),
        Network::Attachment { .. } => identity.temporary_host_name(),
    }
}

/// Deletes links on a thread of their own: the kernel blocks its caller for each.
async fn delete_all(links: Vec<Link>) -> Vec<DetachError> {
    if links.is_empty() {
        return Vec::new();
    }
    let deleting = spawn_blocking(move || match Netlink::open() {
        Ok(host) => links.iter().filter_map(|link| link::delete(&host, link).err().map(DetachError::from)).collect(),
        Err(error) => vec![DetachError::NoNetlink(error.to_string())],
    });
    deleting.await.unwrap_or_else(|error| vec![DetachError::NoNetlink(error.to_string())])
}

/// Which tracked connections go with an interface.
#[derive(Debug, Clone, Copy)]
pub enum Connections<'a> {
    /// Those of the addresses that its rows name, and of these.
    Of(&'a [IpAddr]),
    /// None: the interface has never worked with its addresses.
    Stay,
}

impl Connections<'_> {
    /// None where the kernel tracks no connections, so that nobody has to be asked about them.
    fn addresses(self, rows: &[InterfaceRow]) -> Vec<IpAddr> {
        match self {
            Self::Of(known) if conntrack::has_connections() => {
                let all: BTreeSet<IpAddr> = rows.iter().flat_map(InterfaceRow::addresses).chain(known.iter().copied()).collect();
                all.into_iter().collect()
            }
            Self::Of(_) | Self::Stay => Vec::new(),
        }
    }
}

/// Those of the addresses that no other interface works with: a pod may have been given the address of one that is long gone, and what is
/// late must not break its connections.
async fn of_nobody_else(bridge: &Bridge, identities: &[Identity], addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    if addresses.is_empty() {
        return addresses;
    }
    match bridge.addresses_of_others(identities).await {
        Ok(taken) => addresses.into_iter().filter(|address| !taken.contains(address)).collect(),
        Err(error) => {
            tracing::debug!(error = chain(&error), "tracked connections stay: nobody knows whose the addresses are");
            Vec::new()
        }
    }
}

/// Starts to remove the connections of all addresses, on a thread of its own: the kernel takes as long for it as for deleting a
/// link, and blocks its caller for both. Best effort: a kernel without connection tracking has no connections to remove.
fn flush_connections(addresses: Vec<IpAddr>) -> impl Future<Output = ()> {
    let flushing = (!addresses.is_empty()).then(|| start_flush(addresses));
    async {
        let Some(flushing) = flushing else { return };
        match timeout(FLUSH_PATIENCE, flushing).await {
            Ok(Ok(Flushed { connections, listed })) => tracing::debug!(connections, listed, "flushed tracked connections"),
            Ok(Err(error)) => tracing::debug!(%error, "cannot flush tracked connections"),
            Err(_) => tracing::warn!(
                patience_s = FLUSH_PATIENCE.as_secs(),
                "tracked connections of the pod's addresses are left to their own timeouts: flushing them takes too long"
            ),
        }
    }
}

/// Begins at once where a thread can be had; otherwise the work is done by whoever waits for it.
fn start_flush(addresses: Vec<IpAddr>) -> impl Future<Output = io::Result<Flushed>> {
    let (sender, receiver) = oneshot::channel();
    let apart = addresses.clone();
    let started = thread::Builder::new().spawn(move || {
        // Not before Open vSwitch, as the rest of the plugin: a table of a million connections keeps a processor busy. Without an effect where
        // that is not allowed.
        let _ = setpriority_process(None, 0);
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
