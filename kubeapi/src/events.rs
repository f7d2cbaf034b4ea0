//! Events on nodes and pods, for their owners (an event recorder).
//!
//! ```text
//! Notice ─▶ Recorder ═ bounded ═▶ sink ─▶ Aggregator (series, rate limit) ─▶ API server
//! ```
//!
//! Reporting never blocks the caller. Notices for which there is no room or no API server are counted, and
//! the count goes to the log. Repetitions become one event with a count. Needs `create` on
//! `events.k8s.io/events`, and `patch` for the count; without `patch`, a repetition becomes a new event, some
//! time later.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::mpsc;

use crate::connection::Connection;

mod aggregator;
mod notice;
mod sink;

pub use notice::{EventReason, Notice};

/// Notices that may wait for the API server; more are dropped. One unreachable API server holds up an event
/// for 5 s at a time, in which a node with a few hundred pods may report each of them once. Some ten would
/// drop notices of a normal burst; thousands would be out of date when they are sent.
const WAITING: usize = 256;

/// The event recorder. Clones share one queue. The default discards all notices, for a program without an API
/// server.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    to: Option<Recipient>,
}

#[derive(Debug, Clone)]
struct Recipient {
    notices: mpsc::Sender<Notice>,
    /// Notices that found no room.
    lost: Arc<AtomicU64>,
}

/// The source of the events, as `kubectl describe` shows it.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// `ovn-kubernetes/ovnkube-node`
    pub controller: &'static str,
    /// The instance: the name of its node.
    pub instance: String,
}

impl Recorder {
    /// Starts a task that sends the notices to the API server. Needs a tokio runtime.
    pub fn start(api: Connection, reporter: Reporter) -> Self {
        let (notices, waiting) = mpsc::channel(WAITING);
        let lost = Arc::<AtomicU64>::default();
        tokio::spawn(sink::post(api, reporter, waiting, Arc::clone(&lost)));
        Self { to: Some(Recipient { notices, lost }) }
    }

    /// A recorder for a test, which receives the notices; at most `room` of them may wait.
    pub fn to_channel(room: usize) -> (Self, mpsc::Receiver<Notice>) {
        let (notices, waiting) = mpsc::channel(room);
        (Self { to: Some(Recipient { notices, lost: Arc::default() }) }, waiting)
    }

    /// Queues a notice. Never blocks; without room, the notice is dropped and counted.
    pub fn tell(&self, notice: Notice) {
        let Some(Recipient { notices, lost }) = &self.to else { return };
        if notices.try_send(notice).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notices that were dropped since the last time their number was logged.
    pub fn lost(&self) -> u64 {
        self.to.as_ref().map_or(0, |to| to.lost.load(Ordering::Relaxed))
    }
}
