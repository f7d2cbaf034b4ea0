//! What each part of the control plane says of itself, as conditions: for `/readyz`, the log and systemd. Who stands by is ready.

use std::sync::Arc;

use controller::{doubt::Doubted, reconcile::Progress};
use futures_util::FutureExt;
use kubeapi::{
    election::{Leadership, Place},
    watch::Standing,
};
use ovsdb::State;
use tokio::sync::watch;

use crate::{
    chain,
    conditions::{Conditions, Part},
    metrics::ControlPlaneMetrics,
};

/// Tells when everything was there for the first time.
pub(super) async fn once(conditions: Conditions, metrics: Arc<ControlPlaneMetrics>) {
    // Cannot fail: a sender is in the conditions that are watched.
    let _ = conditions.watch().wait_for(|missing| missing.is_empty()).await;
    metrics.became_ready();
    tracing::info!("ready");
}

/// Whether it is known who leads.
pub(super) async fn election(mut leadership: Leadership, conditions: Conditions, metrics: Arc<ControlPlaneMetrics>) {
    loop {
        let now = leadership.place();
        metrics.leads(matches!(now, Place::Leads));
        match now {
            Place::Leads => {
                conditions.remark(Part::Election, "this process leads");
                conditions.met(Part::Election);
            }
            Place::StandsBy(why) => {
                conditions.remark(Part::Election, why);
                conditions.met(Part::Election);
            }
            Place::Unknown(why) => conditions.missing(Part::Election, why),
        }
        leadership.moved().await;
    }
}

/// Whether all objects of the cluster are known: nodes, and where they are followed pods. Who stands by reads them once it leads.
pub(super) async fn cluster(
    mut standings: Vec<(&'static str, watch::Receiver<Standing>)>,
    mut doubts: Vec<watch::Receiver<Option<Doubted>>>,
    mut leadership: Leadership,
    conditions: Conditions,
) {
    loop {
        let stands_by = matches!(leadership.place(), Place::StandsBy(_));
        let why = standings.iter_mut().find_map(|(kind, standing)| match &*standing.borrow_and_update() {
            Standing::Synced => None,
            Standing::Reading(_) if stands_by => None,
            Standing::Reading(why) => Some(format!("not all {} are known yet: {why}", kind)),
            Standing::Behind(why) => Some(format!("changes of {} are not heard of: {why}", kind)),
        });
        let doubt = doubts.iter_mut().find_map(|doubt| doubt.borrow_and_update().as_ref().map(ToString::to_string));
        match doubt.or(why) {
            None => conditions.met(Part::Cluster),
            Some(why) => conditions.missing(Part::Cluster, why),
        }
        let changes = standings.iter_mut().map(|(_, standing)| standing.changed().boxed());
        let changes = changes.chain(doubts.iter_mut().map(|doubt| doubt.changed().boxed()));
        tokio::select! {
            (changed, ..) = futures_util::future::select_all(changes) => if changed.is_err() {
                return;
            },
            () = leadership.moved() => {}
        }
    }
}

/// Whether the northbound database answers.
pub(super) async fn northbound(mut state: watch::Receiver<State>, conditions: Conditions) {
    loop {
        match &*state.borrow_and_update() {
            State::Connected(_) => conditions.met(Part::Northbound),
            State::Disconnected(why) => conditions.missing(Part::Northbound, chain(why)),
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// Whether the northbound database has had, once, what it should have. Later changes do not count: a cluster always changes. Who stands by
/// has nothing to write.
pub(super) async fn rows(mut leadership: Leadership, mut progress: watch::Receiver<Progress>, conditions: Conditions) {
    loop {
        let Progress { blocked, ever_converged, dirty, waiting, failing, .. } = progress.borrow_and_update().clone();
        match (blocked, leadership.place()) {
            (Some(why), _) => conditions.missing(Part::Rows, &*why),
            (None, Place::Unknown(_)) => conditions.missing(Part::Rows, "it is not known yet who writes them"),
            (None, Place::Leads) if !ever_converged => conditions.missing(Part::Rows, unwritten(dirty, waiting, failing)),
            (None, Place::Leads | Place::StandsBy(_)) => conditions.met(Part::Rows),
        }
        tokio::select! {
            changed = progress.changed() => if changed.is_err() {
                return;
            },
            () = leadership.moved() => {}
        }
    }
}

fn unwritten(dirty: usize, waiting: usize, failing: usize) -> String {
    format!("rows are not written yet, of so many objects: {dirty}; waiting for others: {waiting}; refused: {failing}")
}
