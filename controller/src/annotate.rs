//! Annotations of nodes and pods, written as fast as the API server takes them. Knows nothing of what they mean.
//!
//! ```text
//! channel of wishes ─▶ Queue (the newest wish of each object; how many at once; when again) ─▶ patch ─▶ API server
//! ```
//!
//! A patch of the status subresource with the object's UID: it never reaches an object of the same name that came later, nor annotations
//! other than those that were decided on, as a late one of a former leader would. Each object has
//! at most one request under way, and its newest wish is tried until the API server has it or has the object no more. One that is refused, by
//! an admission webhook for example, waits alone. How many requests are under way follows from the API server's answers alone. What was
//! written is not remembered: the watch tells.

use std::{collections::BTreeMap, sync::Arc};

use kubeapi::{Connection, election::Leadership, events::Teller, object::Object};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};

use crate::{
    allocate::node_assignments::NodeAnnotation,
    store::{PodAnnotation, Texts},
};

mod metrics;
mod patch;
mod problems;
mod queue;
mod write;

pub use metrics::Metrics;

/// What some annotations of an object should be. Others stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotations {
    pub object: Object,
    /// Of the object that is meant: another one of the same name is left alone.
    pub uid: Arc<str>,
    pub values: BTreeMap<&'static str, String>,
    pub only: Only,
}

/// What the object has to be like for this to be written on it: what was decided on something else is out of date. The watch tells of what
/// there is, and that decides anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Only {
    Always,
    /// This version of the object. For objects that seldom change.
    Version(Arc<str>),
    /// These annotations, whatever else has changed: the status of a pod changes while it starts.
    Over(Texts),
}

/// Annotations of one kind of object, as whoever decides on them says it.
pub trait Wish: Into<Annotations> + Send + 'static {
    /// For log and metrics.
    const KIND: &'static str;
}

/// The task that writes; it ends when this is dropped.
#[derive(Debug)]
pub struct Writing {
    task: JoinHandle<()>,
}

impl Writing {
    /// Writes what is wished from now on, as long as `leadership` lasts. A wish replaces what is still to be written of the same object.
    /// Owners of objects that are refused hear of it by `teller`. Needs a tokio runtime.
    pub fn start<W: Wish>(api: Connection, leadership: Leadership, teller: Teller, metrics: Metrics, wishes: UnboundedReceiver<W>) -> Self {
        Self { task: tokio::spawn(write::write(api, leadership, teller, metrics, wishes)) }
    }
}

impl Writing {
    /// Waits until the last request is answered, once the leadership has been resigned or lost. Cancellation-safe.
    pub async fn ended(&mut self) {
        if !self.task.is_finished() {
            let _ = (&mut self.task).await;
        }
    }
}

impl Wish for PodAnnotation {
    const KIND: &'static str = "pod";
}

impl Wish for NodeAnnotation {
    const KIND: &'static str = "node";
}

impl From<PodAnnotation> for Annotations {
    fn from(PodAnnotation { pod, uid, annotations, over }: PodAnnotation) -> Self {
        Self { object: Object::Pod(pod), uid, values: annotations, only: Only::Over(over) }
    }
}

impl From<NodeAnnotation> for Annotations {
    fn from(NodeAnnotation { node, uid, version, annotations }: NodeAnnotation) -> Self {
        let only = if version.is_empty() { Only::Always } else { Only::Version(version) };
        Self { object: Object::Node(node), uid, values: annotations, only }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
