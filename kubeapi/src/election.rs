//! Leader election: the holder of a Lease (`coordination.k8s.io/v1`) acts. The record is that of
//! client-go's leader election, so programs of both kinds can take turns.
//!
//! Two processes never lead at the same time. A leader counts its time from before it asked for the
//! Lease, by its own clock, and stops some time before another process may take over. A standby
//! counts by its own clock, too, from when it last saw the leader renew. Wall clocks play no part.
//!
//! A process with two roles, each of which other processes may have alone, stands for two Leases
//! and leads while it holds both. It observes both from the start and takes them in a fixed order,
//! so two processes never wait for each other.
//!
//! | module | noun |
//! |---|---|
//! | [`config`] | [`ElectionConfig`]: identity, Lease, durations; [`ElectionConfigs`]: the Leases of a process |
//! | [`host_lock`] | [`HostLock`]: proof that the former process of the same identity has ended |
//! | `moment` | a deadline that also passes while the machine is suspended |
//! | `record` | what a Lease says |
//! | `observed_record` | how long a record was observed unchanged, and whether the Lease may be taken |
//! | `lease_task` | acquires, renews, releases |

use std::time::Duration;

use futures_util::{FutureExt, future::select_all};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use self::moment::Moment;

use crate::{connection::Connection, metrics::Metrics};

pub mod config;
pub mod host_lock;
mod lease_task;
mod moment;
mod observed_record;
mod record;

pub use config::{BadDurations, Durations, ElectionConfig, ElectionConfigs, OwnLease};
pub use host_lock::{HostLock, Mark};

/// How long the release of all Leases may take when a process stops. If it fails, other processes
/// wait until the Leases expire (137 s by default), so a few attempts are worth the time. If the
/// API server is away, this delays the process's end in vain: a Deployment's pod has 15 s to stop
/// (`conf/kubernetes`), of which work that is under way gets 3 s.
const RELEASE: Duration = Duration::from_secs(5);
/// How long the API server may take for a leader's write. A busy API server needs less; a much
/// shorter limit would repeat writes that are about to succeed. [`Leadership::patience`] shortens
/// it where the durations of the Lease require that.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this process leads. All clones share one state.
#[derive(Debug, Clone)]
pub struct Leadership {
    /// One for each Lease. Without an election: a single one that always leads.
    states: Vec<watch::Receiver<State>>,
    /// `None` without an election.
    durations: Option<Durations>,
    /// Shared by all clones.
    resigned: watch::Sender<bool>,
}

/// The state of one Lease, or of all of them combined.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Another process leads, or no leader is known yet. `what`: the reason, for `/readyz`.
    Waiting { what: String, stands_by: bool },
    /// At least until then; `None`: for ever.
    Leading { until: Option<Moment> },
    /// Leadership is lost for good.
    Over,
}

/// A process's state in the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeadershipState {
    Leads,
    /// Another process leads; the text names it.
    StandsBy(String),
    /// No leader is known; the text says why.
    Unknown(String),
}

/// The leader elector: one task for each Lease. When it is dropped, the tasks end and the Leases
/// expire.
#[derive(Debug)]
pub struct LeaderElector {
    /// In the order in which they are acquired.
    leases: Vec<Standing>,
}

/// The task of one Lease.
#[derive(Debug)]
struct Standing {
    task: JoinHandle<Lost>,
    /// Stops the task. The value is the deadline for the release of the Lease.
    stop: Option<oneshot::Sender<Instant>>,
}

/// Why leadership ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the lease {lease} could not be renewed within {deadline:?}: {problem}")]
    Late { lease: String, deadline: Duration, problem: String },
    #[error("the lease {lease} was taken by {holder}")]
    Taken { lease: String, holder: String },
    #[error("the election for the lease was stopped")]
    Stopped,
}

impl Leadership {
    /// A process that leads without an election, until it resigns.
    pub fn always() -> Self {
        Self {
            states: vec![watch::channel(State::Leading { until: None }).1],
            durations: None,
            resigned: watch::channel(false).0,
        }
    }

