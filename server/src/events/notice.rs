//! One thing to tell the owner of a pod or of a node, and the event that it becomes (Kubernetes API, `events.k8s.io/v1`).

use std::fmt;

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
    reason: Reason,
    stage: Option<Stage>,
}

/// Whose owner is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Object {
    Pod(PodKey),
    /// This node, by its name.
    Node(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reason {
    Late,
    /// With the number of the code.
    Failed(u32),
    NoSubnet,
}

impl Notice {
    pub(super) fn late(pod: &PodKey, uid: &str, stage: Stage, note: String) -> Self {
        Self::new(Object::Pod(pod.clone()), uid, Reason::Late, Some(stage), note)
    }

    pub(super) fn failed(pod: &PodKey, uid: &str, stage: Option<Stage>, code: Code, note: String) -> Self {
        Self::new(Object::Pod(pod.clone()), uid, Reason::Failed(code.number()), stage, note)
    }

    pub(super) fn no_subnet(node: &str, uid: &str, note: String) -> Self {
        Self::new(Object::Node(node.to_owned()), uid, Reason::NoSubnet, None, note)
    }

    fn new(object: Object, uid: &str, reason: Reason, stage: Option<Stage>, note: String) -> Self {
        Self { subject: Subject { object, uid: uid.to_owned(), reason, stage }, note: cut(note) }
    }
}

impl Object {
    fn name(&self) -> &str {
        match self {
            Self::Pod(pod) => pod.name(),
            Self::Node(name) => name,
        }
    }

    /// Of its events.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Pod(pod) => pod.namespace(),
            Self::Node(_) => NO_NAMESPACE,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "pod {pod}"),
            Self::Node(name) => write!(f, "node {name}"),
        }
    }
}

impl Subject {
    /// The event of what happened once.
    pub(super) fn event(&self, note: &str, node: &str) -> Event {
        let Self { object, uid, reason, stage: _ } = self;
        // What was being done, and what became of it.
        let (action, reason) = match reason {
            Reason::Late => ("AddNetwork", "NetworkLate"),
            Reason::Failed(_) => ("AddNetwork", "NetworkFailed"),
            Reason::NoSubnet => ("AddManagementPort", "NoSubnet"),
        };
        let (kind, of_namespace) = match object {
            Object::Pod(pod) => ("Pod", Some(pod.namespace().to_owned())),
            Object::Node(_) => ("Node", None),
        };
        let now = Timestamp::now();
        let start = object.name()[..object.name().len().min(LONGEST_NAME_START)].trim_end_matches(['.', '-']);
        Event {
            action: Some(action.to_owned()),
            event_time: Some(MicroTime(now)),
            metadata: ObjectMeta {
                // As all reporters name events.
                name: Some(format!("{start}.{:x}", now.as_nanosecond())),
                namespace: Some(object.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            note: Some(note.to_owned()),
            reason: Some(reason.to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some(kind.to_owned()),
                namespace: of_namespace,
                name: Some(object.name().to_owned()),
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
