//! Which of several processes acts: the holder of a Lease (`coordination.k8s.io/v1`), as client-go's leader election keeps it, so that
//! programs of both kinds can take turns.
//!
//! No two lead at once: a leader counts its time from before it asked for it, by its own clock, and stops a while before anybody may take
//! over; who waits counts by its own clock too, from when it last saw the leader renew. Nobody's wall clock matters.
//!
//! A process whose roles others have alone stands for several Leases, and leads while it holds all of them. It observes all from the start,
//! and takes them in their order, so that two processes never wait for each other.
//!
//! | module | noun |
//! |---|---|
//! | [`candidate`] | [`Candidate`]: who stands for what, and its durations; [`Candidates`]: for which Leases one process stands |
//! | [`host_lock`] | [`HostLock`]: what shows that the former process of the same identity has ended |
//! | `moment` | a deadline that a suspended machine does not miss |
//! | `record` | what a Lease says |
//! | `sight` | how long the same was seen, and whether it may be taken |
//! | `campaign` | asks, renews, gives up |

use std::time::Duration;

use futures_util::{FutureExt, future::select_all};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use self::moment::Moment;

use crate::{connection::Connection, metrics::Metrics};

mod campaign;
pub mod candidate;
pub mod host_lock;
mod moment;
mod record;
mod sight;

pub use candidate::{BadDurations, Candidate, Candidates, Durations, OwnLease};
pub use host_lock::{HostLock, Mark};

/// How long giving up all Leases may take when a process stops.
const RELEASE: Duration = Duration::from_secs(5);
/// How long the API server may take for what a leader writes: longer than it takes when it has much to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this process leads. Clones tell the same.
#[derive(Debug, Clone)]
pub struct Leadership {
    /// Of each Lease; of one that is never lost, without an election.
    states: Vec<watch::Receiver<State>>,
    /// None without an election.
    durations: Option<Durations>,
    /// Of all clones.
    resigned: watch::Sender<bool>,
}

/// Of one Lease, or of all together.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Somebody else leads, or nobody is known to yet: what is waited for.
    Waiting { what: String, stands_by: bool },
    /// Until then at least; none: for ever.
    Leading { until: Option<Moment> },
    /// It will not lead again.
    Over,
}

/// Where a process is in the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Leads,
    /// Another one leads: who.
    StandsBy(String),
    /// Nobody is known to lead: why.
    Unknown(String),
}

/// The tasks that win and keep the Leases. Dropped, they end, and the Leases run out.
#[derive(Debug)]
pub struct Campaign {
    /// In the order in which they are taken.
    leases: Vec<Standing>,
}

/// The task of one Lease.
#[derive(Debug)]
struct Standing {
    task: JoinHandle<Lost>,
    /// Until when the Lease may be given up.
    stop: Option<oneshot::Sender<Instant>>,
}

/// Why leadership ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the lease {lease} could not be renewed within {deadline:?}: {problem}")]
    Late { lease: String, deadline: Duration, problem: String },
    #[error("the lease {lease} was taken by {holder}")]
    Taken { lease: String, holder: String },
    #[error("another process has taken the lock on the northbound database: is a second control plane running for it?")]
    LockTaken,
    #[error("the campaign for the lease was stopped")]
    Stopped,
}

impl Leadership {
    /// Without an election.
    pub fn always() -> Self {
        Self { states: vec![watch::channel(State::Leading { until: None }).1], durations: None, resigned: watch::channel(false).0 }
    }

    /// Of a process that has won, for a test.
    pub fn elected() -> Self {
        Self { durations: Some(Durations::default()), ..Self::always() }
    }

    /// Of a process that waits, and what has it win, for a test.
    pub fn waiting() -> (Self, impl FnOnce()) {
        let (sender, state) = watch::channel(State::Waiting { what: "a test".to_owned(), stands_by: true });
        let leadership = Self { states: vec![state], durations: Some(Durations::default()), resigned: watch::channel(false).0 };
        (leadership, move || drop(sender.send_replace(State::Leading { until: None })))
    }

    /// Whether others stand for it, too.
    pub fn is_elected(&self) -> bool {
        self.durations.is_some()
    }

    /// How long a request may take that only a leader may make: it must not arrive when another one has begun to lead. 30 s, and at most half
    /// of the time between the moment when a leader stops and the moment when others may take over.
    pub fn patience(&self) -> Duration {
        let gap = self.durations.map(|durations| durations.lease() - durations.renew());
        gap.map_or(PATIENCE, |gap| PATIENCE.min(gap / 2))
    }

    /// Ends what only a leader may do, in this process, while nobody else may lead yet: what is under way can be finished, nothing is begun.
    pub fn resign(&self) {
        self.resigned.send_replace(true);
    }

    /// Whether it was ended so.
    pub fn has_resigned(&self) -> bool {
        *self.resigned.borrow()
    }

    /// False too once the time is over, even if nothing in this process had a chance to notice.
    pub fn is_leader(&self) -> bool {
        match self.state() {
            State::Leading { until } => !self.has_resigned() && until.is_none_or(|until| !until.has_passed()),
            State::Waiting { .. } | State::Over => false,
        }
    }

