//! What the API server says about one kind of object, for ever: everything there is, and then each change. Keeps no objects, and knows
//! nothing of what follows from them.
//!
//! ```text
//! Watch::start ─▶ Follower: everything ─▶ changes ─▶ tell(Seen)
//!                    ▲ the place is lost     │ the API server is lost: from the same place, again and again
//!                    └───────────────────────┘
//! ```

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinHandle};

use crate::{connection::Connection, election::Leadership, metrics::Metrics};

mod follow;
mod page;

/// A kind of object as the API server spells it, and what is made of one. Only the fields that are used should be read.
pub trait Watched: DeserializeOwned + Clone + Send + 'static {
    type Key: Ord + Send;
    type Value: Send;
    /// The collection: `/api/v1/pods`.
    const PATH: &'static str;
    /// For log and metrics, in the plural: `pods`.
    const KIND: &'static str;

    /// `metadata.resourceVersion`
    fn version(&self) -> &str;

    /// What identifies it, or why it is left out.
    fn key(&self) -> Result<Self::Key, String>;

    /// What is kept of it, or why it is left out.
    fn value(self) -> Result<Self::Value, String>;
}

/// What was seen of one kind of object.
#[derive(Debug, Clone)]
pub enum Seen<K, V> {
    /// These are all there are: a first list, or one after a watch was lost. What is not in it is gone.
    All(Vec<V>),
    /// One object is as given.
    Applied(V),
    /// One object is gone.
    Deleted(K),
}

/// A watch that goes on until this is dropped.
#[derive(Debug)]
pub struct Watch {
    again: Again,
    standing: watch::Receiver<Standing>,
    task: JoinHandle<()>,
}

/// Has a watch begin anew, with everything.
#[derive(Debug, Clone)]
pub struct Again(Arc<watch::Sender<u64>>);

impl Again {
    fn new() -> (Self, watch::Receiver<u64>) {
        let (sender, receiver) = watch::channel(0);
        (Self(Arc::new(sender)), receiver)
    }

    /// As soon as the API server answers.
    pub fn everything(&self) {
        self.0.send_modify(|times| *times += 1);
    }
}

/// How far what was told can be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Not everything was read yet, and why.
    Reading(String),
    /// Every change is heard of.
    Synced,
    /// Everything was read once; changes are not heard of at the moment, and why.
    Behind(String),
}

impl Watch {
    /// Tells all objects of kind `K` and every change from now on. Returns at once, whether the API server is there or not. Needs a tokio
    /// runtime.
    pub fn start<K: Watched>(api: Connection, metrics: Metrics, tell: impl FnMut(Seen<K::Key, K::Value>) + Send + 'static) -> Self {
        let (sender, standing) = watch::channel(Standing::Reading("the API server has not answered yet".to_owned()));
        let (again, asked) = Again::new();
        let task = tokio::spawn(follow::follow::<K>(api, metrics, sender, asked, tell));
        Self { again, standing, task }
    }

    /// The same from the moment on when this process leads: what it is told then is no older than that, so that nothing which the leader
    /// before wrote at last can be missing. `first` is what has to be done in between.
    pub fn start_leading<K: Watched>(
        api: Connection,
        leadership: Leadership,
        metrics: Metrics,
        first: impl Future<Output = ()> + Send + 'static,
        tell: impl FnMut(Seen<K::Key, K::Value>) + Send + 'static,
    ) -> Self {
        let (sender, standing) = watch::channel(Standing::Reading("this process does not lead".to_owned()));
        let (again, asked) = Again::new();
        let task = tokio::spawn(async move {
            leadership.won().await;
            first.await;
            follow::follow::<K>(api, metrics, sender, asked, tell).await;
        });
        Self { again, standing, task }
    }

    /// For whoever wants everything once more.
    pub fn again(&self) -> Again {
        self.again.clone()
    }

    /// How it stands now, and every change of that.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
