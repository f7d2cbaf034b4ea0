//! An event for the owner of an object, and the API object that is made of it (Kubernetes API,
//! `events.k8s.io/v1`).

use contract::definition::Definition;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{self, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use super::Reporter;
use crate::object::Object;

/// Bytes of the longest `note` that the API server accepts.
const LONGEST_NOTE: usize = 1024;
/// The namespace of events about objects that have none, such as nodes.
const NO_NAMESPACE: &str = "default";
/// How many bytes of the object's name go into the event's name. That may have 253, and ends with a
/// dot and a timestamp of 16 hexadecimal digits.
const LONGEST_NAME_START: usize = 200;

/// An event: what happened to which object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub(super) key: EventKey,
    pub(super) note: String,
}

/// What an event is about. Events of the same key form one series.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct EventKey {
    pub(super) object: Object,
    /// Empty if not known.
    uid: String,
    reason: EventReason,
    /// `Normal` instead of `Warning`.
    is_normal: bool,
}

/// Action and reason of an event, and a detail that separates series.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventReason {
    /// `AddNetwork`
    pub action: &'static str,
    /// `NetworkFailed`
    pub reason: &'static str,
    /// Not sent. Two keys that differ in it are two series.
    pub detail: String,
}

impl EventReason {
    /// An action and a reason without a detail.
    pub fn new(action: &'static str, reason: &'static str) -> Self {
        Self { action, reason, detail: String::new() }
    }
}

impl Event {
    /// An event about `object`. `uid` is empty if not known. `note` may contain text of other
    /// programs: it is cut to 1024 bytes, and control characters become spaces.
    pub fn new(object: Object, uid: &str, reason: EventReason, note: impl Into<String>) -> Self {
        let key = EventKey { object, uid: uid.to_owned(), reason, is_normal: false };
        Self { key, note: cut(note.into()) }
    }

    /// The same event of the type `Normal`: nothing is wrong.
    pub fn normal(mut self) -> Self {
        self.key.is_normal = true;
        self
    }

    /// The text, cut to what an event can hold.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// The API object for the first event of a series.
    pub fn to_api(&self, reporter: &Reporter) -> v1::Event {
        self.key.to_api(&self.note, reporter)
    }
}

impl EventKey {
    /// The namespace of the events about this object.
    pub(super) fn namespace(&self) -> &str {
        self.object.namespace().unwrap_or(NO_NAMESPACE)
    }

    /// A new API object, without a count.
    pub(super) fn to_api(&self, note: &str, reporter: &Reporter) -> v1::Event {
        let Self { object, uid, reason: EventReason { action, reason, detail: _ }, is_normal } =
            self;
        let now = Timestamp::now();
        // The part must end with a letter or digit, as the labels of a DNS name do.
        let name = object.name();
        let start =
            name[..name.floor_char_boundary(LONGEST_NAME_START)].trim_end_matches(['.', '-']);
        v1::Event {
            action: Some((*action).to_owned()),
            event_time: Some(MicroTime(now)),
            metadata: ObjectMeta {
                // As client-go names events: object, dot, nanoseconds in hexadecimal.
                name: Some(format!("{start}.{:x}", now.as_nanosecond())),
                namespace: Some(self.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            note: Some(note.to_owned()),
            reason: Some((*reason).to_owned()),
            regarding: Some(ObjectReference {
                // Any version names the object.
                api_version: Some(object.api_version(Definition::newest)),
                kind: Some(object.kind().to_owned()),
                namespace: object.namespace().map(str::to_owned),
                name: Some(object.name().to_owned()),
                uid: Some(uid.clone()).filter(|uid| !uid.is_empty()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(reporter.controller.to_owned()),
            // The API server accepts 128 characters here.
            reporting_instance: Some(reporter.instance.chars().take(128).collect()),
            type_: Some(if *is_normal { "Normal" } else { "Warning" }.to_owned()),
            ..v1::Event::default()
        }
    }
}

/// The series field of an event that occurred `count` times until now.
pub(super) fn series(count: u32) -> EventSeries {
    EventSeries {
        count: i32::try_from(count).unwrap_or(i32::MAX),
        last_observed_time: MicroTime(Timestamp::now()),
    }
}

/// A note of at most [`LONGEST_NOTE`] bytes on one line. It may contain text of other programs.
fn cut(note: String) -> String {
    let mut note: String = note
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if note.len() > LONGEST_NOTE {
        let end = (0..=LONGEST_NOTE - 3)
            .rev()
            .find(|end| note.is_char_boundary(*end))
            .unwrap_or_default();
        note.truncate(end);
        note.push_str("...");
    }
    note
}