    fn state(&self) -> State {
        State::of_all(self.states.iter().map(|state| state.borrow().clone()))
    }

    /// Waits until [`is_leader`](Self::is_leader) is not what it is now; for ever if that cannot happen.
    pub async fn changed(&self) {
        let (mut states, mut resigned) = (self.states.clone(), self.resigned.subscribe());
        let now = self.is_leader();
        while self.is_leader() == now {
            let until = match State::of_all(states.iter_mut().map(|state| state.borrow_and_update().clone())) {
                State::Leading { until } => until.map(|until| until.clock),
                State::Waiting { .. } | State::Over => None,
            };
            tokio::select! {
                Ok(()) = any_changed(&mut states) => {}
                Ok(()) = resigned.changed() => {}
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
                else => std::future::pending().await,
            }
        }
    }

    /// Waits until this process leads.
    pub async fn won(&self) {
        while !self.is_leader() {
            self.changed().await;
        }
    }

    /// Waits until this process does not lead.
    pub async fn lost(&self) {
        while self.is_leader() {
            self.changed().await;
        }
    }

    /// What is waited for, for `/readyz`; none for a leader.
    pub fn waits_for(&self) -> Option<String> {
        match self.state() {
            State::Waiting { what, .. } => Some(what),
            State::Leading { .. } if self.is_leader() => None,
            State::Leading { .. } | State::Over => Some("this process has led, and does no more".to_owned()),
        }
    }

    /// Where this process is in the election.
    pub fn place(&self) -> Place {
        if let State::Waiting { what, stands_by: true } = self.state() {
            return Place::StandsBy(what);
        }
        self.waits_for().map_or(Place::Leads, Place::Unknown)
    }

    /// Waits until [`place`](Self::place) may be another; for ever if that cannot happen.
    pub async fn moved(&mut self) {
        if any_changed(&mut self.states).await.is_err() {
            std::future::pending().await
        }
    }
}

impl State {
    /// A process leads while it has all Leases, and has led when it has lost one.
    fn of_all(states: impl Iterator<Item = Self>) -> Self {
        let together = |before, next| match (before, next) {
            (Self::Over, _) | (_, Self::Over) => Self::Over,
            // The Lease that is taken first is waited for first.
            (waiting @ Self::Waiting { .. }, _) | (_, waiting @ Self::Waiting { .. }) => waiting,
            (Self::Leading { until: one }, Self::Leading { until: other }) => {
                Self::Leading { until: [one, other].into_iter().flatten().min_by_key(|until| until.clock) }
            }
        };
        states.reduce(together).unwrap_or(Self::Over)
    }
}

/// Fails if one of them cannot change any more.
async fn any_changed(states: &mut [watch::Receiver<State>]) -> Result<(), watch::error::RecvError> {
    select_all(states.iter_mut().map(|state| state.changed().boxed())).await.0
}

impl Campaign {
    /// Stands for the Leases of `candidates` from now on, and takes each one only while it has those before it. Returns at once. Needs a tokio
    /// runtime.
    pub fn start(api: Connection, candidates: Candidates, metrics: Metrics) -> (Leadership, Self) {
        let durations = Some(candidates.first.durations);
        let mut leadership = Leadership { states: Vec::new(), durations, resigned: watch::channel(false).0 };
        let mut leases = Vec::new();
        let mut candidates = std::iter::once(candidates.first).chain(candidates.second).peekable();
        while let Some(candidate) = candidates.next() {
            let (sender, state) =
                watch::channel(State::Waiting { what: format!("the lease {candidate} was not read yet"), stands_by: false });
            let (stop, stopped) = oneshot::channel();
            let before = (!leases.is_empty()).then(|| leadership.clone());
            // Who has the last one leads.
            let metrics = candidates.peek().is_none().then(|| metrics.clone());
            let task = tokio::spawn(campaign::run(api.clone(), candidate, before, metrics, sender, stopped));
            leadership.states.push(state);
            leases.push(Standing { task, stop: Some(stop) });
        }
        (leadership, Self { leases })
    }

    /// Waits until leadership is lost; whoever led should end. Never ends before it was won.
    pub async fn lost(&mut self) -> Lost {
        select_all(self.leases.iter_mut().map(|lease| &mut lease.task)).await.0.unwrap_or(Lost::Stopped)
    }

    /// Stops standing. A leader stops leading first, then lets go of the Leases so that another can take them at once: call it when all that
    /// a leader alone may do has ended. The Lease that is taken first is given up last: who waits for it finds the others free. Takes some
    /// seconds at most.
    pub async fn release(mut self) {
        let deadline = Instant::now() + RELEASE;
        for Standing { task, stop } in self.leases.iter_mut().rev() {
            if let Some(stop) = stop.take() {
                let _ = stop.send(deadline);
            }
            // One that was lost has said so.
            if !task.is_finished() {
                let _ = task.await;
            }
        }
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        self.leases.iter().for_each(|lease| lease.task.abort());
    }
}

#[cfg(test)]
mod tests;
