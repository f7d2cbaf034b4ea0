//! The loop: what was observed and what changed in the database makes keys dirty; what is dirty goes into the next transaction.
//!
//! One task owns the store and the copy of the database. Nothing waits for a timer but what failed. A key is done only when the copy of
//! the database shows its rows as they should be, so after each transaction its keys are compared once more: whatever else happened
//! meanwhile, nothing is forgotten.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc};

use futures_util::FutureExt;
use kubeapi::election::Leadership;
use ovsdb::{Claim, Outcome, TransactError, Updates};
use tokio::{
    sync::{mpsc, watch},
    task::{coop::unconstrained, yield_now},
    time::{Instant, sleep_until},
};

mod absence;
mod attempt;
mod fence;
mod flap;
mod report;

pub use self::report::{Progress, Report, Stopped};
use self::{
    absence::Absences,
    fence::{Fence, Right},
    flap::Flaps,
};
use crate::{
    cluster_id::ClusterId,
    commit::backlog::{Backlog, Cause},
    desired::desired,
    doubt::Doubted,
    key::{Change, Key},
    metrics::Metrics,
    northbound::{Event, Northbound},
    observation::Observation,
    rows::Table,
    store::{PodAnnotation, Store},
};

/// Everything that the loop reads and writes.
#[derive(Debug)]
pub struct Controller {
    pub store: Store,
    pub observations: mpsc::UnboundedReceiver<Observation>,
    /// Annotations that the store decided, to be written on pods.
    pub annotations: mpsc::UnboundedSender<PodAnnotation>,
    /// Of [`connect`](crate::northbound::connect).
    pub northbound: Updates,
    pub leadership: Leadership,
    pub reports: mpsc::UnboundedSender<Report>,
    /// How far the loop is, for readiness and for whoever measures.
    pub progress: watch::Sender<Progress>,
    pub metrics: Metrics,
}

impl Controller {
    /// Keeps the database as it should be until the leadership is lost or nobody observes any more.
    pub async fn run(self) -> Stopped {
        let (reconciler, observations) = self.begin();
        reconciler.run(observations).await
    }

    fn begin(self) -> (Reconciler, mpsc::UnboundedReceiver<Observation>) {
        let Self { store, observations, annotations, northbound, leadership, reports, progress, metrics } = self;
        let fixed = desired(&store, &Key::Cluster).into_iter().map(|row| row.id);
        let northbound = Northbound::new(northbound, fixed);
        let reconciler = Reconciler {
            store,
            annotations,
            northbound,
            leadership,
            reports,
            progress,
            metrics,
            backlog: Backlog::default(),
            flaps: Flaps::default(),
            fence: Fence::default(),
            blocked: None,
            in_flight: None,
            unfinished: false,
            early: Some(Vec::new()),
            api_cluster: None,
            loaded: false,
            primed: false,
            refusals: 0,
            doubted: None,
            paused: None,
            absences: Absences::default(),
        };
        (reconciler, observations)
    }
}

struct Reconciler {
    store: Store,
    annotations: mpsc::UnboundedSender<PodAnnotation>,
    northbound: Northbound,
    leadership: Leadership,
    reports: mpsc::UnboundedSender<Report>,
    progress: watch::Sender<Progress>,
    metrics: Metrics,
    backlog: Backlog,
    flaps: Flaps,
    fence: Fence,
    /// Why nothing is written, whatever there is to write.
    blocked: Option<Arc<str>>,
    in_flight: Option<InFlight>,
    /// There is more to compare, and nothing else that it has to wait for than its turn.
    unfinished: bool,
    /// What was observed before this process might write for the first time.
    early: Option<Vec<Observation>>,
    /// Which cluster the API server says it is, once it was asked.
    api_cluster: Option<ClusterId>,
    /// The copy of the database is complete and followed.
    loaded: bool,
    /// Since then all keys were marked.
    primed: bool,
    /// How often in a row the server served nobody, and until when it is left alone.
    refusals: u32,
    /// What was last said to be doubted.
    doubted: Option<Doubted>,
    paused: Option<Instant>,
    absences: Absences,
}

/// A transaction that is not answered yet.
struct InFlight {
    keys: Vec<(Key, Cause)>,
    /// By operation, the places of its keys.
    operations: Vec<Vec<usize>>,
    written: BTreeMap<Table, u64>,
    outcome: Pin<Box<dyn Future<Output = Result<Outcome, TransactError>> + Send>>,
}

/// What woke the loop.
enum Woken {
    Observed(Option<Observation>),
    Northbound(Event),
    Outcome(Result<Outcome, TransactError>),
    Due,
}

