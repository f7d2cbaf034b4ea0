//! Annotations of nodes and pods, written as fast as the API server takes them. Knows nothing of what they mean.
//!
//! ```text
//! Annotator ─Annotations─▶ Queue (the newest wish of each object; how many at once; when again) ─▶ patch ─▶ API server
//! ```
//!
//! A patch of the status subresource with the object's UID: it never reaches an object of the same name that came later. Each object has
//! at most one request under way, and its newest wish is tried until the API server has it or has the object no more. How many requests
//! are under way follows from the API server's answers alone. What was written is not remembered: the watch tells.

use std::{collections::BTreeMap, fmt, sync::Arc};

use contract::names::PodKey;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use crate::{
    api_server::{ApiServer, metrics::Metrics},
    key::NodeName,
    lead::Leadership,
};

mod patch;
mod queue;
mod write;

/// An object that has annotations.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    Node(NodeName),
    Pod(PodKey),
}

/// What some annotations of an object should be. Others stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotations {
    pub object: Object,
    /// Of the object that is meant: another one of the same name is left alone.
    pub uid: Arc<str>,
    /// None: the annotation should not be there.
    pub values: BTreeMap<&'static str, Option<String>>,
}

/// Where annotations go. Clones are the same place.
#[derive(Debug, Clone)]
pub struct Annotator {
    wishes: UnboundedSender<Annotations>,
}

/// The task that writes; it ends when this is dropped.
#[derive(Debug)]
pub struct Writing {
    task: JoinHandle<()>,
}

impl Annotator {
    /// Writes from now on, as long as `leadership` lasts. Needs a tokio runtime.
    pub fn start(api: ApiServer, leadership: Leadership, metrics: Metrics) -> (Self, Writing) {
        let (wishes, wished) = unbounded_channel();
        let task = tokio::spawn(write::write(api, leadership, metrics, wished));
        (Self { wishes }, Writing { task })
    }

    /// Replaces what is still to be written of this object; returns at once.
    pub fn annotate(&self, annotations: Annotations) {
        // Nobody writes any more: the role has ended.
        let _ = self.wishes.send(annotations);
    }
}

impl Annotations {
    /// Sets annotations of a pod.
    pub fn of_pod(pod: PodKey, uid: Arc<str>, values: BTreeMap<&'static str, String>) -> Self {
        Self { object: Object::Pod(pod), uid, values: values.into_iter().map(|(name, value)| (name, Some(value))).collect() }
    }
}

impl Object {
    /// For log and metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Node(_) => "node",
            Self::Pod(_) => "pod",
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
