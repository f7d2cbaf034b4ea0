//! Writes ports for the plugins that ask for it: those that wait at the same moment in one transaction, and the next ones once
//! ovs-vswitchd has seen to these. It goes through its whole configuration for every transaction, and ovn-controller through what is new.
//!
//! Writes what is simple and says good news only. Whatever is in a port's way (a row of its name or logical port, an address that is taken, a
//! database that is away) the plugin finds and words itself, as it does without a server. Must not know what asks.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cni::rows::{self, Content};
use contract::{
    external_ids::{IFACE_ID, IP_ADDRESS, NAD, OVN_INSTALLED, SANDBOX},
    paths::INTEGRATION_BRIDGE,
    wire::{BridgeFacts, PortNews, PortRequest},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use ovsdb::{ChangeKind, Client, Event, NamedUuid, Outcome, TransactError, Transaction, Updates, Uuid};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::journal::{self, Bridge, Interface};
use crate::{
    metrics::Metrics,
    ports::{Job, names::Names},
};

/// How long ports wait for those before them to get their numbers.
const HOLD: Duration = Duration::from_millis(15);

/// What is asked for, and how far it is.
pub(super) struct Writer {
    jobs: mpsc::UnboundedReceiver<Job>,
    bridge: watch::Sender<Option<BridgeFacts>>,
    names: Arc<Names>,
    metrics: Arc<Metrics>,
    queue: Vec<Job>,
    /// When the first of the queue came.
    oldest: Option<Instant>,
    sent: Option<Sent>,
    /// Ports that are written and do not work yet, by their Interface rows.
    waiting: HashMap<Uuid, Waiting>,
}

/// A transaction under way.
struct Sent {
    outcome: BoxFuture<'static, Result<Outcome, TransactError>>,
    ports: Vec<(Job, NamedUuid)>,
}

struct Waiting {
    job: Job,
    /// The last that was said.
    said: PortNews,
}

/// What happened, for [`Writer::take`].
pub(super) enum Step {
    Asked(Job),
    Settled(Result<Outcome, TransactError>),
    /// Those that wait have waited for long enough.
    Due,
}

impl Writer {
    pub(super) fn new(
        jobs: mpsc::UnboundedReceiver<Job>,
        bridge: watch::Sender<Option<BridgeFacts>>,
        names: Arc<Names>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { jobs, bridge, names, metrics, queue: Vec::new(), oldest: None, sent: None, waiting: HashMap::new() }
    }

    /// Waits for the next step. Cancellation-safe.
    pub(super) async fn next(&mut self) -> Step {
        let due = self.oldest.map(|oldest| oldest + HOLD).filter(|_| self.sent.is_none());
        tokio::select! {
            outcome = settled(&mut self.sent) => Step::Settled(outcome),
            Some(job) = self.jobs.recv() => Step::Asked(job),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Step::Due,
        }
    }

    pub(super) fn take(&mut self, step: Step, client: &Client, updates: &Updates) {
        match step {
            Step::Asked(job) => {
                self.enqueue(job);
                while let Ok(job) = self.jobs.try_recv() {
                    self.enqueue(job);
                }
            }
            Step::Settled(outcome) => self.written(outcome, updates),
            Step::Due => {}
        }
        self.write(client, updates, Instant::now());
    }

    fn enqueue(&mut self, job: Job) {
        self.oldest.get_or_insert_with(Instant::now);
        self.queue.push(job);
    }

    pub(super) fn database_says(&mut self, event: &Event, client: &Client, updates: &Updates) {
        match event {
            Event::Connected => {
                self.names.are(journal::names(updates), Instant::now());
                self.look_at_bridge(updates);
            }
            Event::Disconnected(_) => {
                self.bridge.send_replace(None);
                // Each plugin looks what became of its port.
                self.queue.clear();
                self.oldest = None;
                self.waiting.clear();
            }
            Event::Changed(changes) => {
                if changes.of::<Bridge>().any(|change| change.columns().contains(&"datapath_type")) {
                    self.look_at_bridge(updates);
                }
                for change in changes.of::<Interface>() {
                    match change.kind {
                        ChangeKind::Delete => {
                            if let Some(row) = change.old::<Interface>() {
                                self.names.goes(&row.name, Instant::now());
                            }
                            self.waiting.remove(&change.uuid);
                        }
                        ChangeKind::Insert => {
                            if let Some(row) = updates.row::<Interface>(change.uuid) {
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
        let bridge = updates.rows::<Bridge>().map(|(_, bridge)| bridge).find(|bridge| bridge.name == INTEGRATION_BRIDGE);
        let facts = bridge.map(|bridge| BridgeFacts { datapath_type: bridge.datapath_type.clone() });
        self.bridge.send_if_modified(|now| std::mem::replace(now, facts.clone()) != facts);
    }

    /// Sends what waits, unless something else is under way.
    fn write(&mut self, client: &Client, updates: &Updates, now: Instant) {
        let Some(oldest) = self.oldest else { return };
        if self.bridge.borrow().is_none() {
            self.queue.clear();
            self.oldest = None;
            return;
        }
        // Whoever has gone does not hear when its port is, or that it never will be.
        self.waiting.retain(|_, waiting| !waiting.job.news.is_closed());
        let busy = self.waiting.values().any(|waiting| waiting.said < PortNews::Numbered);
        if self.sent.is_some() || busy && now < oldest + HOLD {
            return;
        }
        self.oldest = None;
        let mut taken = Taken::by(updates);
        // Whoever is left out hears that the news are over.
        let jobs: Vec<(Job, Content)> =
            self.queue.drain(..).filter(|job| !job.news.is_closed() && taken.take(&job.request)).map(with_content).collect();
        if jobs.is_empty() {
            return;
        }
        let ports = jobs.iter().map(|(job, content)| (job.request.name.as_str(), content, None));
        let (transaction, interfaces): (Transaction, Vec<NamedUuid>) = rows::insert_new(ports, "write");
        let ports = jobs.into_iter().map(|(job, _)| job).zip(interfaces).collect();
        self.sent = Some(Sent { outcome: client.transact(transaction).boxed(), ports });
    }

    fn written(&mut self, outcome: Result<Outcome, TransactError>, updates: &Updates) {
        let Some(Sent { ports, .. }) = self.sent.take() else { return };
        match outcome {
            Ok(outcome) => {
                self.metrics.written(ports.len());
                for (job, interface) in ports {
                    let uuid = outcome.uuid(&interface);
                    // If nobody listens any more, its caller is gone, or undoes it: DEL finds the row by its sandbox.
                    let _ = job.news.send(PortNews::Written);
                    self.waiting.insert(uuid, Waiting { job, said: PortNews::Written });
                    self.tell(uuid, updates);
                }
            }
            Err(error) => tracing::info!(ports = ports.len(), error = crate::chain(&error), "ports of pods are left to their plugins"),
        }
    }

    /// Says what is new of a port; stops when there is nothing more to say.
    fn tell(&mut self, uuid: Uuid, updates: &Updates) {
        let Some(waiting) = self.waiting.get_mut(&uuid) else { return };
        let reached = updates.row::<Interface>(uuid).and_then(|row| reached(row, &waiting.job.request));
        let Some(reached) = reached else {
            // The row has not arrived yet, or is another's, or of no use.
            if updates.row::<Interface>(uuid).is_some() {
                self.waiting.remove(&uuid);
            }
            return;
        };
        for news in [PortNews::Numbered, PortNews::Installed] {
            if waiting.said < news && news <= reached {
                waiting.said = news;
                if waiting.job.news.send(news).is_err() {
                    self.waiting.remove(&uuid);
                    return;
                }
            }
        }
        if waiting.said == PortNews::Installed {
            self.waiting.remove(&uuid);
        }
    }
}

/// How far a port is; none if it cannot get there.
fn reached(row: &Interface, request: &PortRequest) -> Option<PortNews> {
    if row.external_ids.get(IFACE_ID) != request.external_ids.get(IFACE_ID) || row.error.is_some() {
        return None;
    }
    let installed = row.external_ids.get(OVN_INSTALLED).is_some_and(|value| value == "true");
    match row.ofport {
        Some(..=0) => None,
        None => Some(PortNews::Written),
        Some(_) if installed => Some(PortNews::Installed),
        Some(_) => Some(PortNews::Numbered),
    }
}

fn with_content(job: Job) -> (Job, Content) {
    let PortRequest { external_ids, ingress_policing, qos, .. } = job.request.clone();
    (job, Content { external_ids, policing: ingress_policing, qos })
}

/// What ports have already.
struct Taken<'a> {
    names: HashSet<String>,
    iface_ids: HashSet<String>,
    updates: &'a Updates,
}

impl<'a> Taken<'a> {
    fn by(updates: &'a Updates) -> Self {
        let rows = || updates.rows::<Interface>().map(|(_, row)| row);
        Self {
            names: rows().map(|row| row.name.clone()).collect(),
            iface_ids: rows().filter_map(|row| row.external_ids.get(IFACE_ID).cloned()).collect(),
            updates,
        }
    }

    /// Whether nothing is in this port's way; it is in the way of others then.
    fn take(&mut self, request: &PortRequest) -> bool {
        let Some(iface_id) = request.external_ids.get(IFACE_ID) else { return false };
        if self.iface_ids.contains(iface_id) || self.names.contains(&request.name) || self.has_holder(request) {
            return false;
        }
        self.iface_ids.insert(iface_id.clone());
        self.names.insert(request.name.clone());
        true
    }

    /// Whether a working port of the same network has the address; see [`rows::holder_of_address`].
    fn has_holder(&self, request: &PortRequest) -> bool {
        let same = |row: &Interface, key: &str| row.external_ids.get(key) == request.external_ids.get(key);
        !request.address.is_empty()
            && self.updates.rows::<Interface>().map(|(_, row)| row).any(|row| {
                let id = |key: &str| row.external_ids.get(key).map(String::as_str);
                id(IP_ADDRESS) == Some(&request.address)
                    && id(SANDBOX).is_some()
                    && id(OVN_INSTALLED) == Some("true")
                    && row.ofport.is_some_and(|ofport| ofport > 0)
                    && same(row, NAD)
            })
    }
}

/// The outcome of what is under way; never, if nothing is.
async fn settled(sent: &mut Option<Sent>) -> Result<Outcome, TransactError> {
    match sent {
        Some(sent) => (&mut sent.outcome).await,
        None => std::future::pending().await,
    }
}
