//! The reconciler of attachments. It knows rows, links and pods, and decides when to look and what to do
//! then. It acts on events; what fails is tried again less and less often. It waits for nothing but the next
//! event, because every ADD waits for the ports that it writes: slow work runs in tasks beside it, one that
//! restores and one that removes.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use contract::names::PodKey;
use ovsdb::{Client, Event, Options, Updates, Uuid};
use podnet::{
    interface_lock,
    link::{Link, LinkError},
    plan::Identity,
    settings::{SHORT_TIMEOUT, Settings},
};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinHandle},
    time::{Instant, sleep_until},
};

use super::{
    Environment,
    hands::{self, Hands, Question, ended},
    links::{Known, LinkNews, Links},
    plan::{Doubt, Life, Plan, StaleAttachment, View},
    port_cache::{self, News, PortCache, RecordedPort},
    restore::{Missing, Restored},
    stale_candidates::StaleCandidates,
    writer::Writer,
};
use crate::{
    conditions::Part,
    pods::{PodSource, Readiness},
    ports::WriteQueue,
};

/// The longest time without a look, in case an event was lost. A lost event leaves a pod without a network
/// for this long; a look compares all attachments, so it should not be much more frequent.
const RESYNC: Duration = Duration::from_secs(30);
/// From an event to the look. Most ports vanish because of a DEL, which removes the link next: an immediate
/// look would restore them in vain.
const SETTLE: Duration = Duration::from_millis(100);
/// The same for ports of upstream's plugin, whose calls take no per-interface lock. If it is too short, ports
/// are restored while upstream's DEL removes them.
const GRACE: Duration = Duration::from_secs(1);
/// What failed is tried again after this long, and then less and less often, up to [`RESYNC`]. Usually a call
/// of the plugin holds the per-interface lock for a moment.
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// From the start of a restoration to the next look, which finds ports that vanished meanwhile or again.
/// Usually the restoration ends before, which is followed by a look as well.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// The longest pause between attempts to connect to Open vSwitch's database. After its restart, every port
/// that a pod waits for waits for this connection.
const PAUSE: Duration = Duration::from_millis(500);
/// How long ovn-controller may take to install restored ports before that is logged: it may be restarting,
/// too, and then goes through all of its flows.
const INSTALL: Duration = Duration::from_secs(10);

/// The reconciler of a node's attachments.
pub(crate) struct Reconciler {
    around: Arc<Environment>,
    client: Client,
    updates: Updates,
    links: Links,
    hands: Hands,
    questions: mpsc::UnboundedReceiver<Question>,
    /// The list of all links, while the kernel is asked for it.
    listing: Option<JoinHandle<Result<Vec<Link>, LinkError>>>,
    restoring: Option<JoinHandle<Restored>>,
    sweeping: Option<JoinHandle<()>>,
    /// What is being removed: not suspected again meanwhile.
    swept: HashSet<Identity>,
    /// What is removed next.
    to_sweep: Vec<StaleAttachment>,
    ports: Writer,
    /// Sandboxes that another plugin than this project's begins to detach.
    leavers: mpsc::UnboundedReceiver<String>,
    /// Sandboxes whose ports vanish because they are being detached.
    leaving: HashSet<String>,
    journal: PortCache,
    suspicion: StaleCandidates,
    is_connected: bool,
    /// When to look next.
    due: Instant,
    retry: Duration,
    /// Ports of upstream's plugin that are missing, and since when.
    graces: HashMap<String, Instant>,
    doubt: Option<Doubt>,
    /// Restored interfaces that do not work yet.
    awaited: Option<Awaited>,
}

/// Interfaces that were restored.
#[derive(Debug)]
struct Awaited {
    since: Instant,
    interfaces: HashSet<Uuid>,
}

/// Whether everything was done that a look called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    All,
    /// Something was left for later.
    NotAll,
}

