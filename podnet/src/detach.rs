//! The removal of an interface: the work of DEL, the rollback of a failed ADD, and what GC does
//! with each stale interface. One code path.
//!
//! Everything is found by the sandbox's id: rows by their `external_ids`, the link by its name and
//! alias. What is missing is no error; what belongs to another sandbox stays. An error does not
//! stop the removal of the rest.

mod flush;
mod release;

pub use flush::{FLUSH, Unflushed, UnflushedError, flush_before_use, flush_left};

use std::{collections::BTreeSet, io, net::IpAddr, time::Duration};

use contract::{
    error::chain,
    names::{IfName, Network},
};
use tokio::task::spawn_blocking;

use self::flush::{flush_within, of_nobody_else};
use crate::{
    bridge::{Bridge, BridgeError},
    conntrack,
    link::{self, Link, LinkError},
    netlink::Netlink,
    plan::Identity,
    rows::InterfaceRow,
    settings::Settings,
};

/// The sessions with OVSDB and with the kernel. Each may be missing, and the other one is used all
/// the same.
#[derive(Debug)]
pub struct Detacher {
    bridge: Result<Bridge, BridgeError>,
    host: Result<Netlink, io::Error>,
    unflushed: Unflushed,
    /// How long the flush of tracked connections may take.
    flush: Duration,
}

/// The names of what was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    pub ports: Vec<String>,
    pub links: Vec<String>,
}

/// What could not be removed or looked for.
#[derive(Debug, thiserror::Error)]
#[error("{}", .errors.iter().map(|error| chain(error)).collect::<Vec<_>>().join("; "))]
pub struct PartialCleanup {
    pub removed: Removed,
    pub errors: Vec<DetachError>,
}

/// One error of a removal.
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

impl PartialCleanup {
    /// Whether a retry may succeed without intervention: only the database was out of reach.
    pub fn is_passing(&self) -> bool {
        self.errors.iter().all(|error| match error {
            DetachError::NoBridge(_) => true,
            DetachError::Ports(error) => !error.is_refusal(),
            DetachError::Link(_) | DetachError::NoNetlink(_) => false,
        })
    }
}

impl Detacher {
    /// Opens the sessions. An error is reported when the session is used.
    pub async fn open(settings: &Settings, timeout: Duration) -> Self {
        Self {
            bridge: Bridge::connect(&settings.ovsdb, timeout).await,
            host: Netlink::open(),
            unflushed: Unflushed::of(settings),
            flush: FLUSH,
        }
    }

    /// The same with another limit for the flush of tracked connections.
    #[must_use]
    pub fn flushing_for(self, flush: Duration) -> Self {
        Self { flush, ..self }
    }

    /// Goes on with sessions that are open, so that a write that is on its way reaches the database
    /// before its removal. A broken session is replaced. So is the kernel's socket, which has
    /// nothing on its way and may have lost an answer.
    pub async fn go_on(
        bridge: Option<Bridge>,
        host: Netlink,
        settings: &Settings,
        timeout: Duration,
    ) -> Self {
        let bridge = match bridge.filter(Bridge::is_alive) {
            Some(bridge) => Ok(bridge.with_patience(timeout)),
            None => Bridge::connect(&settings.ovsdb, timeout).await,
        };
        let host = Netlink::open().or(Ok(host));
        Self { bridge, host, unflushed: Unflushed::of(settings), flush: FLUSH }
    }

    /// The session with OVSDB.
    ///
    /// # Errors
    /// [`DetachError::NoBridge`] if there is none.
    pub fn bridge(&self) -> Result<&Bridge, DetachError> {
        self.bridge.as_ref().map_err(|error| DetachError::NoBridge(chain(error)))
    }