    /// A process that leads without an election from when the closure is called. `what`: what it
    /// waits for.
    pub fn once(what: &str) -> (Self, impl FnOnce() + use<>) {
        let (sender, state) =
            watch::channel(State::Waiting { what: what.to_owned(), stands_by: false });
        let leadership =
            Self { states: vec![state], durations: None, resigned: watch::channel(false).0 };
        (leadership, move || drop(sender.send_replace(State::Leading { until: None })))
    }

    /// An elected leader, for a test.
    pub fn elected() -> Self {
        Self { durations: Some(Durations::default()), ..Self::always() }
    }

    /// A process that waits, for a test. The closure makes it win.
    pub fn waiting() -> (Self, impl FnOnce()) {
        let (sender, state) =
            watch::channel(State::Waiting { what: "a test".to_owned(), stands_by: true });
        let leadership = Self {
            states: vec![state],
            durations: Some(Durations::default()),
            resigned: watch::channel(false).0,
        };
        (leadership, move || drop(sender.send_replace(State::Leading { until: None })))
    }

    /// Whether there is an election: other processes may stand for the same Leases.
    pub fn is_elected(&self) -> bool {
        self.durations.is_some()
    }

    /// The timeout of a request that only a leader may make: it must not arrive after another
    /// process has begun to lead. 30 s, and at most half of the time between the moment when a
    /// leader stops and the moment when another process may take over.
    pub fn patience(&self) -> Duration {
        let gap = self.durations.map(|durations| durations.lease() - durations.renew());
        gap.map_or(PATIENCE, |gap| PATIENCE.min(gap / 2))
    }

    /// Ends leadership in this process before any other process may lead. Work that is under way
    /// can finish; no new work begins.
    pub fn resign(&self) {
        self.resigned.send_replace(true);
    }

    /// Whether [`resign`](Self::resign) was called.
    pub fn has_resigned(&self) -> bool {
        *self.resigned.borrow()
    }

    /// Whether this process leads now. It compares the clock itself, so the answer is right even if
    /// no task of this process has run since the deadline.
    pub fn is_leader(&self) -> bool {
        match self.state() {
            State::Leading { until } => {
                !self.has_resigned() && until.is_none_or(|until| !until.has_passed())
            }
            State::Waiting { .. } | State::Over => false,
        }
    }

    fn state(&self) -> State {
        State::of_all(self.states.iter().map(|state| state.borrow().clone()))
    }

    /// Waits until [`is_leader`](Self::is_leader) changes; for ever if it cannot.
    pub async fn changed(&self) {
        self.becomes(!self.is_leader()).await;
    }

    /// Waits until [`is_leader`](Self::is_leader) is `leader`; for ever if it never is.
    async fn becomes(&self, leader: bool) {
        let (mut states, mut resigned) = (self.states.clone(), self.resigned.subscribe());
        loop {
            let until = match State::of_all(
                states.iter_mut().map(|state| state.borrow_and_update().clone()),
            ) {
                State::Leading { until } => until.map(|until| until.clock),
                State::Waiting { .. } | State::Over => None,
            };
            // After the states were marked as seen: a change before the mark is read here, a later
            // one wakes the wait below.
            if self.is_leader() == leader {
                return;
            }
            tokio::select! {
                Ok(()) = any_changed(&mut states) => {}
                Ok(()) = resigned.changed() => {}
                // Leadership ends by time alone if the task of the Lease does not run. It never
                // begins so: a deadline that has passed would only keep this loop busy.
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() && !leader => {}
                else => std::future::pending().await,
            }
        }
    }

    /// Waits until this process leads.
    pub async fn won(&self) {
        self.becomes(true).await;
    }

    /// Waits until this process does not lead.
    pub async fn lost(&self) {
        self.becomes(false).await;
    }

    /// What this process waits for, for `/readyz`; `None` for a leader.
    pub fn waits_for(&self) -> Option<String> {
        match self.state() {
            State::Waiting { what, .. } => Some(what),
            State::Leading { .. } if self.is_leader() => None,
            State::Leading { .. } | State::Over => {
                Some("this process has lost its leadership".to_owned())
            }
        }
    }

    /// This process's state in the election.
    pub fn place(&self) -> LeadershipState {
        if let State::Waiting { what, stands_by: true } = self.state() {
            return LeadershipState::StandsBy(what);
        }
        self.waits_for().map_or(LeadershipState::Leads, LeadershipState::Unknown)
    }

