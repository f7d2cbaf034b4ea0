//! Events on nodes and pods, for their owners (an event recorder).
//!
//! ```text
//! Event ─▶ Recorder ═ bounded ═▶ sink ─▶ EventCorrelator (series, spam filter) ─▶ API server
//! ```
//!
//! Reporting never blocks the caller. Events for which there is no room or no API server are
//! counted, and the count goes to the log. Repetitions become one event with a count. Needs
//! `create` on `events.k8s.io/events`, and `patch` for the count; without `patch`, a repetition
//! becomes a new event, some time later.
//!
//! Names are those of client-go's `tools/record` and `tools/events`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::mpsc;

use crate::connection::Connection;

mod correlator;
mod event;
mod sink;

pub use event::{Event, EventReason};

/// Events that may wait for the API server; more are dropped. One unreachable API server holds up
/// an event for 5 s at a time, in which a node with a few hundred pods may report each of them
/// once. Some ten would drop events of a normal burst; thousands would be out of date when they are
/// sent.
const MAX_QUEUED_EVENTS: usize = 256;

/// The event recorder. Clones share one queue. The default discards all events, for a program
/// without an API server.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    to: Option<Recipient>,
}

#[derive(Debug, Clone)]
struct Recipient {
    events: mpsc::Sender<Event>,
    /// Events that found no room.
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
    /// Starts a task that sends the events to the API server. Needs a tokio runtime.
    pub fn start(api: Connection, reporter: Reporter) -> Self {
        let (events, waiting) = mpsc::channel(MAX_QUEUED_EVENTS);
        let lost = Arc::<AtomicU64>::default();
        tokio::spawn(sink::record_to_sink(api, reporter, waiting, Arc::clone(&lost)));
        Self { to: Some(Recipient { events, lost }) }
    }

    /// A recorder for a test, which receives the events; at most `room` of them may wait.
    pub fn fake(room: usize) -> (Self, mpsc::Receiver<Event>) {
        let (events, waiting) = mpsc::channel(room);
        (Self { to: Some(Recipient { events, lost: Arc::default() }) }, waiting)
    }

    /// Queues an event. Never blocks; without room, the event is dropped and counted.
    pub fn event(&self, event: Event) {
        let Some(Recipient { events, lost }) = &self.to else { return };
        if events.try_send(event).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that were dropped since the last time their number was logged.
    pub fn lost(&self) -> u64 {
        self.to.as_ref().map_or(0, |to| to.lost.load(Ordering::Relaxed))
    }
}