    /// Removes the interface's ports and rate limits, its link, and the tracked connections of its
    /// addresses unless another interface uses them.
    ///
    /// # Errors
    /// [`PartialCleanup`] with all errors. Everything else was removed.
    pub async fn detach(
        &self,
        identity: &Identity,
        connections: Connections<'_>,
    ) -> Result<Removed, PartialCleanup> {
        let mut removed = Removed::default();
        let mut errors = Vec::new();

        // The rows are read before they are removed, because they name links and addresses.
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
            // Even without a row: rate limits may be left.
            let (unplugged, left) = tokio::join!(
                bridge.unplug(identity, rows.clone()),
                of_nobody_else(
                    bridge,
                    std::slice::from_ref(identity),
                    std::mem::take(&mut abandoned)
                )
            );
            match unplugged {
                Ok(()) => removed.ports = rows.iter().map(|row| row.name.clone()).collect(),
                Err(error) => errors.push(DetachError::Ports(error)),
            }
            abandoned = left;
        } else {
            // Without the database it is unknown whether another interface uses the addresses.
            abandoned.clear();
        }
        // The flush runs on a thread of its own while this one deletes the links.
        let flush = flush_within(self.flush, abandoned, &self.unflushed);
        match self.links(identity, found).await {
            Ok(links) => {
                let host = self.netlink().expect("links were found with it");
                let ports = &removed.ports;
                release::released(host, links.iter().filter(|link| ports.contains(&link.name)))
                    .await;
                for link in links {
                    match link::delete(host, &link) {
                        Ok(()) => removed.links.push(link.name),
                        Err(error) => errors.push(error.into()),
                    }
                }
            }
            Err(error) => errors.push(error),
        }
        flush.await;

