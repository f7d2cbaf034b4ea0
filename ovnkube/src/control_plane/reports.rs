//! The controller's reports about single objects: log lines, and events on the objects for their owners.

use std::{collections::BTreeMap, sync::Arc};

use contract::names::PolicyKey;
use controller::{
    doubt::{Doubted, Example},
    key::Key,
    reconcile::Report,
    store::{DnsName, NameUse},
    trouble::PodTrouble,
};
use kubeapi::{
    events::{Event, EventReason, Recorder},
    object::Object,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender},
    watch,
};

/// The actions of events (`action` of `events.k8s.io/v1`).
const ADDRESSES: &str = "AssignAddresses";
const ROWS: &str = "WriteRows";
const LISTS: &str = "ListObjects";
const UNIDLE: &str = "Unidle";

/// The parts that do something with a report.
pub(super) struct Outlets {
    pub(super) doubts: watch::Sender<Option<Doubted>>,
    /// The names of the DNS to ask for.
    pub(super) names: watch::Sender<BTreeMap<DnsName, NameUse>>,
    /// NetworkPolicies to read again.
    pub(super) rereads: UnboundedSender<PolicyKey>,
}

/// Reports until the controller has ended.
pub(super) async fn tell(mut reports: UnboundedReceiver<Report>, recorder: Recorder, outlets: Outlets) {
    let Outlets { doubts, names, rereads } = outlets;
    while let Some(report) = reports.recv().await {
        if let Report::Doubt(doubted) = &report {
            doubts.send_replace(doubted.clone());
        }
        if let Report::Names(wanted) = &report {
            names.send_replace(wanted.clone());
        }
        if let Report::Reread(policy) = &report {
            // Without a receiver, the process is about to end.
            let _ = rereads.send(policy.clone());
        }
        if let Some(event) = event(report) {
            recorder.event(event);
        }
    }
}

/// The event on the object, if the report is about one. Troubles of pods and nodes are logged here, the other
/// reports where they are found.
fn event(report: Report) -> Option<Event> {
    match report {
        Report::Trouble(trouble) => {
            let (pod, problem) = (&trouble.subject, &trouble.why);
            match problem {
                PodTrouble::IgnoredClaim(_) => {
                    tracing::warn!(%pod, %problem, "what a pod's annotation claims does not count");
                }
                PodTrouble::PortNumbers { .. } => {
                    tracing::warn!(%pod, %problem, "a number of a pod's port does not count");
                }
                PodTrouble::NodeWithoutSubnet(_)
                | PodTrouble::NoFreeAddress { .. }
                | PodTrouble::Claim(_) => {
                    tracing::warn!(%pod, %problem, "a pod does not get its network");
                }
            }
            let reason = EventReason::new(ADDRESSES, trouble.why.reason());
            Some(Event::new(Object::Pod(trouble.subject), &trouble.uid, reason, trouble.why.to_string()))
        }
        Report::Shared(trouble) => {
            tracing::warn!(pod = %trouble.subject, problem = %trouble.why, "a pod shares its address");
            let reason = EventReason::new(ADDRESSES, "AddressShared");
            Some(Event::new(Object::Pod(trouble.subject), &trouble.uid, reason, trouble.why.to_string()))
        }
        Report::NodeTrouble(trouble) => {
            tracing::warn!(
                node = %trouble.subject,
                problem = %trouble.why,
                "a node's annotations cannot be used"
            );
            let reason = EventReason::new(ROWS, trouble.why.reason());
            Some(Event::new(Object::Node(trouble.subject), &trouble.uid, reason, trouble.why.to_string()))
        }
        Report::ServiceTrouble(trouble) => {
            tracing::warn!(
                service = %trouble.subject,
                problem = %trouble.why,
                "a part of a Service cannot be used"
            );
            let reason = EventReason::new(ROWS, trouble.why.reason());
            Some(Event::new(Object::Service(trouble.subject), &trouble.uid, reason, trouble.why.to_string()))
        }
        Report::NamespaceTrouble(trouble) => {
            tracing::warn!(
                namespace = %trouble.subject,
                problem = %trouble.why,
                "an annotation of a namespace cannot be used"
            );
            let reason = EventReason::new(ROWS, "UnusableAnnotation");
            let object = Object::Namespace(trouble.subject);
            Some(Event::new(object, &trouble.uid, reason, trouble.why.to_string()))
        }
        Report::PolicyTrouble(trouble) => {
            tracing::warn!(
                policy = %trouble.subject,
                problem = %trouble.why,
                "a part of a NetworkPolicy cannot be used"
            );
            let reason = EventReason::new(ROWS, trouble.why.reason());
            let object = Object::NetworkPolicy(trouble.subject);
            Some(Event::new(object, &trouble.uid, reason, trouble.why.to_string()))
        }
        Report::ClusterPolicyTrouble(trouble) => {
            tracing::warn!(
                policy = %trouble.subject,
                problem = %trouble.why,
                "a part of a policy of the cluster cannot be used"
            );
            let reason = EventReason::new(ROWS, trouble.why.reason());
            let object = Object::ClusterPolicy(trouble.subject);
            Some(Event::new(object, &trouble.uid, reason, trouble.why.to_string()))
        }
        Report::EgressFirewallTrouble(trouble) => {
            tracing::warn!(
                namespace = %trouble.subject,
                problem = %trouble.why,
                "a part of an EgressFirewall cannot be used"
            );
            let reason = EventReason::new(ROWS, trouble.why.reason());
            let object = Object::EgressFirewall(trouble.subject);
            Some(Event::new(object, &trouble.uid, reason, trouble.why.to_string()))
        }
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
                EventReason::new(ROWS, "RowsRefused"),
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
                EventReason::new(ROWS, "RowsOfAnother"),
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
                EventReason::new(ROWS, "RowsContested"),
                note,
            ))
        }
        // The list as a whole is doubted, and an event needs an object: it is on one of the known nodes.
        Report::Doubt(doubted) => {
            let doubted = doubted?;
            let Example { name, uid } = doubted.example.clone()?;
            // `kubectl describe node` looks for events with the node's UID, and for those with its name as the
            // UID, as kubelets write them.
            let uid = uid.unwrap_or_else(|| Arc::clone(&name));
            let reason = EventReason::new(LISTS, "ListDoubted");
            Some(Event::new(Object::Node(name), &uid, reason, doubted.to_string()))
        }
        // Other parts do something with it.
        Report::Names(_) | Report::Reread(_) | Report::Recovered { .. } => None,
    }
}

fn object(key: Key) -> Option<Object> {
    match key {
        Key::Cluster | Key::Chassis(_) | Key::Set(_) => None,
        Key::Isolation(name) | Key::Namespace(name) => Some(Object::Namespace(name)),
        Key::Policy(policy) => Some(Object::NetworkPolicy(policy)),
        Key::ClusterPolicy(policy) => Some(Object::ClusterPolicy(Arc::unwrap_or_clone(policy))),
        Key::EgressFirewall(namespace) => Some(Object::EgressFirewall(namespace)),
        Key::Node(name) | Key::Gateway(name) => Some(Object::Node(name)),
        Key::SourceNat(of) => Some(Object::Node(Arc::clone(&of.node))),
        Key::Pod(pod) => Some(Object::Pod(pod)),
        Key::Service(service) => Some(Object::Service(service)),
    }
}

#[cfg(test)]
mod tests;
