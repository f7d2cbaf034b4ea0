//! The loop: what was observed and what changed in the database makes keys dirty; what is dirty goes into the next transaction.
//!
//! One task owns the store and the copy of the database. Nothing waits for a timer but what failed. A key is done only when the copy of
//! the database shows its rows as they should be, so after each transaction its keys are compared once more: whatever else happened
//! meanwhile, nothing is forgotten.

use std::{collections::BTreeMap, future::Future, pin::Pin};

use futures_util::FutureExt;
use ovsdb::{Outcome, TransactError, Updates};
use tokio::{
    sync::{mpsc, watch},
    task::coop::unconstrained,
    time::{Instant, sleep_until},
};

mod attempt;
mod flap;
mod report;

use self::flap::Flaps;
pub use self::report::{Progress, Report, Stopped};
use crate::{
    commit::backlog::{Backlog, Cause},
    desired::desired,
    key::{Change, Key},
    lead::Leadership,
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
            in_flight: None,
            early: Some(Vec::new()),
            loaded: false,
            primed: false,
            refusals: 0,
            paused: None,
        };
        reconciler.run(observations).await
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
    in_flight: Option<InFlight>,
    /// What was observed before the database was read for the first time.
    early: Option<Vec<Observation>>,
    /// The copy of the database is complete and followed.
    loaded: bool,
    /// Since then all keys were marked.
    primed: bool,
    /// How often in a row the server served nobody, and until when it is left alone.
    refusals: u32,
    paused: Option<Instant>,
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
                false if led => return Stopped::LeadershipLost,
                false => {}
            }
            self.begin();
            self.prime();
            self.write();
            self.publish();

            let next = self.next_deadline();
            let woken = tokio::select! {
                biased;
                outcome = answer(&mut self.in_flight) => Woken::Outcome(outcome),
                event = self.northbound.next() => Woken::Northbound(event),
                observation = observations.recv() => Woken::Observed(observation),
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

    fn observed(&mut self, observation: Observation) {
        if let Some(early) = &mut self.early {
            early.push(observation);
            return;
        }
        let changes = self.store.observe(observation);
        self.follow(changes);
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
                for (table, name) in touched.appeared {
                    if self.backlog.is_waited_for() {
                        self.backlog.appeared(&table.row(&*name), now);
                    }
                }
            }
        }
    }

    /// The first time that the database was read: the store learns which addresses are in use there before it gives any away.
    fn begin(&mut self) {
        if !self.loaded {
            return;
        }
        let Some(early) = self.early.take() else { return };
        for (pod, addresses) in self.northbound.pod_ports() {
            self.store.found_port(pod, &addresses);
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
            self.backlog.mark(key, Cause::Store, now);
        }
        self.primed = true;
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waits = self.in_flight.is_some() || !self.may_write();
        let retry = if waits { None } else { self.backlog.next_retry() };
        let paused = self.paused.filter(|_| !waits);
        paused.or(retry)
    }

    /// Whether everything is known that a write depends on, and this process is the one to write.
    fn may_write(&self) -> bool {
        self.primed && self.loaded && self.leadership.is_leader()
    }

    fn publish(&self) {
        let (dirty, waiting, failing) = (self.backlog.dirty(), self.backlog.waiting(), self.backlog.failing());
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.dirty.set(gauge(dirty));
        self.metrics.waiting.set(gauge(waiting));
        self.metrics.failing.set(gauge(failing));
        self.progress.send_if_modified(|progress| {
            let converged = self.primed && self.loaded && self.in_flight.is_none() && dirty == 0;
            let now =
                Progress { loaded: self.loaded, converged, ever_converged: progress.ever_converged || converged, dirty, waiting, failing };
            std::mem::replace(progress, now) != now
        });
    }
}

/// The outcome of the transaction under way; for ever, if there is none.
async fn answer(in_flight: &mut Option<InFlight>) -> Result<Outcome, TransactError> {
    match in_flight {
        Some(transaction) => transaction.outcome.as_mut().await,
        None => std::future::pending().await,
    }
}
