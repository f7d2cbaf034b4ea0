//! Keeps the stamp beside the socket fresh while this server can answer ADDs ([`podnet::stamp`]).
//! With a fresh stamp, a STATUS that finds no server treats it as one that is being replaced. Knows
//! nothing of requests.

use std::{path::PathBuf, sync::Arc, time::Duration};

use podnet::stamp;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    atomic_file,
    pods::{PodSource, Readiness},
};

/// Interval between two stamps. A killed server leaves a stamp that is at most this much too old,
/// out of the 60 s that STATUS forgives (`FORGIVEN`). Ten times longer would use up most of them.
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

    /// Writes the stamp at regular intervals, for as long as the runtime lives.
    pub(crate) async fn run(self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.write();
        }
    }

    /// Writes the stamp once, if this server can answer ADDs.
    pub(crate) fn write(&self) {
        match self.source.readiness() {
            // A server that has lost the API server still answers ADDs of the pods that it knows.
            Readiness::Synced | Readiness::Behind(_) => {}
            Readiness::NotSynced(_) => return,
        }
        let file = stamp::file(&self.socket);
        let written =
            stamp::text().and_then(|text| atomic_file::replace(&file, text.as_bytes(), 0o600));
        if let Err(error) = written {
            // Without a stamp, STATUS is as strict as on a node that never had a server.
            tracing::debug!(%error, path = %file.display(), "the stamp is not written");
        }
    }
}