        if errors.is_empty() { Ok(removed) } else { Err(PartialCleanup { removed, errors }) }
    }

    /// Removes several interfaces, each as [`Self::detach`] does: their ports in one transaction,
    /// their links among `links`, which are all links of the host, and the tracked connections of
    /// their addresses in one go. Returns what was removed of each, in the same order.
    ///
    /// # Errors
    /// If the ports cannot be removed, nothing is. [`PartialCleanup`] with all errors if links are
    /// left.
    pub async fn detach_all(
        &self,
        identities: &[Identity],
        links: &[Link],
    ) -> Result<Vec<Removed>, PartialCleanup> {
        let nothing = |error| PartialCleanup { removed: Removed::default(), errors: vec![error] };
        let bridge = self.bridge().map_err(nothing)?;
        let all =
            bridge.of_all_sandboxes().await.map_err(|error| nothing(DetachError::Ports(error)))?;
        let claimed: BTreeSet<&str> = all.iter().map(|row| row.name.as_str()).collect();
        let (mut removed, mut ports, mut doomed) = (Vec::new(), Vec::new(), Vec::new());
        for identity in identities {
            let rows: Vec<&InterfaceRow> =
                all.iter().filter(|row| row.belongs_to(identity)).collect();
            let plain_name = plain_name(identity);
            // A link with an alias belongs to the interface that its alias names. One without
            // belongs to it by name, unless the row of another one has the name.
            let is_its_own = |link: &&Link| {
                let named_by_row = rows.iter().any(|row| row.name == link.name);
                let by_name = named_by_row
                    || link.name == plain_name.as_str() && !claimed.contains(link.name.as_str());
                identity.owns(&link.alias) || link.is_veth && link.alias.is_empty() && by_name
            };
            let own: Vec<Link> = links.iter().filter(is_its_own).cloned().collect();
            let names = |link: &Link| link.name.clone();
            removed.push(Removed {
                ports: rows.iter().map(|row| row.name.clone()).collect(),
                links: own.iter().map(names).collect(),
            });
            ports.extend(rows.into_iter().cloned());
            doomed.extend(own);
        }
        // Ports first, all or none: a port that stays needs its link.
        bridge
            .unplug_all(identities, ports.clone())
            .await
            .map_err(|error| nothing(DetachError::Ports(error)))?;
        let abandoned =
            of_nobody_else(bridge, identities, Connections::Of(&[]).addresses(&ports)).await;
        let flush = flush_within(self.flush, abandoned, &self.unflushed);
        if let Ok(host) = &self.host {
            let ports: BTreeSet<&str> = ports.iter().map(|row| row.name.as_str()).collect();
            release::released(
                host,
                doomed.iter().filter(|link| ports.contains(link.name.as_str())),
            )
            .await;
        }
        let errors = delete_all(doomed).await;
        flush.await;
        if errors.is_empty() {
            Ok(removed)
        } else {
            Err(PartialCleanup { removed: Removed::default(), errors })
        }
    }

    /// Removes the interfaces of all pods, as [`Self::detach_all`] does.
    ///
    /// # Errors
    /// As of [`Self::detach_all`], and if the links of the host cannot be listed.
    pub async fn detach_everything(&self) -> Result<Vec<Removed>, PartialCleanup> {
        let nothing = |error| PartialCleanup { removed: Removed::default(), errors: vec![error] };
        let bridge = self.bridge().map_err(nothing)?;
        let rows =
            bridge.of_all_sandboxes().await.map_err(|error| nothing(DetachError::Ports(error)))?;
        let links = link::list().await.map_err(|error| nothing(error.into()))?;
        let mut identities: Vec<Identity> = Vec::new();
        for identity in rows.iter().filter_map(|row| Identity::of(&row.external_ids)) {
            if !identities.contains(&identity) {
                identities.push(identity);
            }
        }
        self.detach_all(&identities, &links).await
    }

    async fn rows(&self, identity: &Identity) -> Result<Vec<InterfaceRow>, DetachError> {
        let mut rows =
            self.bridge()?.of_sandbox(&identity.sandbox).await.map_err(DetachError::Ports)?;
        rows.retain(|row| row.belongs_to(identity));
        if rows.is_empty() && identity.network == Network::Default {
            // The plugin of 2017 named the sandbox in the interface's name alone.
            let named = self.bridge()?.named(plain_name(identity).as_str()).await;
            rows.extend(named.map_err(DetachError::Ports)?.filter(InterfaceRow::is_of_2017));
        }
        Ok(rows)
    }

    /// The interface's links on the host: those that its rows name, and those of a plugin that died
    /// before it wrote a row.
    async fn links(
        &self,
        identity: &Identity,
        rows: &[InterfaceRow],
    ) -> Result<Vec<Link>, DetachError> {
        let host = self.netlink()?;
        let mut links = Vec::new();
        let plain_name = plain_name(identity);
        let names: BTreeSet<&str> =
            rows.iter().map(|row| row.name.as_str()).chain([plain_name.as_str()]).collect();
        for name in names {
            let Some(link) = link::find(host, name)? else { continue };
            let named_by_row = rows.iter().any(|row| row.name == name);
            // A link of upstream's plugin has no alias, nor has one whose plugin died at once. It
            // belongs to the interface by its name, unless a row gives the name to another sandbox.
            let unmarked = link.is_veth && link.alias.is_empty();
            if identity.owns(&link.alias)
                || unmarked && (named_by_row || self.is_unclaimed(name).await)
            {
                links.push(link);
            }
        }
        if let (Network::Attachment { .. }, true) = (&identity.network, rows.is_empty()) {
            // The name contains an index that only the missing row had. The alias finds the link.
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

/// The name of the interface's link if no row names it.
fn plain_name(identity: &Identity) -> IfName {
    match identity.network {
        Network::Default => identity.sandbox.host_if_name(),
        Network::Attachment { .. } => identity.temporary_host_name(),
    }
}

/// Deletes links on a thread of their own: the kernel blocks the caller for each.
async fn delete_all(links: Vec<Link>) -> Vec<DetachError> {
    if links.is_empty() {
        return Vec::new();
    }
    let deleting = spawn_blocking(move || match Netlink::open() {
        Ok(host) => links
            .iter()
            .filter_map(|link| link::delete(&host, link).err().map(DetachError::from))
            .collect(),
        Err(error) => vec![DetachError::NoNetlink(error.to_string())],
    });
    deleting.await.unwrap_or_else(|error| vec![DetachError::NoNetlink(error.to_string())])
}

/// The tracked connections that are removed with an interface.
#[derive(Debug, Clone, Copy)]
pub enum Connections<'a> {
    /// Those of the addresses in its rows, and of these.
    Of(&'a [IpAddr]),
    /// None: the interface has never used its addresses. OVN had not installed its port.
    Stay,
}

impl Connections<'_> {
    /// The addresses to flush. Empty if the kernel tracks no connections: then the database is not
    /// asked about them.
    fn addresses(self, rows: &[InterfaceRow]) -> Vec<IpAddr> {
        match self {
            Self::Of(known) if conntrack::has_connections() => {
                let all: BTreeSet<IpAddr> = rows
                    .iter()
                    .flat_map(InterfaceRow::addresses)
                    .chain(known.iter().copied())
                    .collect();
                all.into_iter().collect()
            }
            Self::Of(_) | Self::Stay => Vec::new(),
        }
    }
}
