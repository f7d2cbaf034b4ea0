//! The task that knows rows, links and pods: when to look, and what to do then. Events only; what could not be done is tried again, less and
//! less often. It waits for nothing but the next event, because every ADD waits for the ports that it writes: what takes time is done beside
//! it, putting back and removing each at its own pace.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use contract::names::PodKey;
use ovsdb::{Client, Event, Options, Updates, Uuid};
use podnet::{
    fence,
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
    Surroundings,
    hands::{self, Hands, Question, ended},
    journal::{self, Attached, Journal, News},
    links::{Known, LinkNews, Links},
    plan::{Doubt, Life, Plan, Suspect, View},
    restore::{Missing, Restored},
    suspicion::Suspicion,
    writer::Writer,
};
use crate::{
    conditions::Part,
    pods::{PodSource, Readiness},
    ports::Orders,
};

/// Looks again after this long without an event, in case that one was lost.
const RESYNC: Duration = Duration::from_secs(30);
/// From an event to the look: most ports vanish because of a DEL, which takes their link next.
const SETTLE: Duration = Duration::from_millis(100);
/// The same for ports of upstream's plugin, whose calls nobody can see.
const GRACE: Duration = Duration::from_secs(1);
/// What could not be done is tried again after this long, and then after longer and longer, up to [`RESYNC`].
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// What was put back is looked at after this long.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// The longest pause between attempts to connect to Open vSwitch's database.
const PAUSE: Duration = Duration::from_millis(500);
/// How long ovn-controller may take to connect ports that were put back.
const INSTALL: Duration = Duration::from_secs(10);

/// Keeps the attachments of a node.
pub(crate) struct Keeper {
    around: Arc<Surroundings>,
    client: Client,
    updates: Updates,
    links: Links,
    hands: Hands,
    questions: mpsc::UnboundedReceiver<Question>,
    /// The kernel is asked for all links.
    listing: Option<JoinHandle<Result<Vec<Link>, LinkError>>>,
    restoring: Option<JoinHandle<Restored>>,
    sweeping: Option<JoinHandle<()>>,
    /// What is being removed: not suspected anew meanwhile.
    swept: HashSet<Identity>,
    /// What is removed next.
    to_sweep: Vec<Suspect>,
    ports: Writer,
    /// Whose detaching begins, if it is not this project's plugin that detaches.
    leavers: mpsc::UnboundedReceiver<String>,
    /// Sandboxes whose ports go because somebody detaches them.
    leaving: HashSet<String>,
    journal: Journal,
    suspicion: Suspicion,
    is_connected: bool,
    /// When to look next.
    due: Instant,
    retry: Duration,
    /// Ports of upstream's plugin that are missing, and since when.
    graces: HashMap<String, Instant>,
    doubt: Option<Doubt>,
    /// Interfaces that were put back and do not work yet.
    awaited: Option<Awaited>,
}

/// Interfaces that were put back.
#[derive(Debug)]
struct Awaited {
    since: Instant,
    interfaces: HashSet<Uuid>,
}

/// Whether all was done that a look called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    All,
    /// Something was left for later.
    NotAll,
}

