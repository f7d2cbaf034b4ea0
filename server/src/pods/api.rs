//! Pods out of the API server: those of this node, and of each only what the server needs.
//!
//! ```text
//! list ─▶ Ledger ◀─ watch, from where the list ended, and again from where it broke off
//!            ▲ └▶ Pods ─▶ whoever waits
//!            └─ lookup of one pod, when somebody knows of it before the watch does
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `follow` | what list and watch tell, into the ledger |
//! | `lookup` | one pod, asked for once however many want it |
//! | `ledger` | which news is newer: the order of things |
//! | `pod_meta` | what is read of a pod |

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

use self::{ledger::Ledger, lookup::Lookups};
use super::{PodSource, PodWatch, Pods, Readiness, Whereabouts};
use crate::{
    conditions::{Conditions, Part},
    metrics::{Degraded, Metrics},
};

mod follow;
mod ledger;
mod lookup;
mod pod_meta;

/// How long the API server may be away before `/readyz` says so: a restart of it is no trouble of this server's.
const ABSENCE: Duration = Duration::from_secs(15);
/// Lookups at once.
const LOOKUPS: usize = 8;

/// The pods of one node, as the API server knows them.
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
    ledger: Mutex<Ledger>,
    lookups: Lookups,
    /// Something was learned elsewhere that the watch should have told, or the API server answered another request.
    prompt: Prompt,
    standing: Mutex<Standing>,
    conditions: Conditions,
    metrics: Arc<Metrics>,
}

/// How far the watch can be relied on.
#[derive(Debug)]
struct Standing {
    readiness: Readiness,
    /// Since when nothing is heard, and whether anything was before.
    lost: Option<Instant>,
    synced_once: bool,
}

impl ApiPods {
    /// Follows the pods of `node` from now on. Returns at once, whether the API server is there or not. Needs a tokio runtime.
    pub fn start(connection: Connection, node: &str, conditions: Conditions, metrics: Arc<Metrics>) -> Self {
        let pods = Pods::default();
        let why = format!("the API server {} has not answered yet", connection.url());
        conditions.missing(Part::Pods, why.clone());
        let shared = Arc::new(Shared {
            connection,
            node: node.to_owned(),
            ledger: Mutex::new(Ledger::new(pods.clone())),
            pods,
            lookups: Lookups::new(Semaphore::new(LOOKUPS)),
            prompt: Prompt::default(),
            standing: Mutex::new(Standing { readiness: Readiness::NotSynced(why), lost: Some(Instant::now()), synced_once: false }),
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

    fn whereabouts(&self) -> Whereabouts {
        Whereabouts::ApiServer { node: self.shared.node.clone() }
    }
}

impl Drop for ApiPods {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every change is heard of from now on.
    fn found(&self) {
        let mut standing = self.standing();
        if standing.lost.take().is_some() && standing.synced_once {
            self.metrics.reconnected(crate::metrics::Peer::ApiServer);
        }
        if !standing.synced_once {
            tracing::info!(api_server = self.connection.url(), pods = self.pods.known().len(), "the pods of this node are known");
        }
        standing.synced_once = true;
        standing.readiness = Readiness::Synced;
        self.metrics.degraded(Degraded::ApiServer, false);
        self.conditions.met(Part::Pods);
    }

    /// Nothing is heard at the moment.
    fn lost(&self, why: String) {
        let mut standing = self.standing();
        let since = *standing.lost.get_or_insert_with(Instant::now);
        self.metrics.degraded(Degraded::ApiServer, true);
        if !standing.synced_once || since.elapsed() >= ABSENCE {
            self.conditions.missing(Part::Pods, why.clone());
        }
        // What was known once is as good as ever for a node: its pods go on, and those that are known can be attached.
        standing.readiness = if standing.synced_once { Readiness::Behind(why) } else { Readiness::NotSynced(why) };
    }
}

#[cfg(test)]
mod tests;
