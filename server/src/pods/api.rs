//! The pods of this node in the API server, and of each only what the server needs.
//!
//! ```text
//! list ─▶ VersionedPods ◀─ watch, from where the list ended, and again from where it broke off
//!            ▲ └▶ Pods ─▶ PodWatch of each ADD that waits
//!            └─ lookup of one pod, if an ADD knows of it before the watch does
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `follow` | list and watch, into the versioned_pods |
//! | `lookup` | the request for one pod, shared by all ADDs that need it |
//! | `versioned_pods` | the versioned cache: the newer of two reports of a pod counts |
//! | `pod_meta` | the fields that are read of a pod |

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use contract::names::PodKey;
use futures_util::future::BoxFuture;
use kubeapi::{Connection, watch::Prompt};
use tokio::{
    sync::Semaphore,
    task::JoinHandle,
    time::{Duration, Instant},
};

use self::{lookup::Lookups, versioned_pods::VersionedPods};
use super::{PodSource, PodWatch, Pods, Readiness, SourceDescription};
use crate::{
    conditions::{Conditions, Part},
    metrics::{Degraded, Metrics},
};

mod follow;
mod lookup;
mod pod_meta;
mod versioned_pods;

/// How long the API server may be away before `/readyz` reports it. Its restart takes some seconds
/// and is no trouble of this server; an administrator should see a longer absence while it lasts.
const ABSENCE: Duration = Duration::from_secs(15);
/// Lookups at the same time. A node that boots has ADDs for all its pods at once: one after the
/// other they would miss their deadline, and all at once, on every node, they would burden the API
/// server.
const LOOKUPS: usize = 8;

/// The pods of one node in the API server, as a source.
#[derive(Debug)]
pub struct ApiPods {
    shared: Arc<Shared>,
    follower: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    connection: Connection,
    node: String,
    pods: Pods,
    versioned_pods: Mutex<VersionedPods>,
    lookups: Lookups,
    /// Wakes the watch when a lookup was ahead of it.
    prompt: Prompt,
    standing: Mutex<SyncStatus>,
    conditions: Conditions,
    metrics: Arc<Metrics>,
}

/// The sync status of the watch.
#[derive(Debug)]
struct SyncStatus {
    readiness: Readiness,
    /// Since when the watch is disconnected.
    lost: Option<Instant>,
    /// Whether all pods were known at any time.
    synced_once: bool,
}

impl ApiPods {
    /// Follows the pods of `node` from now on. Returns at once, without waiting for the API server.
    /// Needs a tokio runtime.
    pub fn start(
        connection: Connection,
        node: &str,
        conditions: Conditions,
        metrics: Arc<Metrics>,
    ) -> Self {
        let pods = Pods::default();
        let why = format!("the API server {} has not answered yet", connection.url());
        conditions.missing(Part::PODS, why.clone());
        let shared = Arc::new(Shared {
            connection,
            node: node.to_owned(),
            versioned_pods: Mutex::new(VersionedPods::new(pods.clone())),
            pods,
            lookups: Lookups::new(Semaphore::new(LOOKUPS)),
            prompt: Prompt::default(),
            standing: Mutex::new(SyncStatus {
                readiness: Readiness::NotSynced(why),
                lost: Some(Instant::now()),
                synced_once: false,
            }),
            conditions,
            metrics,
        });
        let follower = tokio::spawn(follow::follow(Arc::clone(&shared)));
        Self { shared, follower }
    }
}

impl PodSource for ApiPods {
    fn watch(&self, pod: &PodKey) -> PodWatch {
        self.shared.pods.watch(pod)
    }

    fn look_up(&self, pod: &PodKey) {
        lookup::start(&self.shared, pod);
    }

    fn look_again(&self) -> BoxFuture<'_, Result<HashMap<PodKey, String>, String>> {
        Box::pin(follow::list_now(&self.shared))
    }

    fn awaits_mirror(&self, pod: &PodKey) -> bool {
        self.shared.pods.awaits_mirror(pod)
    }

    fn readiness(&self) -> Readiness {
        self.shared.standing().readiness.clone()
    }

    fn source_description(&self) -> SourceDescription {
        SourceDescription::ApiServer { node: self.shared.node.clone() }
    }
}

impl Drop for ApiPods {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Shared {
    fn versioned_pods(&self) -> MutexGuard<'_, VersionedPods> {
        self.versioned_pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> MutexGuard<'_, SyncStatus> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch is connected: every change is reported from now on.
    fn found(&self) {
        let mut standing = self.standing();
        // The first connection is no reconnection.
        if standing.lost.take().is_some() && standing.synced_once {
            self.metrics.reconnected(crate::metrics::Peer::ApiServer);
        }
        if !standing.synced_once {
            tracing::info!(
                api_server = self.connection.url(),
                pods = self.pods.known().len(),
                "the pods of this node are known"
            );
        }
        standing.synced_once = true;
        standing.readiness = Readiness::Synced;
        self.metrics.recovered(Degraded::ApiServer);
        self.conditions.met(Part::PODS);
    }

    /// The watch is disconnected.
    fn lost(&self, why: String) {
        let mut standing = self.standing();
        let since = *standing.lost.get_or_insert_with(Instant::now);
        self.metrics.degraded(Degraded::ApiServer);
        // Called after each failed attempt, so the condition turns missing without a timer.
        if !standing.synced_once || since.elapsed() >= ABSENCE {
            self.conditions.missing(Part::PODS, why.clone());
        }
        // After the first list a node can go on without the API server: pods run, and a known pod
        // can be attached.
        standing.readiness =
            if standing.synced_once { Readiness::Behind(why) } else { Readiness::NotSynced(why) };
    }
}

#[cfg(test)]
mod tests;
