//! The task: when to look, and what to do then. Events only; what could not be done is tried again, less and less often.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use cni::settings::{SHORT_TIMEOUT, Settings};
use contract::names::PodKey;
use ovsdb::{Client, Event, Options, Updates, Uuid};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    Surroundings,
    journal::{self, Attached, Journal, News},
    links::{LinkNews, Links},
    plan::{Life, Plan, View},
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
    pub(super) around: Surroundings,
    pub(super) client: Client,
    pub(super) updates: Updates,
    pub(super) links: Links,
    pub(super) plugin: Settings,
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
    was_doubtful: bool,
    /// Interfaces that were put back and do not work yet.
    pub(super) awaited: Option<Awaited>,
}

/// Interfaces that were put back.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) since: Instant,
    pub(super) interfaces: HashSet<Uuid>,
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
        let plugin = Settings::with_ovsdb(&around.endpoint, SHORT_TIMEOUT);
        let Orders { jobs, leaving: leavers, bridge, names } = orders;
        let ports = Writer::new(jobs, bridge, names, Arc::clone(&around.metrics));
        Ok(Self {
            around,
            client,
            updates,
            links,
            plugin,
            ports,
            leavers,
            leaving: HashSet::new(),
            journal: Journal::default(),
            suspicion: Suspicion::default(),
            is_connected: false,
            due: Instant::now() + RESYNC,
            retry: FIRST_RETRY,
            graces: HashMap::new(),
            was_doubtful: false,
            awaited: None,
        })
    }

    /// For as long as the server lives.
    pub(crate) async fn keep(mut self) {
        let mut conditions = self.around.conditions.watch();
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
                () = sleep_until(self.due) => self.look().await,
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

    /// Compares, and repairs as far as that can be done now.
    async fn look(&mut self) {
        let now = Instant::now();
        self.due = now + RESYNC;
        self.say_late(now);
        if !self.is_connected || !journal::has_bridge(&self.updates) {
            return;
        }
        let done = match self.compare().await {
            Ok(Plan { missing, suspects, is_doubtful }) => {
                self.say_doubtful(is_doubtful);
                let done = self.put_back(missing, now).await;
                match self.around.patience {
                    Some(patience) => {
                        let confirmed = self.suspicion.confirm(suspects, now, patience);
                        self.sweep(confirmed).await;
                        self.due = self.due.min(self.suspicion.due(patience).map_or(self.due, |due| due.max(now + SETTLE)));
                        done
                    }
                    None => done,
                }
            }
            Err(error) => {
                tracing::warn!(error = crate::chain(&error), "the links of this host cannot be listed");
                Done::NotAll
            }
        };
        match done {
            Done::All => self.retry = FIRST_RETRY,
            Done::NotAll => {
                self.due = self.due.min(Instant::now() + self.retry);
                self.retry = (self.retry * 2).min(RESYNC);
            }
        }
    }

    /// Compares rows, links and pods as they are known now.
    pub(super) async fn compare(&mut self) -> Result<Plan, cni::link::LinkError> {
        let links = self.links.known().await?;
        let by_name: HashSet<&str> = links.values().map(|link| link.name.as_str()).collect();
        let names: HashSet<&str> = journal::names(&self.updates).collect();
        self.journal.forget(|attached| !by_name.contains(attached.name.as_str()) && !names.contains(attached.name.as_str()));
        let recorded: Vec<Arc<Attached>> = self.journal.iter().cloned().collect();
        while let Ok(sandbox) = self.leavers.try_recv() {
            self.leaving.insert(sandbox);
        }
        self.leaving.retain(|sandbox| recorded.iter().any(|attached| attached.identity.sandbox.as_str() == sandbox));
        let present = self.journal.present(&self.updates);
        let pods = |pod: &PodKey, uid: &str| life(&*self.around.pods, pod, uid);
        Ok(View { recorded: &recorded, present: &present, names: &names, links, pods: &pods }.compare())
    }

    async fn put_back(&mut self, mut missing: Vec<Arc<Attached>>, now: Instant) -> Done {
        missing.retain(|attached| !self.leaving.contains(attached.identity.sandbox.as_str()));
        let names: HashSet<&str> = missing.iter().map(|attached| attached.name.as_str()).collect();
        self.graces.retain(|name, _| names.contains(name.as_str()));
        let all = missing.len();
        missing.retain(|attached| {
            let mut since = || *self.graces.entry(attached.name.clone()).or_insert(now);
            attached.names_pods_end() || now.duration_since(since()) >= GRACE
        });
        let ripe = missing.len() == all;
        let done = if missing.is_empty() {
            Done::All
        } else {
            self.due = self.due.min(now + AFTERWARDS);
            self.restore(missing).await
        };
        if ripe { done } else { Done::NotAll }
    }

    fn say_doubtful(&mut self, is_doubtful: bool) {
        if is_doubtful && !self.was_doubtful {
            let hint =
                "does --init-node name this node, and is the API server that of its cluster? What DEL leaves is not removed meanwhile";
            tracing::warn!(hint, "not one of the pods that are attached here is known");
        }
        self.was_doubtful = is_doubtful;
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
        Some(known) if uid.is_empty() || known.facts.uid.is_empty() || known.facts.uid == uid => Life::Living(known.facts.clone()),
        Some(_) | None if pods.readiness() == Readiness::Synced => Life::Gone,
        Some(_) | None => Life::Unknown,
    }
}
