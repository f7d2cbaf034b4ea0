//! The controller's reports about single objects: log lines, and events on the objects for their
//! owners.

use std::{collections::BTreeMap, sync::Arc};

use contract::names::PolicyKey;
use controller::{
    engine::reconcile::Report,
    key::Key,
    problem::WRITE_ROWS,
    safety_brake::{Example, HeldLists},
    select::names::{DnsName, NameUse},
    tunnels::RemoteChassis,
};
use kubeapi::{
    events::{Event, EventReason, Recorder},
    object::Object,
};
use tokio::sync::{
    mpsc::{Sender, UnboundedReceiver, UnboundedSender, error::TrySendError},
    watch,
};

use super::applied_reporter::{self, AppliedChange};

/// The actions of events (`action` of `events.k8s.io/v1`).
const LISTS: &str = "ListObjects";
const UNIDLE: &str = "Unidle";

/// The parts that do something with a report.
pub(super) struct Outlets {
    pub(super) doubts: watch::Sender<Option<HeldLists>>,
    /// The names of the DNS to ask for.
    pub(super) names: watch::Sender<BTreeMap<DnsName, NameUse>>,
    /// The chassis of nodes of other zones.
    pub(super) chassis: watch::Sender<Option<Arc<RemoteChassis>>>,
    /// NetworkPolicies to read again.
    pub(super) rereads: UnboundedSender<PolicyKey>,
    /// Changes of objects whose owners ask when they are in force.
    pub(super) changes: Sender<AppliedChange>,
}

/// Reports until the controller has ended.
pub(super) async fn tell(
    mut reports: UnboundedReceiver<Report>,
    recorder: Recorder,
    outlets: Outlets,
) {
    let Outlets { doubts, names, chassis, rereads, changes } = outlets;
    while let Some(report) = reports.recv().await {
        if let Report::HeldLists(doubted) = &report {
            doubts.send_replace(doubted.clone());
        }
        if let Report::Names(wanted) = &report {
            names.send_replace(wanted.clone());
        }
        if let Report::RemoteChassis(wanted) = &report {
            chassis.send_replace(Some(Arc::clone(wanted)));
        }
        if let Report::Reread(policy) = &report {
            // Without a receiver, the process is about to end.
            let _ = rereads.send(policy.clone());
        }
        if let Some(change) = applied_reporter::change(&report) {
            // What finds no room is reported with its next change.
            if let Err(TrySendError::Closed(change)) = changes.try_send(change) {
                tracing::warn!(
                    key = %change.key,
                    "its owner asks when it is in force, and nobody knows: this process has no \
                     southbound database (--sb-address)"
                );
            }
        }
        if let Some(event) = event(report) {
            recorder.event(event);
        }
    }
}

/// The event on the object, if the report is about one. Problems are logged here, the other
/// reports where they are found.
fn event(report: Report) -> Option<Event> {
    match report {
        Report::Problem(problem) => Some(problem.report()),
        // Reason and type are those that unidling controllers wait for.
        Report::NeedPods { service, uid } => {
            let reason = EventReason::new(UNIDLE, "NeedPods");
            let note = "a client connects to this Service, which is idled";
            Some(Event::new(Object::Service(service), &uid, reason, note).normal())
        }
        Report::Refused { key, uid, error } => {
            let note = format!(
                "OVN's northbound database refused the rows of this object, which are tried again: {error}"
            );
            Some(Event::new(
                object(key)?,
                &uid.unwrap_or_default(),
                EventReason::new(WRITE_ROWS, "RowsRefused"),
                note,
            ))
        }
        Report::Taken { key, uid, row, by } => {
            let note = format!(
                "OVN's northbound database has the row {row}, which this object needs, as that of {by}. It \
                 stays that object's, and this one waits: give one of them another name"
            );
            Some(Event::new(
                object(key)?,
                &uid.unwrap_or_default(),
                EventReason::new(WRITE_ROWS, "RowsOfAnother"),
                note,
            ))
        }
        Report::Contested { key, uid, row } => {
            let note = format!(
                "another program changes {row} in OVN's northbound database again and again: \
                 is a second controller running?"
            );
            Some(Event::new(
                object(key)?,
                &uid.unwrap_or_default(),
                EventReason::new(WRITE_ROWS, "RowsContested"),
                note,
            ))
        }
        // The list as a whole is doubted, and an event needs an object: it is on one of the known
        // nodes.
        Report::HeldLists(doubted) => {
            let doubted = doubted?;
            let Example { name, uid } = doubted.example.clone()?;
            // `kubectl describe node` looks for events with the node's UID, and for those with its
            // name as the UID, as kubelets write them.
            let uid = uid.unwrap_or_else(|| Arc::clone(&name));
            let reason = EventReason::new(LISTS, "ListDoubted");
            Some(Event::new(Object::Node(name), &uid, reason, doubted.to_string()))
        }
        // Other parts do something with it.
        Report::Names(_)
        | Report::RemoteChassis(_)
        | Report::Reread(_)
        | Report::Applied { .. }
        | Report::Recovered { .. } => None,
    }
}

pub(super) fn object(key: Key) -> Option<Object> {
    match key {
        Key::Cluster | Key::Chassis(_) | Key::Set(_) => None,
        Key::Isolation(name) | Key::Namespace(name) => Some(Object::Namespace(name)),
        Key::Policy(policy) => Some(Object::NetworkPolicy(policy)),
        Key::ClusterPolicy(policy) => Some(Object::ClusterPolicy(Arc::unwrap_or_clone(policy))),
        Key::Custom(of) => Some(Object::Custom(of.kind, Arc::clone(&of.namespace))),
        Key::Node(name) | Key::Gateway(name) | Key::Transit(name) => Some(Object::Node(name)),
        Key::SourceNat(of) => Some(Object::Node(Arc::clone(&of.node))),
        Key::Pod(pod) => Some(Object::Pod(pod)),
        Key::Service(service) => Some(Object::Service(service)),
    }
}

#[cfg(test)]
mod tests;