impl Reconciler {
    /// Starts to listen to the kernel and the database. Needs a tokio runtime.
    pub(crate) fn new(around: Environment, orders: WriteQueue) -> io::Result<Self> {
        // Listens before the first list is made, so that no event in between is missed.
        let links = Links::listen()?;
        let options = Options { backoff_max: PAUSE, ..Options::small() };
        let (client, updates) =
            Client::start(around.endpoint.clone().into(), "Open_vSwitch", port_cache::monitor(), options);
        let calls = interface_lock::directory_beside(&around.socket);
        let plugin = Arc::new(Settings { calls, ..Settings::with_ovsdb(&around.endpoint, SHORT_TIMEOUT) });
        let around = Arc::new(around);
        let (asking, questions) = mpsc::unbounded_channel();
        let hands = Hands { around: Arc::clone(&around), client: client.clone(), plugin, questions: asking };
        let WriteQueue { jobs, leaving: leavers, bridge, names } = orders;
        let ports = Writer::new(jobs, bridge, names, Arc::clone(&around.metrics));
        Ok(Self {
            around,
            client,
            updates,
            links,
            hands,
            questions,
            listing: None,
            restoring: None,
            sweeping: None,
            swept: HashSet::new(),
            to_sweep: Vec::new(),
            ports,
            leavers,
            leaving: HashSet::new(),
            journal: PortCache::default(),
            suspicion: StaleCandidates::default(),
            is_connected: false,
            due: Instant::now() + RESYNC,
            retry: FIRST_RETRY,
            graces: HashMap::new(),
            doubt: None,
            awaited: None,
        })
    }

    /// Runs for as long as the server lives.
    pub(crate) async fn run(mut self) {
        let mut conditions = self.around.conditions.watch();
        let mut own_node = self.around.own_node.clone();
        let mut pods_were_known = false;
        loop {
            tokio::select! {
                event = self.updates.next() => self.database_says(event),
                news = self.links.next() => self.kernel_says(news),
                step = self.ports.next() => self.ports.take(step, &self.client, &self.updates),
                changed = conditions.changed() => {
                    let are_known = changed.is_ok() && !conditions.borrow_and_update().contains_key(&Part::PODS);
                    // Before the pods are known, no attachment can be found stale: now it can.
                    if are_known && !pods_were_known {
                        self.look_soon();
                    }
                    pods_were_known = are_known;
                    if changed.is_err() {
                        // The server ends.
                        return;
                    }
                }
                Ok(()) = own_node.changed() => self.look_soon(),
                listed = ended(&mut self.listing) => self.listed(listed),
                restored = ended(&mut self.restoring) => self.restored(restored),
                _ = ended(&mut self.sweeping) => self.sweep_next(),
                Some(Question { links, answer }) = self.questions.recv() => {
                    let plan = self.compare(&Known::of(links.iter().cloned()));
                    // The task that asked may have ended with the runtime.
                    let _ = answer.send(plan.suspects);
                }
                () = sleep_until(self.due) => self.look(),
            }
        }
    }

    fn database_says(&mut self, event: Event) {
        // The writer first: plugins wait for it.
        self.ports.database_says(&event, &self.client, &self.updates);
        match event {
            Event::Connected => {
                self.is_connected = true;
                self.look_soon();
            }
            Event::Disconnected(_) => self.is_connected = false,
            Event::Changed(changes) => {
                if self.journal.follow(&self.updates, &changes) == News::Look {
                    self.look_soon();
                }
                self.see_installed();
            }
        }
    }

    fn kernel_says(&mut self, news: LinkNews) {
        match news {
            LinkNews::Gone(names) if names.iter().any(|name| self.journal.knows(name)) => self.look_soon(),
            LinkNews::Gone(_) => {}
            LinkNews::Unknown => self.look_soon(),
        }
    }

    fn look_soon(&mut self) {
        self.due = self.due.min(Instant::now() + SETTLE);
    }

