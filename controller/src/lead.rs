//! Which of several processes acts: the holder of a Lease (`coordination.k8s.io/v1`), as client-go's leader election keeps it, so that
//! programs of both kinds can take turns.
//!
//! No two lead at once: a leader counts its time from before it asked for it, by its own clock, and stops a while before anybody may take
//! over; who waits counts by its own clock too, from when it last saw the leader renew. Nobody's wall clock matters.
//!
//! | module | noun |
//! |---|---|
//! | [`candidate`] | [`Candidate`]: who stands for what, and its durations |
//! | `record` | what a Lease says |
//! | `sight` | how long the same was seen, and whether it may be taken |
//! | `campaign` | asks, renews, gives up |

use std::time::Duration;

use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::api_server::{ApiServer, metrics::Metrics};

mod campaign;
pub mod candidate;
mod record;
mod sight;

pub use candidate::{BadDurations, Candidate, Durations, OwnLease};

/// How long giving up the Lease may take when a process stops.
const RELEASE: Duration = Duration::from_secs(5);

/// Whether this process leads. Clones tell the same.
#[derive(Debug, Clone)]
pub struct Leadership {
    state: watch::Receiver<State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Somebody else leads, or nobody is known to yet: what is waited for.
    Waiting { what: String, stands_by: bool },
    /// Until then at least; none: for ever.
    Leading { until: Option<Instant> },
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

/// The task that wins and keeps the Lease. Dropped, it ends, and the Lease runs out.
#[derive(Debug)]
pub struct Campaign {
    task: JoinHandle<Lost>,
    stop: Option<oneshot::Sender<()>>,
}

/// Why leadership ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the lease {lease} could not be renewed within {deadline:?}: {problem}")]
    Late { lease: String, deadline: Duration, problem: String },
    #[error("the lease {lease} was taken by {holder}")]
    Taken { lease: String, holder: String },
    #[error("the campaign for the lease was stopped")]
    Stopped,
}

impl Leadership {
    /// Without an election.
    pub fn always() -> Self {
        Self { state: watch::channel(State::Leading { until: None }).1 }
    }

    /// False too once the time is over, even if nothing in this process had a chance to notice.
    pub fn is_leader(&self) -> bool {
        match *self.state.borrow() {
            State::Leading { until } => until.is_none_or(|until| Instant::now() < until),
            State::Waiting { .. } | State::Over => false,
        }
    }

    /// Waits until [`is_leader`](Self::is_leader) is not what it is now; for ever if that cannot happen.
    pub async fn changed(&self) {
        let mut state = self.state.clone();
        let now = self.is_leader();
        while self.is_leader() == now {
            let until = match *state.borrow_and_update() {
                State::Leading { until } => until,
                State::Waiting { .. } | State::Over => None,
            };
            tokio::select! {
                Ok(()) = state.changed() => {}
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
        match &*self.state.borrow() {
            State::Waiting { what, .. } => Some(what.clone()),
            State::Leading { .. } if self.is_leader() => None,
            State::Leading { .. } | State::Over => Some("this process has led, and does no more".to_owned()),
        }
    }

    /// Where this process is in the election.
    pub fn place(&self) -> Place {
        match &*self.state.borrow() {
            State::Waiting { what, stands_by: true } => return Place::StandsBy(what.clone()),
            State::Waiting { .. } | State::Leading { .. } | State::Over => {}
        }
        self.waits_for().map_or(Place::Leads, Place::Unknown)
    }

    /// Waits until [`place`](Self::place) may be another; for ever if that cannot happen.
    pub async fn moved(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Campaign {
    /// Stands for the Lease from now on. Returns at once. Needs a tokio runtime.
    pub fn start(api: ApiServer, candidate: Candidate, metrics: Metrics) -> (Leadership, Self) {
        let (sender, state) = watch::channel(State::Waiting { what: format!("the lease {candidate} was not read yet"), stands_by: false });
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(campaign::run(api, candidate, metrics, sender, stopped));
        (Leadership { state }, Self { task, stop: Some(stop) })
    }

    /// Waits until leadership is lost; whoever led should end. Never ends before it was won.
    pub async fn lost(&mut self) -> Lost {
        (&mut self.task).await.unwrap_or(Lost::Stopped)
    }

    /// Stops standing. A leader stops leading first, then lets go of the Lease so that another can take it at once: call it when all that
    /// a leader alone may do has ended. Takes some seconds at most.
    pub async fn release(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
