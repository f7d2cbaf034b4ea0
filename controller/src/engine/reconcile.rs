//! The reconciler: observations and changes of the database make keys dirty; dirty keys go into the
//! next transaction.
//!
//! One task owns the store and the replica of the database. Only failed keys wait for a timer. A
//! key is done when the replica shows its desired rows. So the keys of a transaction are compared
//! once more after it: a change that came meanwhile is not lost.

use std::{
    collections::{BTreeMap, HashSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use contract::names::{PodKey, ServiceKey};
use futures_util::FutureExt;
use kubeapi::election::Leadership;
use ovsdb::{Outcome, TransactError, Updates};
use tokio::{
    sync::{mpsc, watch},
    task::{coop::unconstrained, yield_now},
    time::{Instant, sleep_until},
};

use crate::{
    custom::CustomStatus,
    engine::{
        commit::work_queue::{Cause, Item, WorkQueue},
        northbound::{Event, Northbound, foreign::AddressChanges},
        reconcile::{
            applied::AppliedRequests,
            cluster_check::ClusterCheck,
            database_lock::DatabaseLock,
            deadlines::{ABSENCE, Deadlines, GRACE},
            flap::ContestBackoff,
            moves::HeldChanges,
            observed::EarlyEvents,
            slow::SlowKey,
            taken::Precedence,
        },
    },
    key::{Dirty, Key},
    kinds::{cluster_policy::condition::PolicyCondition, desired, pod::annotation::PodAnnotation},
    metrics::Metrics,
    rows::Table,
    safety_brake::HeldLists,
    watch_event::{Kind, WatchEvent},
    world::Store,
};

pub use crate::engine::reconcile::{
    deadlines::UNREAD,
    moves::HOLD,
    report::{Progress, Report, Stopped},
};

mod applied;
mod attempt;
mod cluster_check;
mod database_lock;
mod deadlines;
mod filled;
mod flap;
mod moves;
mod observed;
mod permission;
mod report;
mod slow;
mod start;
mod taken;

/// The inputs and outputs of the reconciler.
#[derive(Debug)]
pub struct Controller {
    pub store: Store,
    pub observations: mpsc::UnboundedReceiver<WatchEvent>,
    /// Annotations that the store has decided on, for the patcher of pods.
    pub annotations: mpsc::UnboundedSender<PodAnnotation>,
    /// Conditions of policies, for the patcher of their status.
    pub conditions: mpsc::UnboundedSender<PolicyCondition>,
    /// The same for the status of the kinds of which a namespace has one object.
    pub statuses: mpsc::UnboundedSender<CustomStatus>,
    /// From [`connect`](crate::engine::northbound::connect).
    pub northbound: Updates,
    pub leadership: Leadership,
    pub reports: mpsc::UnboundedSender<Report>,
    /// The state of the reconciler, for readiness and measurements.
    pub progress: watch::Sender<Progress>,
    pub metrics: Metrics,
    /// How long another chassis or zone of a node is held back: [`HOLD`].
    pub hold: Duration,
    /// How long everything waits for a kind of objects that cannot be read: [`UNREAD`].
    pub patience: Duration,
}

impl Controller {
    /// Reconciles until the leadership is lost, another process takes the lock of the database, or
    /// the channel of observations is closed.
    pub async fn run(self) -> Stopped {
        let (reconciler, observations) = self.begin();
        reconciler.run(observations).await
    }

    fn begin(self) -> (Reconciler, mpsc::UnboundedReceiver<WatchEvent>) {
        let Self {
            store,
            observations,
            annotations,
            conditions,
            statuses,
            northbound,
            leadership,
            reports,
            progress,
            metrics,
            hold,
            patience,
        } = self;
        let fixed = desired(&store, &Key::Cluster).into_iter().map(|row| row.id);
        let northbound = Northbound::new(northbound, fixed, &store.config);
        let reconciler = Reconciler {
            store,
            annotations,
            conditions,
            statuses,
            northbound,
            leadership,
            reports,
            progress,
            metrics,
            work_queue: WorkQueue::default(),
            flaps: ContestBackoff::default(),
            precedence: Precedence::default(),
            database_lock: DatabaseLock::default(),
            blocked: None,
            in_flight: None,
            unfinished: false,
            early: Some(EarlyEvents::default()),
            cluster: ClusterCheck::default(),
            found_templates: None,
            loaded: false,
            primed: false,
            refusals: 0,
            doubted: None,
            paused: None,
            absences: Deadlines::after(ABSENCE),
            graces: Deadlines::after(GRACE),
            unread: Deadlines::after(patience),
            moves: HeldChanges::default(),
            slow: SlowKey::default(),
            requests: AppliedRequests::default(),
            hold,
            told_filled: false,
        };
        (reconciler, observations)
    }
}

struct Reconciler {
    store: Store,
    annotations: mpsc::UnboundedSender<PodAnnotation>,
    conditions: mpsc::UnboundedSender<PolicyCondition>,
    statuses: mpsc::UnboundedSender<CustomStatus>,
    northbound: Northbound,
    leadership: Leadership,
    reports: mpsc::UnboundedSender<Report>,
    progress: watch::Sender<Progress>,
    metrics: Metrics,
    work_queue: WorkQueue,
    flaps: ContestBackoff,
    precedence: Precedence,
    database_lock: DatabaseLock,
    /// Why this process may write nothing at all; none if it may write.
    blocked: Option<Arc<str>>,
    in_flight: Option<InFlight>,
    /// A turn ended with dirty keys left. They are compared as soon as the other events are
    /// handled.
    unfinished: bool,
    /// Observations from before this process could write for the first time; none since then.
    early: Option<EarlyEvents>,
    cluster: ClusterCheck,
    /// Whether the database had NodePorts as templates, or none at all.
    found_templates: Option<bool>,
    /// The replica is complete and up to date.
    loaded: bool,
    /// All keys were marked since the replica was loaded.
    primed: bool,
    /// Number of transactions in a row that failed because the server accepts none.
    refusals: u32,
    /// The doubt that was published last.
    doubted: Option<HeldLists>,
    /// Until when the server is left alone after such a failure.
    paused: Option<Instant>,
    /// Static pods whose mirror pods have gone.
    absences: Deadlines<PodKey>,
    /// Services that are idled no longer.
    graces: Deadlines<ServiceKey>,
    /// Kinds of objects that were not read yet.
    unread: Deadlines<Kind>,
    moves: HeldChanges,
    slow: SlowKey,
    requests: AppliedRequests,
    hold: Duration,
    /// Whether the database was told that it has all rows.
    told_filled: bool,
}

/// A transaction that is not answered yet.
struct InFlight {
    items: Vec<Item>,
    /// Those of them of which only a part is written.
    partial: HashSet<Key>,
    /// For each operation, indexes into `items`.
    operations: Vec<Vec<usize>>,
    written: BTreeMap<Table, u64>,
    outcome: Pin<Box<dyn Future<Output = Result<Outcome, TransactError>> + Send>>,
}

/// What woke the loop.
enum Woken {
    Observed(Option<Box<WatchEvent>>),
    Northbound(Event),
    Outcome(Result<Outcome, TransactError>),
    Due,
}

impl Reconciler {
    async fn run(mut self, mut observations: mpsc::UnboundedReceiver<WatchEvent>) -> Stopped {
        let mut led = false;
        let leadership = self.leadership.clone();
        loop {
            // ovsdb-server sends what a transaction did before its answer: with all events read,
            // the replica shows it. `unconstrained`: tokio's budget must not make the queue look
            // empty.
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
            // In this order: `begin` completes the store, `prime` needs it complete, `write` needs
            // all keys marked.
            self.begin();
            self.pass_deadlines();
            self.accept_moves();
            self.prime();
            self.write();
            self.tell_filled();
            self.publish();

            let next = self.next_deadline();
            let woken = tokio::select! {
                // The answer first: it makes room for the next transaction. The database comes
                // before observations, so that these are compared with rows that are up to date.
                biased;
                outcome = answer(&mut self.in_flight) => Woken::Outcome(outcome),
                event = self.northbound.next() => Woken::Northbound(event),
                observation = observations.recv() => Woken::Observed(observation.map(Box::new)),
                () = self.database_lock.changed() => Woken::Due,
                // Always ready, so it comes after all events. Comparing goes on when none is left.
                () = yield_now(), if self.unfinished => Woken::Due,
                () = leadership.lost(), if led => Woken::Due,
                () = leadership.won(), if !led => Woken::Due,
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => Woken::Due,
            };
            match woken {
                Woken::Outcome(outcome) => self.answered(outcome),
                Woken::Northbound(event) => self.changed(event),
                Woken::Observed(Some(observation)) => self.observed(*observation),
                Woken::Observed(None) => return Stopped::ObservationsEnded,
                Woken::Due => {}
            }
        }
    }

    /// Ends after a resignation: waits for the answer to the transaction in flight and sends no
    /// other. The caller decides how long to wait.
    async fn finish(&mut self) {
        if self.leadership.has_resigned()
            && let Some(InFlight { outcome, .. }) = self.in_flight.take()
        {
            // Whatever it is: the next leader reads the database.
            drop(outcome.await);
        }
    }

    /// Changes the store, and marks the keys that the change concerns.
    fn follow(&mut self, change: impl FnOnce(&mut Store, &mut Dirty<'_>)) {
        let now = Instant::now();
        let Self { store, work_queue, .. } = self;
        change(store, &mut |key, scope| {
            work_queue.mark(Item { key, scope, cause: Cause::Store }, now)
        });
    }

    fn changed(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Connected => (self.loaded, self.primed) = (true, false),
            Event::Disconnected(reason) => {
                self.loaded = false;
                tracing::debug!(%reason, "disconnected from the northbound database");
            }
            Event::Changed(touched) => {
                for (key, scope) in touched.keys {
                    self.work_queue.mark(Item { key, scope, cause: Cause::Rows }, now);
                }
                if touched.routers {
                    let routers = self.northbound.gateway_routers();
                    self.follow(|store, dirty| store.gateway_routers(routers, dirty));
                }
                let AddressChanges { left, came } = touched.addresses;
                self.follow(|store, dirty| store.foreign_addresses(left, came, dirty));
                for (table, name) in touched.renamed {
                    if self.work_queue.is_waited_for() {
                        self.work_queue.changed(&table.row(&*name), now);
                    }
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        // While nothing can be sent, a retry would only wake the loop.
        let waits = self.in_flight.is_some() || !self.may_write();
        let retry = if waits { None } else { self.work_queue.next_retry() };
        let paused = self.paused.filter(|_| !waits);
        paused
            .or(retry)
            .into_iter()
            .chain(self.absences.next())
            .chain(self.graces.next())
            .chain(self.unread.next())
            .chain(self.moves.next())
            .min()
    }

    fn publish(&mut self) {
        self.publish_doubt();
        let (dirty, waiting, failing) =
            (self.work_queue.dirty(), self.work_queue.waiting(), self.work_queue.failing());
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.dirty.set(gauge(dirty));
        self.metrics.waiting.set(gauge(waiting));
        self.metrics.failing.set(gauge(failing));
        self.metrics.services.set(gauge(self.store.services()));
        self.metrics.unanswered_names.set(gauge(self.store.unanswered_names()));
        for (kind, count) in self.store.beyond_limits() {
            self.metrics.beyond_limits.with_label_values(&[kind]).set(gauge(count));
        }
        self.progress.send_if_modified(|progress| {
            let converged = self.primed && self.loaded && self.in_flight.is_none() && dirty == 0;
            // Like `ever_converged`, it stays true: a lost connection says nothing about the
            // cluster.
            let own_cluster =
                progress.own_cluster || (self.loaded && self.cluster.is_own(&self.northbound));
            let is_new = own_cluster && !progress.own_cluster;
            let now = Progress {
                loaded: self.loaded,
                own_cluster,
                cluster: if is_new {
                    cluster_check::recorded(&self.northbound)
                } else {
                    progress.cluster.clone()
                },
                blocked: self.blocked.clone(),
                unread: self.store.unread_report().map(Arc::from),
                slow: self.slow.report().map(Arc::from),
                refused: self.refused_rows(is_of_cluster),
                refused_objects: self.refused_rows(|key| !is_of_cluster(key)),
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

    /// The rows that the database refuses again and again, of these keys: the first one with its
    /// error, and how many.
    fn refused_rows(&self, of: impl Fn(&Key) -> bool) -> Option<Arc<str>> {
        let refused = || self.work_queue.refused().filter(|(key, _)| of(key));
        let (key, error) = refused().min_by_key(|(key, _)| *key)?;
        let others = match refused().count() - 1 {
            0 => String::new(),
            count => format!(" (and those of {count} more)"),
        };
        Some(format!("the northbound database refuses the rows of {key}{others}: {error}").into())
    }

    fn publish_doubt(&mut self) {
        let now = self.store.doubted().or_else(|| {
            // Later, the store compares each identity with its own.
            self.early.as_ref().and_then(|_| self.cluster.other_api_server(&self.northbound))
        });
        if now == self.doubted {
            return;
        }
        match &now {
            Some(doubted) => {
                let HeldLists { nodes, pods, services, slices, namespaces, policies, .. } = doubted;
                let (cluster_policies, custom) =
                    (doubted.cluster_policies, doubted.missing_custom());
                tracing::warn!(
                    nodes,
                    pods,
                    services,
                    slices,
                    namespaces,
                    policies,
                    cluster_policies,
                    custom,
                    "{doubted}"
                );
            }
            None => tracing::info!("the lists of the API server are accepted again"),
        }
        let missing = now.as_ref().map_or(0, HeldLists::missing);
        self.metrics.doubted.set(i64::try_from(missing).unwrap_or(i64::MAX));
        // Without a receiver, the log has it.
        let _ = self.reports.send(Report::HeldLists(now.clone()));
        self.doubted = now;
    }
}

/// Whether the rows are those of the cluster or of a node, of which no user decides.
fn is_of_cluster(key: &Key) -> bool {
    matches!(key, Key::Cluster | Key::Node(_) | Key::Gateway(_) | Key::Transit(_) | Key::Chassis(_))
}

/// Waits for the outcome of the transaction in flight; for ever if there is none.
async fn answer(in_flight: &mut Option<InFlight>) -> Result<Outcome, TransactError> {
    match in_flight {
        Some(transaction) => transaction.outcome.as_mut().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
