//! What is wrong with an object, for the log and for an event on it. The problems of a kind are in
//! `kinds/<kind>/problem.rs`.

use std::{fmt, sync::Arc};

use contract::namespace_annotation::BadNamespaceAnnotation;
use kubeapi::{
    events::{Event, EventReason},
    object::Object,
};

pub use kubeapi::services::Family;

/// The action of an event about what an object asks of the northbound database (`action` of
/// `events.k8s.io/v1`).
pub const WRITE_ROWS: &str = "WriteRows";
/// The action of an event about addresses.
pub const ASSIGN_ADDRESSES: &str = "AssignAddresses";

/// A problem of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub object: Object,
    pub uid: Arc<str>,
    /// What was to be done with the object.
    pub action: &'static str,
    /// One word for an event.
    pub reason: &'static str,
    /// A sentence for the owner of the object.
    pub note: String,
    /// The message of the log line.
    pub message: &'static str,
}

/// A problem of a kind of objects. Its text is that of the event.
pub trait ProblemText: fmt::Display {
    /// What was to be done with the object.
    const ACTION: &'static str = WRITE_ROWS;

    /// One word for an event's `reason`.
    fn reason(&self) -> &'static str;

    /// The message of the log line.
    fn message(&self) -> &'static str;
}

impl Problem {
    pub fn new<Text: ProblemText>(object: Object, uid: &Arc<str>, text: &Text) -> Self {
        Self {
            object,
            uid: Arc::clone(uid),
            action: Text::ACTION,
            reason: text.reason(),
            note: text.to_string(),
            message: text.message(),
        }
    }

    /// Logs the problem. Returns the event.
    pub fn report(self) -> Event {
        tracing::warn!(object = %self.object, problem = self.note, "{}", self.message);
        Event::new(self.object, &self.uid, EventReason::new(self.action, self.reason), self.note)
    }
}

impl ProblemText for BadNamespaceAnnotation {
    fn reason(&self) -> &'static str {
        "UnusableAnnotation"
    }

    fn message(&self) -> &'static str {
        "an annotation of a namespace cannot be used"
    }
}
