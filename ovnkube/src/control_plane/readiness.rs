//! The state of each part of the control plane as readiness conditions, for `/readyz`, the log and
//! systemd. A standby is ready: a Deployment of two replicas would otherwise never be.

use std::{collections::BTreeSet, sync::Arc};

use controller::{engine::reconcile::Progress, safety_brake::HeldLists};
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

/// Condition `cluster`: all nodes are known, and all pods if a controller follows them. A standby
/// lists them only when it leads.
pub(super) async fn cluster(
    mut sync_statuses: Vec<(&'static str, watch::Receiver<SyncStatus>)>,
    mut doubts: Vec<watch::Receiver<Option<HeldLists>>>,
    mut leadership: Leadership,
    conditions: Conditions,
) {
    // By their places: a party that has ended says nothing new, and the others go on.
    let mut ended = BTreeSet::new();
    loop {
        // All values are read before the wait below, each marked as seen: no change in between is
        // lost.
        let stands_by = matches!(leadership.place(), LeadershipState::StandsBy(_));
        let why = sync_statuses.iter_mut().find_map(|(kind, status)| {
            match &*status.borrow_and_update() {
                // Whether anything is missing then, the controller knows: `rows`.
                SyncStatus::Synced | SyncStatus::Unlisted(_) => None,
                SyncStatus::Reading(_) if stands_by => None,
                SyncStatus::Reading(why) => {
                    Some(format!("the list of {kind} is not complete yet: {why}"))
                }
                SyncStatus::Behind(why) => {
                    Some(format!("the watch on {kind} is disconnected: {why}"))
                }
            }
        });
        let doubt = doubts
            .iter_mut()
            .find_map(|doubt| doubt.borrow_and_update().as_ref().map(ToString::to_string));
        // Doubt comes first: the watch of a doubted list may be in sync, and the list is still not
        // used.
        match doubt.or(why) {
            None => conditions.met(CLUSTER),
            Some(why) => conditions.missing(CLUSTER, why),
        }
        let changes = sync_statuses.iter_mut().map(|(_, status)| status.changed().boxed());
        let changes = changes.chain(doubts.iter_mut().map(|doubt| doubt.changed().boxed()));
        let places = changes.enumerate().filter(|(place, _)| !ended.contains(place));
        let changes: Vec<_> = places
            .map(|(place, changed)| changed.map(move |changed| (place, changed)).boxed())
            .collect();
        if changes.is_empty() {
            return;
        }
        tokio::select! {
            ((place, changed), ..) = futures_util::future::select_all(changes) => if changed.is_err() {
                ended.insert(place);
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

/// Condition `rows`: the database has been fully reconciled once, and all kinds of objects that it
/// has rows of can be read. Later changes do not count: a cluster always changes. A standby has
/// nothing to write. Rows of the cluster or of a node that the database refuses again and again
/// count. The remark is about other objects: one whose rows are refused, or take long to compare.
pub(super) async fn rows(
    mut leadership: Leadership,
    mut progress: watch::Receiver<Progress>,
    conditions: Conditions,
) {
    loop {
        let Progress {
            blocked,
            unread,
            slow,
            refused,
            refused_objects,
            ever_converged,
            dirty,
            waiting,
            failing,
            ..
        } = progress.borrow_and_update().clone();
        match (blocked, leadership.place()) {
            (Some(why), _) => conditions.missing(ROWS, &*why),
            (None, LeadershipState::Unknown(_)) => {
                conditions.missing(ROWS, "the leader is not known yet")
            }
            (None, LeadershipState::Leads) if let Some(why) = unread => {
                conditions.missing(ROWS, &*why)
            }
            (None, LeadershipState::Leads) if !ever_converged => {
                conditions.missing(ROWS, not_converged(dirty, waiting, failing))
            }
            (None, LeadershipState::Leads) if let Some(why) = refused => {
                conditions.missing(ROWS, &*why)
            }
            (None, LeadershipState::Leads | LeadershipState::StandsBy(_)) => conditions.met(ROWS),
        }
        match refused_objects.or(slow) {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{task::yield_now, time::timeout};

    use super::*;

    /// It was met ever after, whatever became of the watches.
    #[tokio::test]
    async fn the_cluster_condition_follows_the_watches_when_a_party_that_could_doubt_has_ended() {
        let (watched, status) = watch::channel(SyncStatus::Synced);
        let (doubts, doubted) = watch::channel(None);
        let conditions = Conditions::of([CLUSTER]);
        tokio::spawn(cluster(
            vec![("nodes", status)],
            vec![doubted],
            Leadership::always(),
            conditions.clone(),
        ));
        let mut missing = conditions.watch();
        missing.wait_for(|missing| missing.is_empty()).await.unwrap();
        drop(doubts);
        yield_now().await;
        watched.send_replace(SyncStatus::Behind("no route".into()));
        let told =
            timeout(Duration::from_secs(10), missing.wait_for(|missing| !missing.is_empty())).await;
        assert!(told.is_ok(), "the watch is disconnected, and the condition is met");
    }

    /// A row of a node that the database refused for ever left `/readyz` at 200.
    #[tokio::test]
    async fn rows_of_a_node_that_are_refused_for_ever_count_and_those_of_a_pod_are_a_remark() {
        let (progress, progressed) =
            watch::channel(Progress { ever_converged: true, ..Progress::default() });
        let conditions = Conditions::of([ROWS]);
        tokio::spawn(rows(Leadership::always(), progressed, conditions.clone()));
        let mut missing = conditions.watch();
        missing.wait_for(|missing| missing.is_empty()).await.unwrap();
        progress.send_modify(|progress| progress.refused = Some("node n1: no".into()));
        let why = missing.wait_for(|missing| !missing.is_empty()).await.unwrap().clone();
        assert_eq!(why.get(&ROWS).map(String::as_str), Some("node n1: no"));
        progress.send_modify(|progress| {
            progress.refused_objects = progress.refused.take();
        });
        missing.wait_for(|missing| missing.is_empty()).await.unwrap();
    }
}
