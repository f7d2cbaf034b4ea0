//! One thing to tell the owner of a pod, and the event that it becomes (Kubernetes API, `events.k8s.io/v1`).

use contract::{error::Code, names::PodKey, stage::Stage};
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

/// Who tells, for `kubectl describe`.
const REPORTER: &str = "ovn-kubernetes/ovnkube-node";
/// What was being done.
const ACTION: &str = "AddNetwork";
/// The API server takes no longer notes.
const LONGEST_NOTE: usize = 1024;
/// Of the pod's name in the event's, which may have 253 characters.
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
    pub(super) pod: PodKey,
    /// Empty if it is not known.
    uid: String,
    reason: Reason,
    stage: Option<Stage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reason {
    Late,
    /// With the number of the code.
    Failed(u32),
}

impl Notice {
    pub(super) fn late(pod: &PodKey, uid: &str, stage: Stage, note: String) -> Self {
        Self::new(pod, uid, Reason::Late, Some(stage), note)
    }

    pub(super) fn failed(pod: &PodKey, uid: &str, stage: Option<Stage>, code: Code, note: String) -> Self {
        Self::new(pod, uid, Reason::Failed(code.number()), stage, note)
    }

    fn new(pod: &PodKey, uid: &str, reason: Reason, stage: Option<Stage>, note: String) -> Self {
        Self { subject: Subject { pod: pod.clone(), uid: uid.to_owned(), reason, stage }, note: cut(note) }
    }
}

impl Subject {
    /// The event of what happened once.
    pub(super) fn event(&self, note: &str, node: &str) -> Event {
        let Self { pod, uid, reason, stage: _ } = self;
        let reason = match reason {
            Reason::Late => "NetworkLate",
            Reason::Failed(_) => "NetworkFailed",
        };
        let now = Timestamp::now();
        let start = pod.name()[..pod.name().len().min(LONGEST_NAME_START)].trim_end_matches(['.', '-']);
        Event {
            action: Some(ACTION.to_owned()),
            event_time: Some(MicroTime(now)),
            metadata: ObjectMeta {
                // As all reporters name events.
                name: Some(format!("{start}.{:x}", now.as_nanosecond())),
                namespace: Some(pod.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            note: Some(note.to_owned()),
            reason: Some(reason.to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(pod.namespace().to_owned()),
                name: Some(pod.name().to_owned()),
                uid: Some(uid.clone()).filter(|uid| !uid.is_empty()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(node.chars().take(128).collect()),
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
