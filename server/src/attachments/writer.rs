//! Writes ports for the plugins that ask for it: those that wait at the same moment in one
//! transaction, and the next ones once ovs-vswitchd has numbered these. ovs-vswitchd goes through
//! its whole configuration for every transaction, and ovn-controller through what is new.
//!
//! Writes what is simple, and reports progress only. If anything is in a port's way (a row of its
//! name or logical port, an address that is in use, a database that is away), the plugin finds and
//! words it itself, as it does without a server. Must not know which program asks.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use contract::{
    external_ids::IFACE_ID,
    names::{IfName, IfaceId},
    wire::{BridgeFacts, PortStatus, PortWriter},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use ovsdb::{
    ChangeKind, Client, Event, NamedUuid, Outcome, TransactError, Transaction, Updates, Uuid,
};
use podnet::{
    bridge::Datapath,
    nftables::ingress::Devices,
    rows::{self, PortColumns},
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::port_cache::{self, BridgeRow, InterfaceRow};
use crate::{
    metrics::Metrics,
    ports::{PlannedPort, WriteRequest, names::Names},
};

/// How long ports wait for those before them to get their numbers. Longer, and a slow port delays
/// all others for that much longer; without it, more transactions have fewer ports each. What was
/// measured with 100 ms, 15 ms and none: docs/explanation/what-bounds-an-add.md.
const HOLD: Duration = Duration::from_millis(15);

/// The queue of requests, and the state of the ports that were written.
pub(super) struct Writer {
    requests: mpsc::UnboundedReceiver<WriteRequest>,
    bridge: watch::Sender<Option<BridgeFacts>>,
    names: Arc<Names>,
    metrics: Arc<Metrics>,
    queue: Vec<WriteRequest>,
    /// When the oldest request of the queue came.
    oldest: Option<Instant>,
    sent: Option<Sent>,
    /// Ports that are written and do not work yet, by their Interface rows.
    waiting: HashMap<Uuid, Waiting>,
}

/// A transaction in flight.
struct Sent {
    outcome: BoxFuture<'static, Result<Outcome, NotWritten>>,
    ports: Vec<(NamedUuid, Waiting)>,
}

/// Why ports are not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWritten {
    #[error(transparent)]
    Database(#[from] TransactError),
    #[error("nftables: have the host's own stack ignore what the ports receive")]
    Ingress(#[source] io::Error),
}

/// A plugin that waits for its port.
struct Waiting {
    iface_id: IfaceId,
    news: mpsc::UnboundedSender<PortStatus>,
    /// The last status that was sent.
    said: PortStatus,
}

/// An event, for [`Writer::take`].
pub(super) enum WriterEvent {
    Asked(WriteRequest),
    Settled(Result<Outcome, NotWritten>),
    /// The queue has waited for long enough.
    Due,
}

impl Writer {
    pub(super) fn new(
        requests: mpsc::UnboundedReceiver<WriteRequest>,
        bridge: watch::Sender<Option<BridgeFacts>>,
        names: Arc<Names>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            requests,
            bridge,
            names,
            metrics,
            queue: Vec::new(),
            oldest: None,
            sent: None,
            waiting: HashMap::new(),
        }
    }

    /// Waits for the next step. Cancellation-safe.
    pub(super) async fn next(&mut self) -> WriterEvent {
        // While a transaction is in flight, its outcome comes first.
        let due = self.oldest.map(|oldest| oldest + HOLD).filter(|_| self.sent.is_none());
        tokio::select! {
            outcome = settled(&mut self.sent) => WriterEvent::Settled(outcome),
            Some(request) = self.requests.recv() => WriterEvent::Asked(request),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => WriterEvent::Due,
        }
    }

    pub(super) fn take(&mut self, step: WriterEvent, client: &Client, updates: &Updates) {
        match step {
            WriterEvent::Asked(request) => {
                self.enqueue(request);
                // All that wait at this moment go into one transaction.
                while let Ok(request) = self.requests.try_recv() {
                    self.enqueue(request);
                }
            }
            WriterEvent::Settled(outcome) => self.written(outcome, updates),
            WriterEvent::Due => {}
        }
        self.write(client, updates, Instant::now());
    }

    fn enqueue(&mut self, request: WriteRequest) {
        self.oldest.get_or_insert_with(Instant::now);
        self.queue.push(request);
    }

    pub(super) fn database_says(&mut self, event: &Event, client: &Client, updates: &Updates) {
        match event {
            Event::Connected => {
                // Interfaces may have come and gone while there was no connection.
                self.names.are(port_cache::names(updates), Instant::now());
                self.look_at_bridge(updates);
            }
            Event::Disconnected(_) => {
                self.bridge.send_replace(None);
                // What became of a transaction in flight is unknown: each plugin looks for its port
                // itself.
                self.queue.clear();
                self.oldest = None;
                self.waiting.clear();
            }
            Event::Changed(changes) => {
                // A bridge that comes or goes changes no column: br-int may be deleted and made
                // anew.
                let matters = |kind, columns: &[&str]| {
                    kind != ChangeKind::Modify || columns.contains(&"datapath_type")
                };
                if changes.of::<BridgeRow>().any(|change| matters(change.kind, change.columns())) {
                    self.look_at_bridge(updates);
                }
                for change in changes.of::<InterfaceRow>() {
                    match change.kind {
                        ChangeKind::Delete => {
                            if let Some(row) = change.old::<InterfaceRow>() {
                                self.names.goes(&row.name, Instant::now());
                            }
                            // Another program has removed the port: the closed channel tells its
                            // plugin.
                            self.waiting.remove(&change.uuid);
                        }
                        ChangeKind::Insert => {
                            if let Some(row) = updates.row::<InterfaceRow>(change.uuid) {
                                self.names.comes(&row.name);
                            }
                            self.tell(change.uuid, updates);
                        }
                        ChangeKind::Modify => self.tell(change.uuid, updates),
                    }
                }
            }
        }
        self.write(client, updates, Instant::now());
    }

    fn look_at_bridge(&self, updates: &Updates) {
        let facts = port_cache::integration_bridge(updates)
            .map(|bridge| bridge.datapath_type.clone())
            .map(|datapath_type| BridgeFacts { datapath_type, writer: PortWriter::default() });
        self.bridge.send_if_modified(|now| std::mem::replace(now, facts.clone()) != facts);
    }

    /// Sends the queue, unless a transaction is in flight, or the ports before have no numbers yet.
    fn write(&mut self, client: &Client, updates: &Updates, now: Instant) {
        let Some(oldest) = self.oldest else { return };
        let datapath =
            self.bridge.borrow().as_ref().map(|facts| Datapath::of(&facts.datapath_type));
        let Some(datapath) = datapath else {
            // The dropped channels tell the plugins to write their ports themselves.
            self.queue.clear();
            self.oldest = None;
            return;
        };
        // A plugin that has gone must not hold up the others: its port may never work.
        self.waiting.retain(|_, waiting| !waiting.news.is_closed());
        // A port that failed is not in `waiting` any more.
        let busy = self.waiting.values().any(|waiting| waiting.said < PortStatus::Numbered);
        if self.sent.is_some() || busy && now < oldest + HOLD {
            return;
        }
        self.oldest = None;
        // A dropped request ends its status updates: the plugin continues by itself.
        let wanted: Vec<WriteRequest> =
            self.queue.drain(..).filter(|request| !request.news.is_closed()).collect();
        let ports = unobstructed(wanted, updates);
        if ports.is_empty() {
            return;
        }
        // A plugin has its pod's end up only after its port is written: no frame comes before.
        let ignored = match datapath {
            Datapath::Kernel => Vec::new(),
            Datapath::Userspace => ports.iter().map(|(name, ..)| name.clone()).collect(),
        };
        let new = ports.iter().map(|(name, columns, _)| (name.as_str(), columns, None));
        let (transaction, interfaces): (Transaction, Vec<NamedUuid>) =
            rows::insert_new(new, "write");
        let waiting = ports.into_iter().map(|(_, _, waiting)| waiting);
        self.sent = Some(Sent {
            outcome: written(client.clone(), ignored, transaction).boxed(),
            ports: interfaces.into_iter().zip(waiting).collect(),
        });
    }

    fn written(&mut self, outcome: Result<Outcome, NotWritten>, updates: &Updates) {
        let Some(Sent { ports, .. }) = self.sent.take() else { return };
        match outcome {
            Ok(outcome) => {
                self.metrics.written(ports.len());
                for (interface, waiting) in ports {
                    let uuid = outcome.uuid(&interface);
                    // If the channel is closed, the plugin has gone or rolls back: its DEL finds
                    // the row by the sandbox.
                    let _ = waiting.news.send(PortStatus::Written);
                    self.waiting.insert(uuid, waiting);
                    self.tell(uuid, updates);
                }
            }
            // The channels of `ports` close here: each plugin looks for its port itself.
            Err(error) => tracing::info!(
                ports = ports.len(),
                error = crate::chain(&error),
                "ports of pods are left to their plugins"
            ),
        }
    }

    /// Sends what is new of a port, until it works or fails.
    fn tell(&mut self, uuid: Uuid, updates: &Updates) {
        let Some(waiting) = self.waiting.get_mut(&uuid) else { return };
        // The monitor's update may not have arrived yet.
        let Some(row) = updates.row::<InterfaceRow>(uuid) else { return };
        let Ok(reached) = row.state().progress(waiting.iface_id.as_str()) else {
            self.waiting.remove(&uuid);
            return;
        };
        for news in [PortStatus::Numbered, PortStatus::Installed] {
            if waiting.said < news && news <= reached {
                waiting.said = news;
                if waiting.news.send(news).is_err() {
                    self.waiting.remove(&uuid);
                    return;
                }
            }
        }
        if waiting.said == PortStatus::Installed {
            self.waiting.remove(&uuid);
        }
    }
}

/// The requests with nothing in their way, neither in the database nor among the requests before
/// them: name, rows and waiting plugin of each.
fn unobstructed(
    wanted: Vec<WriteRequest>,
    updates: &Updates,
) -> Vec<(IfName, PortColumns, Waiting)> {
    let rows = || updates.rows::<InterfaceRow>().map(|(_, row)| row);
    let names: HashSet<&str> = rows().map(|row| row.name.as_str()).collect();
    let iface_ids: HashSet<&str> =
        rows().filter_map(|row| row.external_ids.get(IFACE_ID)).map(String::as_str).collect();
    let has_holder = |ids: &BTreeMap<String, String>| {
        let wanted: Vec<&str> = rows::addresses(ids).collect();
        let has_one = |row: &&InterfaceRow| {
            rows::addresses(&row.external_ids).any(|other| wanted.contains(&other))
        };
        !wanted.is_empty()
            && rows()
                .filter(has_one)
                .any(|row| rows::holds_address(row.ofport, &row.external_ids, ids))
    };
    let mut free: Vec<(IfName, PortColumns, Waiting)> = Vec::new();
    for WriteRequest { port: PlannedPort { name, iface_id, columns }, news } in wanted {
        let is_taken = names.contains(name.as_str())
            || iface_ids.contains(iface_id.as_str())
            || has_holder(&columns.external_ids);
        if is_taken
            || free.iter().any(|(other, _, waiting)| *other == name || waiting.iface_id == iface_id)
        {
            continue;
        }
        free.push((name, columns, Waiting { iface_id, news, said: PortStatus::Written }));
    }
    free
}

/// Has the host's own stack ignore what these links receive, and then writes their ports: one
/// transaction of the kernel, and one of the database.
async fn written(
    client: Client,
    ignored: Vec<IfName>,
    transaction: Transaction,
) -> Result<Outcome, NotWritten> {
    Devices::Ports.ignore(&ignored).await.map_err(NotWritten::Ingress)?;
    Ok(client.transact(transaction).await?)
}

/// The outcome of the transaction in flight; waits for ever if there is none.
async fn settled(sent: &mut Option<Sent>) -> Result<Outcome, NotWritten> {
    match sent {
        Some(sent) => (&mut sent.outcome).await,
        None => std::future::pending().await,
    }
}
