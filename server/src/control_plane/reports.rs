//! What the controller says of single objects: to the log, and to their owners as events.

use controller::{doubt::Doubted, key::Key, reconcile::Report};
use kubeapi::{
    events::{About, Notice, Teller},
    object::Object,
};
use tokio::sync::{mpsc::UnboundedReceiver, watch};

/// What was being done, in events.
const ADDRESSES: &str = "AssignAddresses";
const ROWS: &str = "WriteRows";
const LISTS: &str = "ListObjects";

/// Tells until nobody reports any more.
pub(super) async fn tell(mut reports: UnboundedReceiver<Report>, teller: Teller, doubts: watch::Sender<Option<Doubted>>) {
    while let Some(report) = reports.recv().await {
        if let Report::Doubt(doubted) = &report {
            doubts.send_replace(doubted.clone());
        }
        if let Some(notice) = notice(report) {
            teller.tell(notice);
        }
    }
}

/// The event on the object, if it has one. The log has said it already, where it was found.
fn notice(report: Report) -> Option<Notice> {
    match report {
        Report::Trouble(trouble) => {
            tracing::warn!(pod = %trouble.subject, problem = %trouble.why, "a pod does not get its network");
            let about = About::new(ADDRESSES, trouble.why.reason());
            Some(Notice::new(Object::Pod(trouble.subject), &trouble.uid, about, trouble.why.to_string()))
        }
        Report::Shared(trouble) => {
            tracing::warn!(pod = %trouble.subject, problem = %trouble.why, "a pod shares its address");
            let about = About::new(ADDRESSES, "AddressShared");
            Some(Notice::new(Object::Pod(trouble.subject), &trouble.uid, about, trouble.why.to_string()))
        }
        Report::NodeTrouble(trouble) => {
            tracing::warn!(node = %trouble.subject, problem = %trouble.why, "what a node says of itself cannot be used");
            let about = About::new(ROWS, trouble.why.reason());
            Some(Notice::new(Object::Node(trouble.subject), &trouble.uid, about, trouble.why.to_string()))
        }
        Report::Refused { key, uid, error } => {
            let note = format!("OVN's northbound database refused the rows of this object, which are tried again: {error}");
            Some(Notice::new(object(key)?, &uid.unwrap_or_default(), About::new(ROWS, "RowsRefused"), note))
        }
        Report::Contested { key, uid, row } => {
            let note =
                format!("another program changes {row} in OVN's northbound database again and again: is a second controller running?");
            Some(Notice::new(object(key)?, &uid.unwrap_or_default(), About::new(ROWS, "RowsContested"), note))
        }
        // No object is to blame: the events are on one of the nodes that are known.
        Report::Doubt(doubted) => {
            let doubted = doubted?;
            let object = Object::Node(doubted.example.clone()?);
            Some(Notice::new(object, "", About::new(LISTS, "ListDoubted"), doubted.to_string()))
        }
        Report::Recovered { .. } => None,
    }
}

fn object(key: Key) -> Option<Object> {
    match key {
        Key::Cluster => None,
        Key::Node(name) => Some(Object::Node(name)),
        Key::Pod(pod) => Some(Object::Pod(pod)),
    }
}