impl Reconciler {
    async fn run(mut self, mut observations: mpsc::UnboundedReceiver<Observation>) -> Stopped {
        let mut led = false;
        let leadership = self.leadership.clone();
        loop {
            // What a transaction did is told before its answer: with everything read, the copy shows it.
            while let Some(event) = unconstrained(self.northbound.next()).now_or_never() {
                self.changed(event);
            }
            while let Ok(observation) = observations.try_recv() {
                self.observed(observation);
            }
            match self.leadership.is_leader() {
                true => led = true,
                false if led => {
                    self.finish().await;
                    return Stopped::LeadershipLost;
                }
                false => {}
            }
            if self.is_overtaken() {
                return Stopped::LockTaken;
            }
            self.begin();
            self.give_up_absent();
            self.prime();
            self.write();
            self.publish();

            let next = self.next_deadline();
            let woken = tokio::select! {
                biased;
                outcome = answer(&mut self.in_flight) => Woken::Outcome(outcome),
                event = self.northbound.next() => Woken::Northbound(event),
                observation = observations.recv() => Woken::Observed(observation),
                () = self.fence.changed() => Woken::Due,
                // After whatever else there is.
                () = yield_now(), if self.unfinished => Woken::Due,
                () = leadership.lost(), if led => Woken::Due,
                () = leadership.won(), if !led => Woken::Due,
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => Woken::Due,
            };
            match woken {
                Woken::Outcome(outcome) => self.answered(outcome),
                Woken::Northbound(event) => self.changed(event),
                Woken::Observed(Some(observation)) => self.observed(observation),
                Woken::Observed(None) => return Stopped::ObservationsEnded,
                Woken::Due => {}
            }
        }
    }

    /// Told to end while it leads: what is under way is answered, and nothing else is begun. Whoever waits for it is patient or not.
    async fn finish(&mut self) {
        if self.leadership.has_resigned()
            && let Some(InFlight { outcome, .. }) = self.in_flight.take()
        {
            // What came of it the next leader sees in the database.
            drop(outcome.await);
        }
    }

    /// Asks for the lock that every transaction asserts, and says what stands in the way of writing. Whether another process has taken
    /// over what this one believes to lead.
    fn is_overtaken(&mut self) -> bool {
        let mut why = None;
        if let Some(connection) = self.northbound.connection().cloned().filter(|_| self.loaded) {
            let (theirs, ours) = (self.northbound.zone(), &self.store.config.zone);
            if theirs != *ours {
                why = Some(format!(
                    "the northbound database is of zone {:?} (NB_Global.name), this controller of zone {:?}: nothing in it is changed",
                    theirs.0, ours.0
                ));
            } else if self.leadership.is_leader() {
                let claim = if self.leadership.is_elected() { Claim::Steal } else { Claim::Queue };
                self.fence.ask(&connection, claim);
                match self.fence.right() {
                    Right::Held | Right::Asked => {}
                    Right::Waits(what) => why = Some(what),
                    Right::Taken if self.leadership.is_elected() => return true,
                    // It waits for its turn.
                    Right::Taken => {
                        self.fence.give_up();
                        self.fence.ask(&connection, claim);
                        why = Some("another process has taken the lock of the database".to_owned());
                    }
                }
            }
        }
        if self.blocked.as_deref() != why.as_deref() {
            match &why {
                Some(why) => tracing::warn!(why, "nothing is written to the northbound database"),
                None => tracing::info!("the northbound database may be written to"),
            }
            self.blocked = why.map(Arc::from);
        }
        false
    }

    fn observed(&mut self, observation: Observation) {
        if let Observation::Cluster(id) = &observation {
            self.api_cluster = Some(id.clone());
        }
        if let Some(early) = &mut self.early {
            early.push(observation);
            return;
        }
        let changes = self.store.observe(observation);
        self.follow(changes);
        self.absences.are(self.store.absent(), Instant::now());
    }

    /// Static pods whose mirrors have not come back are gone.
    fn give_up_absent(&mut self) {
        for pod in self.absences.take_over(Instant::now()) {
            let changes = self.store.is_gone(&pod);
            self.follow(changes);
        }
    }

    /// Marks what follows from changes of the store.
    fn follow(&mut self, changes: Vec<Change>) {
        let now = Instant::now();
        for change in changes {
            for key in change.dirtied(|node| self.store.pods_of(node).cloned().collect()) {
                self.backlog.mark(key, Cause::Store, now);
            }
        }
    }