    /// Waits until [`place`](Self::place) may have changed; for ever if it cannot.
    pub async fn moved(&mut self) {
        if any_changed(&mut self.states).await.is_err() {
            std::future::pending().await
        }
    }
}

impl State {
    /// A process leads while it holds all Leases. It has led if it has lost one of them.
    fn of_all(states: impl Iterator<Item = Self>) -> Self {
        let together = |before, next| match (before, next) {
            (Self::Over, _) | (_, Self::Over) => Self::Over,
            // Report the Lease that is acquired first: the next one cannot be taken before it.
            (waiting @ Self::Waiting { .. }, _) | (_, waiting @ Self::Waiting { .. }) => waiting,
            (Self::Leading { until: one }, Self::Leading { until: other }) => Self::Leading {
                until: [one, other].into_iter().flatten().min_by_key(|until| until.clock),
            },
        };
        states.reduce(together).unwrap_or(Self::Over)
    }
}

/// Waits for a change of any state.
///
/// Fails if one of them cannot change any more.
async fn any_changed(states: &mut [watch::Receiver<State>]) -> Result<(), watch::error::RecvError> {
    select_all(states.iter_mut().map(|state| state.changed().boxed())).await.0
}

impl LeaderElector {
    /// Stands for the Leases of `candidates` from now on, and acquires each one only while it holds
    /// those before it. Returns at once. Needs a tokio runtime.
    pub fn start(
        api: Connection,
        candidates: ElectionConfigs,
        metrics: Metrics,
    ) -> (Leadership, Self) {
        Self::start_after(&Leadership::always(), api, candidates, metrics)
    }

    /// As [`start`](Self::start), but takes no Lease before `ready` leads: a process that cannot do
    /// the work of a leader must not keep another one from it.
    pub fn start_after(
        ready: &Leadership,
        api: Connection,
        candidates: ElectionConfigs,
        metrics: Metrics,
    ) -> (Leadership, Self) {
        let durations = Some(candidates.first.durations);
        let mut leadership =
            Leadership { states: Vec::new(), durations, resigned: watch::channel(false).0 };
        let mut leases = Vec::new();
        let mut candidates = std::iter::once(candidates.first).chain(candidates.second).peekable();
        while let Some(candidate) = candidates.next() {
            let (sender, state) = watch::channel(State::Waiting {
                what: format!("the lease {candidate} was not read yet"),
                stands_by: false,
            });
            let (stop, stopped) = oneshot::channel();
            // A clone of the leadership over the Leases so far: this one is taken only while those
            // are held.
            let before = if leases.is_empty() { ready.clone() } else { leadership.clone() };
            // The holder of the last Lease leads, so its task sets the metric.
            let metrics = candidates.peek().is_none().then(|| metrics.clone());
            let task = tokio::spawn(lease_task::run(
                api.clone(),
                candidate,
                before,
                metrics,
                sender,
                stopped,
            ));
            leadership.states.push(state);
            leases.push(Standing { task, stop: Some(stop) });
        }
        (leadership, Self { leases })
    }

    /// Waits until leadership is lost; the program should then end what only a leader may do. Does
    /// not return before leadership was won.
    pub async fn lost(&mut self) -> Lost {
        select_all(self.leases.iter_mut().map(|lease| &mut lease.task))
            .await
            .0
            .unwrap_or(Lost::Stopped)
    }

    /// Leaves the election. A leader stops leading first and then releases its Leases, so that
    /// another process can take them at once: call this after all work of a leader has ended. The
    /// Lease that is acquired first is released last, so that a process which waits for it finds
    /// the others free. Takes a few seconds.
    pub async fn release(mut self) {
        let deadline = Instant::now() + RELEASE;
        for Standing { task, stop } in self.leases.iter_mut().rev() {
            if let Some(stop) = stop.take() {
                let _ = stop.send(deadline);
            }
            // The task of a lost Lease has ended already, and its result may have been taken by
            // `lost`: polling it again would panic.
            if !task.is_finished() {
                let _ = task.await;
            }
        }
    }
}

impl Drop for LeaderElector {
    fn drop(&mut self) {
        self.leases.iter().for_each(|lease| lease.task.abort());
    }
}

#[cfg(test)]
mod tests;
