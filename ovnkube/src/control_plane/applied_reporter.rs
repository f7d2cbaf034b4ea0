//! Events on objects whose owners ask when they are in force (`k8s.ovn.org/report-applied`): all
//! nodes of the zone are asked, as `ovnkube applied` asks them. Nothing is asked, and no connection
//! is open, while nobody wants to know.

use std::{sync::Arc, time::Duration};

use controller::{engine::reconcile::Report, key::Key};
use kubeapi::{
    events::{Event, EventReason, Recorder},
    object::Object,
};
use prometheus::Histogram;
use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, sleep},
};

use super::{Database, reports::object};
use crate::{
    hypervisor_sync::{Answers, milliseconds},
    ovn_query::{NORTHBOUND, SOUTHBOUND, open},
};

/// Changes that wait for the next round. There may be as many objects, and one change of each says
/// all.
pub(super) const WAITING: usize = 1000;
/// How long nodes have to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause after a round: each one makes every ovn-controller of the zone write a row.
const REST: Duration = Duration::from_secs(5);
/// The pause as a multiple of what the round took.
const SHARE: u32 = 10;
/// Nodes that a note names.
const NAMED: usize = 5;

/// A change whose rows the northbound database has.
#[derive(Debug, Clone)]
pub(super) struct AppliedChange {
    pub(super) key: Key,
    pub(super) uid: Arc<str>,
    /// When the controller saw it.
    pub(super) since: Instant,
}

/// Asks the nodes, one round after the other.
#[derive(Debug)]
pub(super) struct AppliedReporter {
    pub(super) changes: Receiver<AppliedChange>,
    pub(super) northbound: Database,
    pub(super) southbound: Database,
    pub(super) recorder: Recorder,
    pub(super) histogram: Histogram,
}

/// What a report asks for, if it is one of these.
pub(super) fn change(report: &Report) -> Option<AppliedChange> {
    let Report::Applied { key, uid, since } = report else { return None };
    Some(AppliedChange { key: key.clone(), uid: Arc::clone(uid), since: *since })
}

impl AppliedReporter {
    /// Until there is no controller any more.
    pub(super) async fn run(mut self) {
        let (mut is_late, mut round) = (false, 0_u64);
        while let Some(first) = self.changes.recv().await {
            let mut changes = vec![first];
            while let Ok(next) = self.changes.try_recv() {
                changes.retain(|earlier| earlier.key != next.key);
                changes.push(next);
            }
            let begun = Instant::now();
            round += 1;
            match self.ask(begun + PATIENCE).await {
                Ok(answers) => {
                    for change in changes {
                        let took = begun.duration_since(change.since) + answers.took;
                        // What waited for its round says nothing about the network.
                        if !is_late && answers.missing().next().is_none() {
                            self.histogram.observe(took.as_secs_f64());
                        }
                        if let Some(object) = object(change.key) {
                            let told = Told { took, is_late, round };
                            self.recorder.event(event(object, &change.uid, &answers, &told));
                        }
                    }
                }
                Err(why) => {
                    tracing::warn!(
                        why,
                        "nodes cannot be asked what is in force: no events on objects that ask"
                    );
                }
            }
            let rest = REST.max(begun.elapsed() * SHARE);
            sleep(rest).await;
            is_late = !self.changes.is_empty();
        }
    }

    async fn ask(&self, deadline: Instant) -> Result<Answers, String> {
        let Self { northbound, southbound, .. } = self;
        let north = open(&northbound.endpoints, NORTHBOUND, northbound.options()).await?;
        let south = open(&southbound.endpoints, SOUTHBOUND, southbound.options()).await?;
        Answers::of(&north, &south, deadline).await
    }
}

/// What a round says of one change.
#[derive(Debug)]
struct Told {
    /// From the change to the last answer.
    took: Duration,
    /// It waited for the round before.
    is_late: bool,
    /// The number of the round: each has its own figures, which must not become those of a series.
    round: u64,
}

/// The event on an object.
fn event(object: Object, uid: &str, answers: &Answers, told: &Told) -> Event {
    let all = answers.nodes();
    let missing: Vec<&str> = answers.missing().collect();
    let applied = all - missing.len();
    let detail = told.round.to_string();
    let reason = |reason| EventReason { action: "Apply", reason, detail };
    let took = milliseconds(told.took);
    if missing.is_empty() && all > 0 {
        let after = match told.is_late {
            false => format!("{took} after the change"),
            true => format!("within {took} of the change: nodes are asked every 5 s"),
        };
        let note = format!("in force on {applied} of {all} nodes, {after}");
        return Event::new(object, uid, reason("Applied"), note).normal();
    }
    let named = missing.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let others = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let note = match all {
        0 => "in force on no node: the southbound database has none".to_owned(),
        _ => format!(
            "in force on {applied} of {all} nodes after {} s; the ovn-controller of \
             {named}{others} has not answered: see `ovnkube status`",
            PATIENCE.as_secs()
        ),
    };
    Event::new(object, uid, reason("NotApplied"), note)
}

#[cfg(test)]
mod tests;
