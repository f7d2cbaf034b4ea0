//! Keeps the stamp beside the socket young for as long as this server can answer ADDs ([`podnet::stamp`]): a STATUS that finds no server forgives one
//! that is being replaced. Knows nothing of requests.

use std::{path::PathBuf, sync::Arc, time::Duration};

use podnet::stamp;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    atomic_file,
    pods::{PodSource, Readiness},
};

/// A server that is killed has a stamp that is this much older at most, of the minute that is forgiven.
const EVERY: Duration = Duration::from_secs(5);

/// Writes the stamp of one server.
#[derive(Debug, Clone)]
pub(crate) struct Stamp {
    socket: PathBuf,
    source: Arc<dyn PodSource>,
}

impl Stamp {
    pub(crate) fn new(socket: PathBuf, source: Arc<dyn PodSource>) -> Self {
        Self { socket, source }
    }

    /// Writes it again and again, for as long as the runtime lives.
    pub(crate) async fn keep(self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.write();
        }
    }

    /// Writes it once, if this server can answer ADDs.
    pub(crate) fn write(&self) {
        match self.source.readiness() {
            Readiness::Synced | Readiness::Behind(_) => {}
            Readiness::NotSynced(_) => return,
        }
        let file = stamp::file(&self.socket);
        let written = stamp::text().and_then(|text| atomic_file::replace(&file, text.as_bytes(), 0o600));
        if let Err(error) = written {
            // Without it, STATUS is as strict as it is on a node without a server.
            tracing::debug!(%error, path = %file.display(), "the stamp is not written");
        }
    }
}
