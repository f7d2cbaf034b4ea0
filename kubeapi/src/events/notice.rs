//! One thing to tell the owner of an object, and the event that it becomes (Kubernetes API, `events.k8s.io/v1`).

use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use super::Reporter;
use crate::object::Object;

/// The API server takes no longer notes.
const LONGEST_NOTE: usize = 1024;
/// Where events of objects without a namespace are.
const NO_NAMESPACE: &str = "default";
/// Of the object's name in the event's, which may have 253 characters.
const LONGEST_NAME_START: usize = 200;

/// One thing to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub(super) subject: Subject,
    pub(super) note: String,
}

/// What a notice is about: the notices of one subject are one series.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) object: Object,
    /// Empty if it is not known.
    uid: String,
    about: About,
}

/// What was being done, what became of it, and what else makes it another thing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct About {
    /// `AddNetwork`
    pub action: &'static str,
    /// `NetworkFailed`
    pub reason: &'static str,
    /// Not told; two that differ are two series.
    pub detail: String,
}

impl About {
    /// Something of which there are no kinds.
    pub fn new(action: &'static str, reason: &'static str) -> Self {
        Self { action, reason, detail: String::new() }
    }
}

impl Notice {
    /// `uid` is empty if it is not known. A `note` of others' text may be as long as it likes: it is cut, and stays on one line.
    pub fn new(object: Object, uid: &str, about: About, note: impl Into<String>) -> Self {
        Self { subject: Subject { object, uid: uid.to_owned(), about }, note: cut(note.into()) }
    }

    pub fn note(&self) -> &str {
        &self.note
    }

    /// The event that it becomes when it is told for the first time.
    pub fn event(&self, reporter: &Reporter) -> Event {
        self.subject.event(&self.note, reporter)
    }
}

impl Subject {
    /// Of its events.
    pub(super) fn namespace(&self) -> &str {
        self.object.namespace().unwrap_or(NO_NAMESPACE)
    }

    /// The event of what happened once.
    pub(super) fn event(&self, note: &str, reporter: &Reporter) -> Event {
        let Self { object, uid, about: About { action, reason, detail: _ } } = self;
        let now = Timestamp::now();
        let start = object.name()[..object.name().len().min(LONGEST_NAME_START)].trim_end_matches(['.', '-']);
        Event {
            action: Some((*action).to_owned()),
            event_time: Some(MicroTime(now)),
            metadata: ObjectMeta {
                // As all reporters name events.
                name: Some(format!("{start}.{:x}", now.as_nanosecond())),
                namespace: Some(self.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            note: Some(note.to_owned()),
            reason: Some((*reason).to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some(object.kind().to_owned()),
                namespace: object.namespace().map(str::to_owned),
                name: Some(object.name().to_owned()),
                uid: Some(uid.clone()).filter(|uid| !uid.is_empty()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(reporter.controller.to_owned()),
            reporting_instance: Some(reporter.instance.chars().take(128).collect()),
            type_: Some("Warning".to_owned()),
            ..Event::default()
        }
    }
}

/// What happened `count` times until now.
pub(super) fn series(count: u32) -> EventSeries {
    EventSeries { count: i32::try_from(count).unwrap_or(i32::MAX), last_observed_time: MicroTime(Timestamp::now()) }
}

/// A note of bounded length. Text of others may be in it: it stays on one line.
fn cut(note: String) -> String {
    let mut note: String = note.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    if note.len() > LONGEST_NOTE {
        let end = (0..=LONGEST_NOTE - 3).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default();
        note.truncate(end);
        note.push_str("...");
    }
    note
}