impl Keeper {
    /// Begins to listen. Needs a tokio runtime.
    pub(crate) fn new(around: Surroundings, orders: Orders) -> io::Result<Self> {
        let links = Links::listen()?;
        let options = Options { backoff_max: PAUSE, ..Options::small() };
        let (client, updates) = Client::start(around.endpoint.clone().into(), "Open_vSwitch", journal::monitor(), options);
        let calls = fence::directory_beside(&around.socket);
        let plugin = Arc::new(Settings { calls, ..Settings::with_ovsdb(&around.endpoint, SHORT_TIMEOUT) });
        let around = Arc::new(around);
        let (asking, questions) = mpsc::unbounded_channel();
        let hands = Hands { around: Arc::clone(&around), client: client.clone(), plugin, questions: asking };
        let Orders { jobs, leaving: leavers, bridge, names } = orders;
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
            journal: Journal::default(),
            suspicion: Suspicion::default(),
            is_connected: false,
            due: Instant::now() + RESYNC,
            retry: FIRST_RETRY,
            graces: HashMap::new(),
            doubt: None,
            awaited: None,
        })
    }

    /// For as long as the server lives.
    pub(crate) async fn keep(mut self) {
        let mut conditions = self.around.conditions.watch();
        let mut own_node = self.around.own_node.clone();
        let mut pods_were_known = false;
        loop {
            tokio::select! {
                event = self.updates.next() => self.database_says(event),
                news = self.links.next() => self.kernel_says(news),
                step = self.ports.next() => self.ports.take(step, &self.client, &self.updates),
                changed = conditions.changed() => {
                    let are_known = changed.is_ok() && !conditions.borrow_and_update().contains_key(&Part::Pods);
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
                    // Whoever asked has gone with the runtime.
                    let _ = answer.send(plan.suspects);
                }
                () = sleep_until(self.due) => self.look(),
            }
        }
    }

    fn database_says(&mut self, event: Event) {
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

    /// Compares, and begins to repair.
    fn look(&mut self) {
        let now = Instant::now();
        self.due = now + RESYNC;
        self.say_late(now);
        if !self.is_connected || !journal::has_bridge(&self.updates) || self.listing.is_some() {
            return;
        }
        let Some(known) = self.links.known() else {
            self.links.listing();
            self.listing = Some(hands::list());
            return;
        };
        let Plan { missing, suspects, doubt } = self.compare(known);
        self.forget();
        self.say_doubt(doubt);
        let done = self.put_back(missing, now);
        if let Some(patience) = self.around.patience {
            let suspects = suspects.into_iter().filter(|suspect| !self.swept.contains(&suspect.identity)).collect();
            let confirmed = self.suspicion.confirm(suspects, now, patience);
            self.due = self.due.min(self.suspicion.due().map_or(self.due, |due| due.max(now + SETTLE)));
            self.swept.extend(confirmed.iter().map(|suspect| suspect.identity.clone()));
            self.to_sweep.extend(confirmed);
            self.sweep_next();
        }
        self.go_on(done);
    }

    /// When to look again after what was done.
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
            self.due = Instant::now();
        } else {
            self.go_on(Done::NotAll);
        }
    }

    fn restored(&mut self, restored: Result<Restored, JoinError>) {
        let Ok(Restored { done, interfaces }) = restored else { return self.go_on(Done::NotAll) };
        if !interfaces.is_empty() {
            let awaited = self.awaited.get_or_insert_with(|| Awaited { since: Instant::now(), interfaces: HashSet::new() });
            awaited.interfaces.extend(interfaces);
            self.see_installed();
        }
        // What else vanished meanwhile was left for now.
        self.look_soon();
        self.go_on(done);
    }

    /// Removes what is to be removed, unless something is being removed.
    fn sweep_next(&mut self) {
        if self.sweeping.is_none() {
            self.swept = self.to_sweep.iter().map(|suspect| suspect.identity.clone()).collect();
            let confirmed = std::mem::take(&mut self.to_sweep);
            if !confirmed.is_empty() {
                self.sweeping = Some(tokio::spawn(self.hands.clone().sweep(confirmed)));
            }
        }
    }

    /// Compares rows and pods as they are known now with these links.
    fn compare(&self, known: &Known) -> Plan {
        let (links, others) = (&known.veths, known.other_names());
        let names: HashSet<&str> = journal::names(&self.updates).collect();
        let recorded: Vec<Arc<Attached>> = self.journal.iter().cloned().collect();
        let present = self.journal.present(&self.updates);
        let pods = |pod: &PodKey, uid: &str| life(&*self.around.pods, pod, uid);
        let own_node = &*self.around.own_node.borrow();
        let deviceless = journal::deviceless(&self.updates).collect();
        let (recorded, present) = (&recorded, &present);
        View { recorded, present, names: &names, links, others: &others, deviceless: &deviceless, own_node, pods: &pods }.compare()
    }

    /// Forgets attachments that have neither row nor link any more, and who was about to detach them.
    fn forget(&mut self) {
        let Some(known) = self.links.known() else { return };
        let linked: HashSet<&str> = known.veths.values().map(|link| link.name.as_str()).collect();
        let names: HashSet<&str> = journal::names(&self.updates).collect();
        self.journal.forget(|attached| !linked.contains(attached.name.as_str()) && !names.contains(attached.name.as_str()));
        while let Ok(sandbox) = self.leavers.try_recv() {
            self.leaving.insert(sandbox);
        }
        self.leaving.retain(|sandbox| self.journal.iter().any(|attached| attached.identity.sandbox.as_str() == sandbox));
    }

    fn put_back(&mut self, mut missing: Vec<Arc<Attached>>, now: Instant) -> Done {
        missing.retain(|attached| !self.leaving.contains(attached.identity.sandbox.as_str()));
        let names: HashSet<&str> = missing.iter().map(|attached| attached.name.as_str()).collect();
        self.graces.retain(|name, _| names.contains(name.as_str()));
        let all = missing.len();
        missing.retain(|attached| {
            let mut since = || *self.graces.entry(attached.name.clone()).or_insert(now);
            attached.names_pods_end() || now.duration_since(since()) >= GRACE
        });
        let ripe = missing.len() == all;
        // Who is put back now may be among them; whoever else is comes next.
        if !missing.is_empty() && self.restoring.is_none() {
            let qos = |attached: &Attached| attached.qos.filter(|qos| journal::has_qos(&self.updates, *qos));
            let missing = missing.into_iter().map(|attached| Missing { qos: qos(&attached), attached }).collect();
            self.restoring = Some(tokio::spawn(self.hands.clone().restore(missing)));
            self.due = self.due.min(now + AFTERWARDS);
        }
        if ripe { Done::All } else { Done::NotAll }
    }

    fn say_doubt(&mut self, doubt: Option<Doubt>) {
        if self.doubt == doubt {
            return;
        }
        let conditions = &self.around.conditions;
        match &doubt {
            Some(Doubt { gone, known, why }) => {
                let remark = format!(
                    "{gone} attached pods are said to be gone, {known} are known, and nothing confirms that these are the pods of this \
                     host: {why}; nothing of them is removed"
                );
                let hint = "do --init-node and the API server (or --pod-manifests) name this host and its cluster?";
                tracing::warn!(gone, known, why, hint, "attached pods are said to be gone; nothing is removed until that is confirmed");
                self.around.events.doubtful(&self.around.node, &format!("{remark}; {hint}"));
                conditions.remark(Part::Pods, remark);
            }
            None => {
                tracing::info!("pods that were said to be gone are not doubted any more");
                conditions.unremark(Part::Pods);
            }
        }
        self.doubt = doubt;
    }

    /// Looks whether the ports that were put back work.
    fn see_installed(&mut self) {
        let Some(Awaited { since, interfaces }) = &mut self.awaited else { return };
        interfaces.retain(|interface| !journal::is_installed(&self.updates, *interface));
        if interfaces.is_empty() {
            tracing::info!(ms = since.elapsed().as_millis(), "ovn-controller has connected the ports that were put back");
            self.awaited = None;
        }
    }

    fn say_late(&mut self, now: Instant) {
        let Some(Awaited { since, interfaces }) = &mut self.awaited else { return };
        interfaces.retain(|interface| self.updates.row::<journal::Interface>(*interface).is_some());
        let (late, ports) = (now.duration_since(*since) >= INSTALL, interfaces.len());
        if late && ports > 0 {
            let hint = "does OVN know them (ovn-nbctl lsp-get-type), and is ovn-controller on this node connected? See its log";
            tracing::warn!(ports, hint, "ports that were put back do not work yet");
        }
        if late || ports == 0 {
            self.awaited = None;
        }
    }
}

/// What is known of a pod; `uid`: of the one that is meant, empty if nobody said it.
fn life(pods: &dyn PodSource, pod: &PodKey, uid: &str) -> Life {
    let known = pods.watch(pod).now();
    match known {
        Some(known) if uid.is_empty() || known.facts.uid.is_empty() || known.facts.uid == uid || known.facts.is_mirror() => {
            Life::Living(known.facts.clone())
        }
        Some(_) | None if pods.readiness() == Readiness::Synced && !pods.awaits_mirror(pod) => Life::Gone,
        Some(_) | None => Life::Unknown,
    }
}
