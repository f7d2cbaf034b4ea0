//! Ports of pods, written for the plugins that ask for it: those that wait at the same moment in one transaction, and the next ones once
//! ovs-vswitchd has seen to these. It goes through its whole configuration for every transaction, and ovn-controller through what is new.
//!
//! Writes what is simple and says good news only. Whatever is in a port's way (a row of its name or logical port, an address that is taken, a
//! database that is away) the plugin finds and words itself, as it does without a server. Must not know what asks.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use cni::rows::{self, Content};
use contract::{
    external_ids::{IFACE_ID, IP_ADDRESS, NAD, OVN_INSTALLED, SANDBOX},
    paths::INTEGRATION_BRIDGE,
    wire::{BridgeFacts, PortNews, PortRequest},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use ovsdb::{Client, Endpoint, Event, Monitor, NamedUuid, Options, Outcome, TransactError, Transaction, Updates, Uuid, Where};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

ovsdb::table! {
    struct Bridge in "Bridge" {
        name: String,
        datapath_type: String,
    }

    struct Interface in "Interface" {
        name: String,
        ofport: Option<i64>,
        error: Option<String>,
        external_ids: BTreeMap<String, String>,
    }
}

/// How long ports wait for those before them to get their numbers.
const HOLD: Duration = Duration::from_millis(100);
/// The longest pause between attempts to connect to Open vSwitch's database.
const PAUSE: Duration = Duration::from_millis(500);

/// Writes ports. Clones share the task that does.
#[derive(Debug, Clone)]
pub struct Ports(Option<Shared>);

#[derive(Debug, Clone)]
struct Shared {
    jobs: mpsc::UnboundedSender<Job>,
    bridge: watch::Receiver<Option<BridgeFacts>>,
}

/// One port that is asked for. Whoever asked has gone if nobody listens to the news.
#[derive(Debug)]
struct Job {
    request: PortRequest,
    news: mpsc::UnboundedSender<PortNews>,
}

impl Ports {
    /// Nobody does: every plugin writes its own.
    pub fn none() -> Self {
        Self(None)
    }

    /// Begins to listen to the database at `endpoint`. Needs a tokio runtime.
    pub fn start(endpoint: &Endpoint) -> Self {
        let (jobs, asked) = mpsc::unbounded_channel();
        let (says, bridge) = watch::channel(None);
        let monitor = Monitor::new().table::<Bridge>(Where::all()).table::<Interface>(Where::all());
        let options = Options { backoff_max: PAUSE, ..Options::small() };
        let (client, updates) = Client::start(endpoint.clone().into(), "Open_vSwitch", monitor, options);
        let writer = Writer { client, updates, bridge: says, queue: Vec::new(), oldest: None, sent: None, waiting: HashMap::new() };
        tokio::spawn(writer.work(asked));
        Self(Some(Shared { jobs, bridge }))
    }

    /// The bridge, as long as ports can be written.
    pub fn bridge(&self) -> Option<BridgeFacts> {
        self.0.as_ref().and_then(|shared| shared.bridge.borrow().clone())
    }

    /// Asks for a port. The news end without [`PortNews::Installed`] if it is for the plugin to go on.
    pub fn write(&self, request: PortRequest) -> mpsc::UnboundedReceiver<PortNews> {
        let (news, listener) = mpsc::unbounded_channel();
        if let Some(shared) = &self.0 {
            // Nobody is there to write when the server ends: so are the news.
            let _ = shared.jobs.send(Job { request, news });
        }
        listener
    }
}

/// The task.
struct Writer {
    client: Client,
    updates: Updates,
    bridge: watch::Sender<Option<BridgeFacts>>,
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

impl Writer {
    /// For as long as somebody may ask.
    async fn work(mut self, mut asked: mpsc::UnboundedReceiver<Job>) {
        loop {
            let hold = self.oldest.map(|oldest| oldest + HOLD).filter(|_| self.sent.is_none());
            tokio::select! {
                event = self.updates.next() => self.database_says(event),
                outcome = settled(&mut self.sent) => self.written(outcome),
                job = asked.recv() => match job {
                    None => return,
                    Some(job) => self.enqueue(job),
                },
                () = sleep_until(hold.unwrap_or_else(Instant::now)), if hold.is_some() => {}
            }
            while let Ok(job) = asked.try_recv() {
                self.enqueue(job);
            }
            self.write(Instant::now());
        }
    }

    fn enqueue(&mut self, job: Job) {
        self.oldest.get_or_insert_with(Instant::now);
        self.queue.push(job);
    }

    fn database_says(&mut self, event: Event) {
        match event {
            Event::Connected => self.look_at_bridge(),
            Event::Disconnected(_) => {
                self.bridge.send_replace(None);
                // Each plugin looks what became of its port.
                self.queue.clear();
                self.oldest = None;
                self.waiting.clear();
            }
            Event::Changed(changes) => {
                if changes.of::<Bridge>().next().is_some() {
                    self.look_at_bridge();
                }
                let changed: HashSet<Uuid> = changes.of::<Interface>().map(|change| change.uuid).collect();
                changed.into_iter().for_each(|uuid| self.tell(uuid));
            }
        }
    }

    fn look_at_bridge(&self) {
        let bridge = self.updates.rows::<Bridge>().map(|(_, bridge)| bridge).find(|bridge| bridge.name == INTEGRATION_BRIDGE);
        let facts = bridge.map(|bridge| BridgeFacts { datapath_type: bridge.datapath_type.clone() });
        self.bridge.send_if_modified(|now| std::mem::replace(now, facts.clone()) != facts);
    }

    /// Sends what waits, unless something else is under way.
    fn write(&mut self, now: Instant) {
        let Some(oldest) = self.oldest else { return };
        // Whoever has gone does not hear when its port is, or that it never will be.
        self.waiting.retain(|_, waiting| !waiting.job.news.is_closed());
        let busy = self.waiting.values().any(|waiting| waiting.said < PortNews::Numbered);
        if self.sent.is_some() || busy && now < oldest + HOLD {
            return;
        }
        self.oldest = None;
        let mut taken = Taken::by(&self.updates);
        // Whoever is left out hears that the news are over.
        let jobs: Vec<(Job, Content)> =
            self.queue.drain(..).filter(|job| !job.news.is_closed() && taken.take(&job.request)).map(with_content).collect();
        if jobs.is_empty() {
            return;
        }
        let ports = jobs.iter().map(|(job, content)| (job.request.name.as_str(), content, None));
        let (transaction, interfaces): (Transaction, Vec<NamedUuid>) = rows::insert_new(ports, "write");
        let ports = jobs.into_iter().map(|(job, _)| job).zip(interfaces).collect();
        self.sent = Some(Sent { outcome: self.client.transact(transaction).boxed(), ports });
    }

    fn written(&mut self, outcome: Result<Outcome, TransactError>) {
        let Some(Sent { ports, .. }) = self.sent.take() else { return };
        match outcome {
            Ok(outcome) => {
                for (job, interface) in ports {
                    let uuid = outcome.uuid(&interface);
                    // If nobody listens any more, its caller is gone, or undoes it: DEL finds the row by its sandbox.
                    let _ = job.news.send(PortNews::Written);
                    self.waiting.insert(uuid, Waiting { job, said: PortNews::Written });
                    self.tell(uuid);
                }
            }
            Err(error) => tracing::info!(ports = ports.len(), error = crate::chain(&error), "ports of pods are left to their plugins"),
        }
    }

    /// Says what is new of a port; stops when there is nothing more to say.
    fn tell(&mut self, uuid: Uuid) {
        let Some(waiting) = self.waiting.get_mut(&uuid) else { return };
        let reached = self.updates.row::<Interface>(uuid).and_then(|row| reached(row, &waiting.job.request));
        let Some(reached) = reached else {
            // The row has not arrived yet, if nothing was seen of it; else it is gone, or another's, or of no use.
            if self.updates.row::<Interface>(uuid).is_some() || waiting.said > PortNews::Written {
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