    /// Compares, and starts repairs.
    fn look(&mut self) {
        let now = Instant::now();
        self.due = now + RESYNC;
        self.say_late(now);
        if !self.is_connected || !port_cache::has_bridge(&self.updates) || self.listing.is_some() {
            return;
        }
        // Without a complete list of links, every port would seem to have lost its link.
        let Some(known) = self.links.known() else {
            self.links.listing();
            self.listing = Some(hands::list());
            return;
        };
        let Plan { missing, suspects, doubt } = self.compare(known);
        // Before anything is restored: this also learns which sandboxes are being detached.
        self.forget();
        self.say_doubt(doubt);
        let done = self.put_back(missing, now);
        if let Some(patience) = self.around.patience {
            // A suspect that is being removed must not be confirmed a second time.
            let suspects =
                suspects.into_iter().filter(|suspect| !self.swept.contains(&suspect.identity)).collect();
            let confirmed = self.suspicion.confirm(suspects, now, patience);
            self.due = self.due.min(self.suspicion.due().map_or(self.due, |due| due.max(now + SETTLE)));
            self.swept.extend(confirmed.iter().map(|suspect| suspect.identity.clone()));
            self.to_sweep.extend(confirmed);
            self.sweep_next();
        }
        self.go_on(done);
    }

    /// Sets the time of the next look, which comes later each time while something cannot be done.
    fn go_on(&mut self, done: Done) {
        match done {
            Done::All => self.retry = FIRST_RETRY,
            Done::NotAll => {
                self.due = self.due.min(Instant::now() + self.retry);
                self.retry = (self.retry * 2).min(RESYNC);
            }
        }
    }

    fn listed(&mut self, listed: Result<Result<Vec<Link>, LinkError>, JoinError>) {
        let links = listed.ok().and_then(|listed| listed.inspect_err(hands::say_unlisted).ok());
        let is_there = links.is_some();
        self.links.listed(links);
        if is_there {
            // The look that needed the list has not compared anything yet.
            self.due = Instant::now();
        } else {
            self.go_on(Done::NotAll);
        }
    }

    fn restored(&mut self, restored: Result<Restored, JoinError>) {
        let Ok(Restored { done, interfaces }) = restored else { return self.go_on(Done::NotAll) };
        if !interfaces.is_empty() {
            let awaited = self
                .awaited
                .get_or_insert_with(|| Awaited { since: Instant::now(), interfaces: HashSet::new() });
            awaited.interfaces.extend(interfaces);
            self.see_installed();
        }
        // Ports that vanished while the task ran were left out.
        self.look_soon();
        self.go_on(done);
    }

    /// Starts the next removal, unless one is running.
    fn sweep_next(&mut self) {
        if self.sweeping.is_none() {
            // What could not be removed may be suspected again from now on.
            self.swept = self.to_sweep.iter().map(|suspect| suspect.identity.clone()).collect();
            let confirmed = std::mem::take(&mut self.to_sweep);
            if !confirmed.is_empty() {
                self.sweeping = Some(tokio::spawn(self.hands.clone().sweep(confirmed)));
            }
        }
    }

    /// Compares these links with rows and pods as known now.
    fn compare(&self, known: &Known) -> Plan {
        let (links, others) = (&known.veths, known.other_names());
        let names: HashSet<&str> = port_cache::names(&self.updates).collect();
        let recorded: Vec<Arc<RecordedPort>> = self.journal.iter().cloned().collect();
        let present = self.journal.present(&self.updates);
        let pods = |pod: &PodKey, uid: &str| life(&*self.around.pods, pod, uid);
        let own_node = &*self.around.own_node.borrow();
        let deviceless = port_cache::deviceless(&self.updates).collect();
        let (recorded, present) = (&recorded, &present);
        View {
            recorded,
            present,
            names: &names,
            links,
            others: &others,
            deviceless: &deviceless,
            own_node,
            pods: &pods,
        }
        .compare()
    }

    /// Forgets attachments that have neither row nor link any more, and sandboxes that are detached by now.
    fn forget(&mut self) {
        let Some(known) = self.links.known() else { return };
        let linked: HashSet<&str> = known.veths.values().map(|link| link.name.as_str()).collect();
        let names: HashSet<&str> = port_cache::names(&self.updates).collect();
        self.journal.forget(|attached| {
            !linked.contains(attached.name.as_str()) && !names.contains(attached.name.as_str())
        });
        while let Ok(sandbox) = self.leavers.try_recv() {
            self.leaving.insert(sandbox);
        }
        // The DEL has ended once neither row nor link is left.
        self.leaving.retain(|sandbox| {
            self.journal.iter().any(|attached| attached.identity.sandbox.as_str() == sandbox)
        });
    }

