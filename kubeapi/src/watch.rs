//! What the API server says about one kind of object, for ever: everything there is, and then each change. Keeps no objects, and knows
//! nothing of what follows from them.
//!
//! ```text
//! follow: everything ─▶ changes ─▶ Observer
//!            ▲ the place is lost     │ the API server is lost: from the same place, again and again
//!            └───────────────────────┘
//! ```
//!
//! There is one loop, [`follow()`]. What differs between those that follow is in their [`Selection`] (which objects, how much of them, how new
//! the first ones have to be) and in their [`Observer`]. [`Watch`] is the loop as a task with an observer for all objects of a kind.
//!
//! | module | noun |
//! |---|---|
//! | `follow` | the loop |
//! | `list` | everything, in pages |
//! | `report` | [`Watch`]'s observer: log, metrics, [`Standing`] |

use std::{sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

use self::report::Report;
use crate::{connection::Connection, election::Leadership, metrics::Metrics};

mod follow;
mod list;
mod report;

pub use follow::follow;
pub use list::{Page, list};

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
    ///
    /// # Errors
    ///
    /// Its name is none.
    fn key(&self) -> Result<Self::Key, String>;

    /// What is kept of it, or why it is left out.
    ///
    /// # Errors
    ///
    /// It makes no sense.
    fn value(self) -> Result<Self::Value, String>;
}

/// Which objects of a kind are followed, and how they are asked for.
#[derive(Debug, Clone)]
pub struct Selection {
    /// A field selector: `spec.nodeName=n1`.
    pub fields: Option<String>,
    pub extent: Extent,
    pub first: First,
    /// How long one answer to a list may take.
    pub patience: Duration,
}

/// How much of an object is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// `PartialObjectMetadata`
    Metadata,
}

/// Where everything comes from at first. Later, when the place in the order of changes is lost, it always comes as it is at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// As it is, as the first events of a watch: no more than one object is held at a time. In pages, from an API server that cannot do that
    /// (before Kubernetes 1.32).
    Stream,
    /// As it is, in pages.
    Pages,
    /// As the API server remembers it, in one answer: the watch makes up for the rest.
    Memory,
}

/// What hears of objects.
pub trait Observer<K: Watched>: Send {
    /// These are all, as of `version`: what is not among them is gone.
    fn all(&mut self, objects: Vec<K::Value>, version: String);

    /// One object is new or another.
    ///
    /// # Errors
    ///
    /// `version` cannot be: everything is read anew.
    fn applied(&mut self, object: K::Value, version: &str) -> Result<(), WrongVersion>;

    /// One object is gone.
    ///
    /// # Errors
    ///
    /// As of [`applied`](Self::applied).
    fn deleted(&mut self, key: K::Key, version: &str) -> Result<(), WrongVersion>;

    /// Everything up to `version` was told.
    ///
    /// # Errors
    ///
    /// As of [`applied`](Self::applied).
    fn advanced(&mut self, _version: &str) -> Result<(), WrongVersion> {
        Ok(())
    }

    /// An object cannot be used.
    fn left_out(&mut self, reason: &str);

    /// Every change is heard of from now on.
    fn heard(&mut self);

    /// Nothing is heard at the moment; told after each attempt.
    fn lost(&mut self, why: &str);

    /// The place in the order of changes is lost: everything is read anew.
    fn begins_anew(&mut self, why: &str);

    /// The watch had not told for a while what [`Prompt::nudge`] promised, and is begun anew.
    fn behind(&mut self) {}
}

/// Versions that do not follow each other, and how that shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongVersion(pub String);

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

/// What a watch is told from outside. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Prompt {
    everything: Arc<watch::Sender<u64>>,
    nudge: Arc<Notify>,
}

impl Prompt {
    /// Everything is wanted once more, as soon as the API server answers.
    pub fn everything(&self) {
        self.everything.send_modify(|times| *times += 1);
    }

    /// The API server has told something that the watch has not told yet; or, while it is lost, has answered another request.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }
}

impl Default for Prompt {
    fn default() -> Self {
        Self { everything: Arc::new(watch::channel(0).0), nudge: Arc::default() }
    }
}

impl Default for Selection {
    /// All objects of the kind, whole.
    fn default() -> Self {
        // An API server that answers at all has sent a page after some seconds.
        Self { fields: None, extent: Extent::Whole, first: First::Stream, patience: Duration::from_secs(30) }
    }
}

/// A watch of all objects of a kind that goes on until this is dropped.
#[derive(Debug)]
pub struct Watch {
    prompt: Prompt,
    standing: watch::Receiver<Standing>,
    task: JoinHandle<()>,
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
    pub fn start<K: Watched>(connection: Connection, metrics: Metrics, tell: impl FnMut(Seen<K::Key, K::Value>) + Send + 'static) -> Self {
        let first = std::future::ready(());
        Self::begin::<K>(connection, metrics, "the API server has not answered yet", first, tell)
    }

    /// The same from the moment on when this process leads: what it is told then is no older than that, so that nothing which the leader
    /// before wrote at last can be missing. `first` is what has to be done in between.
    pub fn start_leading<K: Watched>(
        connection: Connection,
        leadership: Leadership,
        metrics: Metrics,
        first: impl Future<Output = ()> + Send + 'static,
        tell: impl FnMut(Seen<K::Key, K::Value>) + Send + 'static,
    ) -> Self {
        let first = async move {
            leadership.won().await;
            first.await;
        };
        Self::begin::<K>(connection, metrics, "this process does not lead", first, tell)
    }

    fn begin<K: Watched>(
        connection: Connection,
        metrics: Metrics,
        waits_for: &str,
        first: impl Future<Output = ()> + Send + 'static,
        tell: impl FnMut(Seen<K::Key, K::Value>) + Send + 'static,
    ) -> Self {
        let (sender, standing) = watch::channel(Standing::Reading(waits_for.to_owned()));
        let prompt = Prompt::default();
        let report = Report::new(metrics, sender, tell);
        let following = follow::<K, _>(connection, Selection::default(), prompt.clone(), report);
        let task = tokio::spawn(async move {
            first.await;
            following.await;
        });
        Self { prompt, standing, task }
    }

    /// What it is told from outside.
    pub fn prompt(&self) -> Prompt {
        self.prompt.clone()
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
