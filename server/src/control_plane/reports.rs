//! What the controller says of single objects: to the log, and to their owners as events.

use controller::{
    key::Key,
    object::Object,
    reconcile::Report,
    tell::{About, Notice, Teller},
};
use tokio::sync::mpsc::UnboundedReceiver;

/// What was being done, in events.
const ADDRESSES: &str = "AssignAddresses";
const ROWS: &str = "WriteRows";

/// Tells until nobody reports any more.
pub(super) async fn tell(mut reports: UnboundedReceiver<Report>, teller: Teller) {
    while let Some(report) = reports.recv().await {
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
        Report::Refused { key, error } => {
            let note = format!("OVN's northbound database refused the rows of this object, which are tried again: {error}");
            Some(Notice::new(object(key)?, "", About::new(ROWS, "RowsRefused"), note))
        }
        Report::Contested { key, row } => {
            let note =
                format!("another program changes {row} in OVN's northbound database again and again: is a second controller running?");
            Some(Notice::new(object(key)?, "", About::new(ROWS, "RowsContested"), note))
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
