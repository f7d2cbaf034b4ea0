//! The state of each part of the control plane as readiness conditions, for `/readyz`, the log and systemd. A
//! standby is ready: a Deployment of two replicas would otherwise never be.

use std::sync::Arc;

use controller::{doubt::Doubted, reconcile::Progress};
use futures_util::FutureExt;
use kubeapi::{
    election::{Leadership, LeadershipState},
    watch::SyncStatus,
};
use ovsdb::State;
use server::conditions::Conditions;
use tokio::sync::watch;

use crate::{
    chain,
    metrics::ControlPlaneMetrics,
    roles::{CLUSTER, ELECTION, NORTHBOUND, ROWS},
};

/// Records when all conditions are met for the first time.
pub(super) async fn once(conditions: Conditions, metrics: Arc<ControlPlaneMetrics>) {
    // Cannot fail: `conditions` holds the sender.
    let _ = conditions.watch().wait_for(|missing| missing.is_empty()).await;
    metrics.became_ready();
    tracing::info!("ready");
}

/// Condition `election`: the leader is known.
pub(super) async fn election(
    mut leadership: Leadership,
    conditions: Conditions,
    metrics: Arc<ControlPlaneMetrics>,
) {
    loop {
        let now = leadership.place();
        metrics.leads(matches!(now, LeadershipState::Leads));
        match now {
            LeadershipState::Leads => {
                conditions.remark(ELECTION, "this process leads");
                conditions.met(ELECTION);
            }
            LeadershipState::StandsBy(why) => {
                conditions.remark(ELECTION, why);
                conditions.met(ELECTION);
            }
            LeadershipState::Unknown(why) => conditions.missing(ELECTION, why),
        }
        leadership.moved().await;
    }
}

/// Condition `cluster`: all nodes are known, and all pods if a controller follows them. A standby lists them
/// only when it leads.
pub(super) async fn cluster(
    mut sync_statuses: Vec<(&'static str, watch::Receiver<SyncStatus>)>,
    mut doubts: Vec<watch::Receiver<Option<Doubted>>>,
    mut leadership: Leadership,
    conditions: Conditions,
) {
    loop {
        // All values are read before the wait below, each marked as seen: no change in between is lost.
        let stands_by = matches!(leadership.place(), LeadershipState::StandsBy(_));
        let why = sync_statuses.iter_mut().find_map(|(kind, status)| match &*status.borrow_and_update() {
            // Whether anything is missing then, the controller knows: `rows`.
            SyncStatus::Synced | SyncStatus::Unlisted(_) => None,
            SyncStatus::Reading(_) if stands_by => None,
            SyncStatus::Reading(why) => Some(format!("the list of {kind} is not complete yet: {why}")),
            SyncStatus::Behind(why) => Some(format!("the watch on {kind} is disconnected: {why}")),
        });
        let doubt =
            doubts.iter_mut().find_map(|doubt| doubt.borrow_and_update().as_ref().map(ToString::to_string));
        // Doubt comes first: the watch of a doubted list may be in sync, and the list is still not used.
        match doubt.or(why) {
            None => conditions.met(CLUSTER),
            Some(why) => conditions.missing(CLUSTER, why),
        }
        // Never empty, on which `select_all` would panic: nodes are watched in every role.
        let changes = sync_statuses.iter_mut().map(|(_, status)| status.changed().boxed());
        let changes = changes.chain(doubts.iter_mut().map(|doubt| doubt.changed().boxed()));
        tokio::select! {
            (changed, ..) = futures_util::future::select_all(changes) => if changed.is_err() {
                return;
            },
            () = leadership.moved() => {}
        }
    }
}

/// Condition `northbound-database`: the database answers.
pub(super) async fn northbound(mut state: watch::Receiver<State>, conditions: Conditions) {
    loop {
        match &*state.borrow_and_update() {
            State::Connected(_) => conditions.met(NORTHBOUND),
            State::Disconnected(why) => conditions.missing(NORTHBOUND, chain(why)),
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// Condition `rows`: the database has been fully reconciled once, and all kinds of objects that it has rows
/// of can be read. Later changes do not count: a cluster always changes. A standby has nothing to write. The
/// remark is the object whose rows take long to compare.
pub(super) async fn rows(
    mut leadership: Leadership,
    mut progress: watch::Receiver<Progress>,
    conditions: Conditions,
) {
    loop {
        let Progress { blocked, unread, slow, ever_converged, dirty, waiting, failing, .. } =
            progress.borrow_and_update().clone();
        match (blocked, leadership.place()) {
            (Some(why), _) => conditions.missing(ROWS, &*why),
            (None, LeadershipState::Unknown(_)) => conditions.missing(ROWS, "the leader is not known yet"),
            (None, LeadershipState::Leads) if let Some(why) = unread => conditions.missing(ROWS, &*why),
            (None, LeadershipState::Leads) if !ever_converged => {
                conditions.missing(ROWS, not_converged(dirty, waiting, failing))
            }
            (None, LeadershipState::Leads | LeadershipState::StandsBy(_)) => conditions.met(ROWS),
        }
        match slow {
            Some(slow) => conditions.remark(ROWS, &*slow),
            None => conditions.unremark(ROWS),
        }
        tokio::select! {
            changed = progress.changed() => if changed.is_err() {
                return;
            },
            () = leadership.moved() => {}
        }
    }
}

/// Numbers of objects whose rows are not in the database as they should be.
fn not_converged(dirty: usize, waiting: usize, failing: usize) -> String {
    format!("northbound not converged: {dirty} dirty, {waiting} blocked, {failing} rejected")
}