    fn put_back(&mut self, mut missing: Vec<Arc<RecordedPort>>, now: Instant) -> Done {
        missing.retain(|attached| !self.leaving.contains(attached.identity.sandbox.as_str()));
        let names: HashSet<&str> = missing.iter().map(|attached| attached.name.as_str()).collect();
        self.graces.retain(|name, _| names.contains(name.as_str()));
        let all = missing.len();
        // This project's calls are seen by their locks, upstream's are not: its ports have to be missing for
        // a while.
        missing.retain(|attached| {
            let mut since = || *self.graces.entry(attached.name.clone()).or_insert(now);
            attached.names_pods_end() || now.duration_since(since()) >= GRACE
        });
        let ripe = missing.len() == all;
        // The running task may be restoring these ports; the look after its end starts the rest.
        if !missing.is_empty() && self.restoring.is_none() {
            let qos =
                |attached: &RecordedPort| attached.qos.filter(|qos| port_cache::has_qos(&self.updates, *qos));
            let missing =
                missing.into_iter().map(|attached| Missing { qos: qos(&attached), attached }).collect();
            self.restoring = Some(tokio::spawn(self.hands.clone().restore(missing)));
            self.due = self.due.min(now + AFTERWARDS);
        }
        if ripe { Done::All } else { Done::NotAll }
    }

    fn say_doubt(&mut self, doubt: Option<Doubt>) {
        // Reported when it changes, not at each look.
        if self.doubt == doubt {
            return;
        }
        let conditions = &self.around.conditions;
        match &doubt {
            Some(Doubt { gone, known, why }) => {
                let remark = format!(
                    "{gone} attached pods are said to be gone, {known} are known, and nothing confirms \
                     that these are the pods of this host: {why}; nothing of them is removed"
                );
                let hint =
                    "do --init-node and the API server (or --pod-manifests) name this host and its cluster?";
                tracing::warn!(
                    gone,
                    known,
                    why,
                    hint,
                    "attached pods are said to be gone; nothing is removed until that is confirmed"
                );
                self.around.events.doubtful(&self.around.node, &format!("{remark}; {hint}"));
                conditions.remark(Part::PODS, remark);
            }
            None => {
                tracing::info!("this host's list of pods is trusted again");
                conditions.unremark(Part::PODS);
            }
        }
        self.doubt = doubt;
    }

    /// Logs once all restored ports work.
    fn see_installed(&mut self) {
        let Some(Awaited { since, interfaces }) = &mut self.awaited else { return };
        interfaces.retain(|interface| !port_cache::is_installed(&self.updates, *interface));
        if interfaces.is_empty() {
            tracing::info!(
                ms = since.elapsed().as_millis(),
                "ovn-controller has connected the ports that were put back"
            );
            self.awaited = None;
        }
    }

    /// Warns once if restored ports do not work in time.
    fn say_late(&mut self, now: Instant) {
        let Some(Awaited { since, interfaces }) = &mut self.awaited else { return };
        // A port that was detached meanwhile is not late.
        interfaces.retain(|interface| self.updates.row::<port_cache::Interface>(*interface).is_some());
        let (late, ports) = (now.duration_since(*since) >= INSTALL, interfaces.len());
        if late && ports > 0 {
            let hint = "does OVN know them (ovn-nbctl lsp-get-type), and is ovn-controller on this node \
                        connected? See its log";
            tracing::warn!(ports, hint, "ports that were put back do not work yet");
        }
        if late || ports == 0 {
            self.awaited = None;
        }
    }
}

/// What is known of a pod. `uid` is that of the requested one; empty if unknown.
fn life(pods: &dyn PodSource, pod: &PodKey, uid: &str) -> Life {
    let known = pods.watch(pod).now();
    match known {
        Some(known)
            if uid.is_empty()
                || known.facts.uid.is_empty()
                || known.facts.uid == uid
                || known.facts.is_mirror() =>
        {
            Life::Living(known.facts.clone())
        }
        // Gone only if the source is up to date, and not for a static pod whose mirror is being replaced.
        Some(_) | None if pods.readiness() == Readiness::Synced && !pods.awaits_mirror(pod) => Life::Gone,
        Some(_) | None => Life::Unknown,
    }
}
