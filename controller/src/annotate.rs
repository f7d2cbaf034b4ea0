//! The patcher: writes annotations of nodes and pods, and the status of policies, as fast as the
//! API server accepts them. Does not know what they mean.
//!
//! ```text
//! channel of wishes ─▶ Queue (newest wish per object, retries) ─▶ patch ─▶ API server
//! ```
//!
//! A wish is the desired annotations of one object. It becomes a patch of the status subresource
//! with the object's UID, so it cannot reach a later object of the same name. It also names the
//! state that the decision was based on ([`Only`]), so a late patch of a former leader cannot
//! replace a newer decision. Fields of a status are applied instead (server-side apply): other
//! zones own other fields of the same one.
//!
//! Each object has at most one request in flight. Its newest wish is retried until the API server
//! accepts it or the object is gone. An object that is refused, by an admission webhook for
//! example, backs off alone. The number of requests in flight follows from the API server's answers
//! alone. The patcher does not remember what it wrote: the watch shows it.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use kubeapi::{Connection, election::Leadership, events::Recorder, object::Object};
use serde_json::{Value, json};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};

use crate::{
    custom::CustomStatus,
    kinds::{
        cluster_policy::condition::PolicyCondition,
        pod::{annotation::PodAnnotation, object::Texts},
    },
    node_assignments::NodeAnnotation,
};

pub use crate::annotate::metrics::AnnotationMetrics;

mod metrics;
mod patch;
mod problems;
mod queue;
mod write;

/// The desired values of some annotations of an object. Its other annotations stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotations {
    pub object: Object,
    /// UID of the object that is meant. Another object of the same name is left alone.
    pub uid: Arc<str>,
    pub values: BTreeMap<&'static str, String>,
    pub only: Only,
}

/// The precondition of a patch: the state of the object that the decision was based on. If the
/// object has changed, the patch is dropped. The watch delivers the new state, which leads to a new
/// decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Only {
    /// No precondition but the UID.
    Always,
    /// This `resourceVersion`. For kinds of objects that seldom change.
    Version(Arc<str>),
    /// These annotations; other fields may have changed. For pods, whose status changes while they
    /// start.
    Over(Texts),
}

/// Fields of an object's status, all of those that their manager owns.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub object: Object,
    /// UID of the object that is meant. The API server ignores it in the status of a custom
    /// resource: what was under way for an object that is gone may reach its successor, whose own
    /// status follows it.
    pub uid: Arc<str>,
    /// The field manager of the server-side apply.
    pub manager: String,
    pub fields: Value,
}

/// What is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Annotations(Annotations),
    Status(Status),
}

/// What the wishes of a writer are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matter {
    Annotations,
    Status,
}

/// A desired change of one kind of object, in the form of the module that decides on it. Thousands
/// may be queued, so a wish is small and is spelled out only when it is sent.
pub trait Wish: Send + Sync + 'static {
    /// The kind of object, for log and metrics.
    const KIND: &'static str;
    const MATTER: Matter;

    /// The object that is meant.
    fn object(&self) -> Object;

    /// UID of the object that is meant.
    fn uid(&self) -> &Arc<str>;

    /// What to write. Called when the request is sent.
    fn spell(&self) -> Change;
}

/// The task that writes; it ends when this is dropped.
#[derive(Debug)]
pub struct AnnotationWriter {
    task: JoinHandle<()>,
}

impl AnnotationWriter {
    /// Starts the task, which writes while `leadership` lasts. A wish replaces a queued wish of the
    /// same object. Objects that the API server refuses get an event through `recorder`. Needs a
    /// tokio runtime.
    pub fn start<W: Wish>(
        api: Connection,
        leadership: Leadership,
        recorder: Recorder,
        metrics: AnnotationMetrics,
        wishes: UnboundedReceiver<W>,
    ) -> Self {
        Self { task: tokio::spawn(write::write(api, leadership, recorder, metrics, wishes)) }
    }
}

impl AnnotationWriter {
    /// Waits for the end of the task: after a loss of the leadership it ends at once, after a
    /// resignation when the last request is answered. Cancellation-safe.
    pub async fn ended(&mut self) {
        // A `JoinHandle` that has returned its result must not be polled again; this may be called
        // twice.
        if !self.task.is_finished() {
            let _ = (&mut self.task).await;
        }
    }
}

impl Wish for PodAnnotation {
    const KIND: &'static str = "pod";
    const MATTER: Matter = Matter::Annotations;

    fn object(&self) -> Object {
        Object::Pod(self.pod.clone())
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn spell(&self) -> Change {
        let only = Only::Over(self.over.clone());
        Change::Annotations(Annotations {
            object: self.object(),
            uid: Arc::clone(&self.uid),
            values: self.annotations(),
            only,
        })
    }
}

impl Wish for NodeAnnotation {
    const KIND: &'static str = "node";
    const MATTER: Matter = Matter::Annotations;

    fn object(&self) -> Object {
        Object::Node(Arc::clone(&self.node))
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn spell(&self) -> Change {
        // An object without a `resourceVersion` offers no state to name.
        let only = if self.version.is_empty() {
            Only::Always
        } else {
            Only::Version(Arc::clone(&self.version))
        };
        Change::Annotations(Annotations {
            object: self.object(),
            uid: Arc::clone(&self.uid),
            values: self.annotations.clone(),
            only,
        })
    }
}

impl Wish for PolicyCondition {
    const KIND: &'static str = "policy";
    const MATTER: Matter = Matter::Status;

    fn object(&self) -> Object {
        Object::ClusterPolicy(self.policy.clone())
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn spell(&self) -> Change {
        Change::Status(Status {
            object: self.object(),
            uid: Arc::clone(&self.uid),
            // As upstream's: what it has applied before becomes this program's.
            manager: self.zone.0.clone(),
            fields: json!({"conditions": [self.condition(Timestamp::now())]}),
        })
    }
}

impl Wish for CustomStatus {
    const KIND: &'static str = "custom";
    const MATTER: Matter = Matter::Status;

    fn object(&self) -> Object {
        Object::Custom(self.kind, Arc::clone(&self.namespace))
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn spell(&self) -> Change {
        Change::Status(Status {
            object: self.object(),
            uid: Arc::clone(&self.uid),
            // As upstream's, too.
            manager: self.zone.0.clone(),
            fields: self.fields(Timestamp::now()),
        })
    }
}

impl Drop for AnnotationWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
