//! What the owner of a node or of a pod is told, as events on it.
//!
//! ```text
//! Notice ─▶ Teller ═ bounded ═▶ post ─▶ Book (what is due, of what series) ─▶ API server: create, patch
//! ```
//!
//! Nobody ever waits for it. What there is no room or no API server for is counted, and the count is in the log. Repetitions become one
//! event that counts. Needs `create` on `events.k8s.io/events`, and `patch` for the counting; without `patch` a repetition is another
//! event, some time later.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::mpsc;

use crate::connection::Connection;

mod book;
mod notice;
mod post;

pub use notice::{About, Notice};

/// Notices that may wait for the API server; more are lost.
const WAITING: usize = 256;

/// Where notices go. Clones are the same place; the default is none, for a program without an API server.
#[derive(Debug, Clone, Default)]
pub struct Teller {
    to: Option<Recipient>,
}

#[derive(Debug, Clone)]
struct Recipient {
    notices: mpsc::Sender<Notice>,
    /// That found no room.
    lost: Arc<AtomicU64>,
}

/// Who tells, for `kubectl describe`.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// `ovn-kubernetes/ovnkube-node`
    pub controller: &'static str,
    /// Which one of those: the name of its node.
    pub instance: String,
}

impl Teller {
    /// Tells the API server from now on. Needs a tokio runtime.
    pub fn start(api: Connection, reporter: Reporter) -> Self {
        let (notices, waiting) = mpsc::channel(WAITING);
        let lost = Arc::<AtomicU64>::default();
        tokio::spawn(post::post(api, reporter, waiting, Arc::clone(&lost)));
        Self { to: Some(Recipient { notices, lost }) }
    }

    /// One that tells a test, and not more than `room` at once.
    pub fn to_channel(room: usize) -> (Self, mpsc::Receiver<Notice>) {
        let (notices, waiting) = mpsc::channel(room);
        (Self { to: Some(Recipient { notices, lost: Arc::default() }) }, waiting)
    }

    /// Returns at once.
    pub fn tell(&self, notice: Notice) {
        let Some(Recipient { notices, lost }) = &self.to else { return };
        if notices.try_send(notice).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notices that found no room, since that was last in the log.
    pub fn lost(&self) -> u64 {
        self.to.as_ref().map_or(0, |to| to.lost.load(Ordering::Relaxed))
    }
}
