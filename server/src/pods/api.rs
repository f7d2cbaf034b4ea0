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
//! | `follow` | list and watch, for ever |
//! | `lookup` | one pod, asked for once however many want it |
//! | `ledger` | which news is newer: the order of things |
//! | `pod_meta` | what is read of a pod |

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::names::PodKey;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
    time::{Duration, Instant},
};

use self::{ledger::Ledger, lookup::Lookups};
use super::{PodSource, PodWatch, Pods, Readiness, Whereabouts};
use crate::{
    api_server::Connection,
    conditions::{Conditions, Part},
    metrics::Metrics,
};

mod follow;
mod ledger;
mod lookup;
mod pod_meta;

/// How long the API server may be away before pods are said to be unknown: a restart of it must not make every node unready.
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
    /// Something was learned elsewhere that the watch should have told, or the API server answered somebody.
    nudge: Notify,
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
            nudge: Notify::new(),
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
        self.conditions.met(Part::Pods);
    }

    /// Nothing is heard at the moment.
    fn lost(&self, why: String) {
        let mut standing = self.standing();
        let since = *standing.lost.get_or_insert_with(Instant::now);
        standing.readiness = if standing.synced_once && since.elapsed() < ABSENCE {
            Readiness::Behind(why)
        } else {
            self.conditions.missing(Part::Pods, why.clone());
            Readiness::NotSynced(why)
        };
    }
}

#[cfg(test)]
mod tests;