    fn changed(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Connected => (self.loaded, self.primed) = (true, false),
            Event::Disconnected(reason) => {
                self.loaded = false;
                tracing::debug!(%reason, "the northbound database is out of sight");
            }
            Event::Changed(touched) => {
                for key in touched.keys {
                    self.backlog.mark(key, Cause::Rows, now);
                }
                let changes = self.store.foreign_addresses(touched.addresses.left, touched.addresses.came);
                self.follow(changes);
                for (table, name) in touched.appeared {
                    if self.backlog.is_waited_for() {
                        self.backlog.appeared(&table.row(&*name), now);
                    }
                }
            }
        }
    }

    /// The first time that this process may write: the store learns which addresses are in use in the database before it gives any away.
    ///
    /// Not before: until the lock of the database is this process', the leader before goes on to write ports, some of which it never comes
    /// to annotate the pods of. What it wrote is told before the lock is given.
    fn begin(&mut self) {
        if self.early.is_none() || self.fence.right() != Right::Held {
            return;
        }
        while let Some(event) = unconstrained(self.northbound.next()).now_or_never() {
            self.changed(event);
        }
        if !self.loaded || self.northbound.zone() != self.store.config.zone {
            return;
        }
        let Some(early) = self.early.take() else { return };
        for (pod, port) in self.northbound.pod_ports() {
            self.store.found_port(pod, port);
        }
        if let Some(id) = self.northbound.cluster_router().and_then(|router| self.northbound.cluster_id(router)) {
            self.store.found_cluster(id);
        }
        for node in self.northbound.nodes() {
            self.store.found_node(node.clone());
        }
        early.into_iter().for_each(|observation| self.observed(observation));
    }

    /// Marks everything, once all that could justify a row has been read, and again after each reconnection.
    fn prime(&mut self) {
        if !self.loaded || self.primed || !self.store.is_complete() {
            return;
        }
        let now = Instant::now();
        let owners: Vec<Key> = self.northbound.index.owners().cloned().collect();
        for key in self.store.keys().chain(owners) {
            self.backlog.mark(key, Cause::Everything, now);
        }
        self.primed = true;
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waits = self.in_flight.is_some() || !self.may_write();
        let retry = if waits { None } else { self.backlog.next_retry() };
        let paused = self.paused.filter(|_| !waits);
        paused.or(retry).into_iter().chain(self.absences.next()).min()
    }

    /// Whether everything is known that a write depends on, and this process is the one to write.
    fn may_write(&self) -> bool {
        self.primed && self.loaded && self.leadership.is_leader() && self.blocked.is_none() && self.fence.right() == Right::Held
    }

    /// Whether the database was written for the cluster of the API server, as far as both say; false before both were asked.
    fn is_own_cluster(&self) -> bool {
        let Some(api_cluster) = self.api_cluster.as_ref().filter(|_| self.loaded) else { return false };
        let written_for = self.northbound.cluster_router().and_then(|router| self.northbound.cluster_id(router));
        written_for.zip(api_cluster.as_ref()).is_none_or(|(database, api_server)| database == *api_server)
    }

    fn publish(&mut self) {
        self.publish_doubt();
        let (dirty, waiting, failing) = (self.backlog.dirty(), self.backlog.waiting(), self.backlog.failing());
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.dirty.set(gauge(dirty));
        self.metrics.waiting.set(gauge(waiting));
        self.metrics.failing.set(gauge(failing));
        self.progress.send_if_modified(|progress| {
            let converged = self.primed && self.loaded && self.in_flight.is_none() && dirty == 0;
            let now = Progress {
                loaded: self.loaded,
                own_cluster: progress.own_cluster || self.is_own_cluster(),
                blocked: self.blocked.clone(),
                converged,
                ever_converged: progress.ever_converged || converged,
                dirty,
                waiting,
                failing,
            };
            let changed = *progress != now;
            *progress = now;
            changed
        });
    }
}

impl Reconciler {
    fn publish_doubt(&mut self) {
        let now = self.store.doubted();
        if now == self.doubted {
            return;
        }
        match &now {
            Some(doubted) => tracing::warn!(nodes = doubted.nodes, pods = doubted.pods, "{doubted}"),
            None => tracing::info!("what the API server lists is believed again"),
        }
        let missing = now.as_ref().map_or(0, |doubted| doubted.nodes + doubted.pods);
        self.metrics.doubted.set(i64::try_from(missing).unwrap_or(i64::MAX));
        // Nobody listens: it is in the log.
        let _ = self.reports.send(Report::Doubt(now.clone()));
        self.doubted = now;
    }
}

/// The outcome of the transaction under way; for ever, if there is none.
async fn answer(in_flight: &mut Option<InFlight>) -> Result<Outcome, TransactError> {
    match in_flight {
        Some(transaction) => transaction.outcome.as_mut().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
