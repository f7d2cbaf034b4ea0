//! The objects of one kind, for ever: a list of all of them, then each change. Stores no objects,
//! and knows nothing of how they are used.
//!
//! ```text
//! follow: list ─▶ changes ─▶ Observer
//!          ▲ version expired │   disconnected: watch again from the last version
//!          └─────────────────┘
//! ```
//!
//! There is one loop, [`follow()`]. Its callers differ in their [`Selection`] (which objects, how
//! much of each, how fresh the first list) and in their [`Observer`]. [`Watch`] is the loop as a
//! task, with an observer for all objects of a kind.
//!
//! | module | noun |
//! |---|---|
//! | `follow` | the list-watch loop |
//! | `list` | a list of all objects, in pages |
//! | `report` | [`Watch`]'s observer: log, metrics, [`SyncStatus`] |

use std::{sync::Arc, time::Duration};

use contract::definition::Definition;
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
pub use list::{Page, find, list};

/// A kind of object as the API server spells it, and the value that is made of one object. A type
/// should have only the fields that are used.
pub trait Watched: DeserializeOwned + Clone + Send + 'static {
    type Key: Ord + Send;
    type Value: Send;
    /// The collection: `/api/v1/pods`. Of a kind that an administrator defines, that of its newest
    /// version.
    const PATH: &'static str;
    /// For log and metrics, in the plural: `pods`.
    const KIND: &'static str;
    const PRESENCE: Presence = Presence::Certain;

    /// `metadata.resourceVersion`
    fn version(&self) -> &str;

    /// The object's identity, or the reason why the object is skipped.
    ///
    /// # Errors
    ///
    /// Its name is not valid.
    fn key(&self) -> Result<Self::Key, String>;

    /// The value that the observer gets, or the reason why the object is skipped.
    ///
    /// # Errors
    ///
    /// A field has a value that cannot be used.
    fn value(self) -> Result<Self::Value, String>;
}

/// Implements [`Watched`] for kinds whose `metadata` have a `resource_version`, one line each:
/// type, `KIND` at `PATH`, then `Key =` a function of the metadata, `Value =` a function of the
/// object, and the presence, unless it is certain. Both functions return the reason why an object
/// is skipped.
#[macro_export]
macro_rules! watched {
    ($($object:ty, $kind:literal at $path:literal, $key:ty = $of:expr, $value:ty = $into:expr
        $(, $presence:expr)?;)+) => {$(
        impl $crate::watch::Watched for $object {
            type Key = $key;
            type Value = $value;
            const PATH: &'static str = $path;
            const KIND: &'static str = $kind;
            $(const PRESENCE: $crate::watch::Presence = $presence;)?

            fn version(&self) -> &str {
                self.metadata.resource_version.as_deref().unwrap_or_default()
            }

            fn key(&self) -> Result<$key, String> {
                $of(&self.metadata)
            }

            fn value(self) -> Result<$value, String> {
                $into(self)
            }
        }
    )+};
}

/// Which objects of a kind are followed, and how they are requested.
#[derive(Debug, Clone)]
pub struct Selection {
    /// A field selector: `spec.nodeName=n1`.
    pub fields: Option<String>,
    /// A label selector: `app,!headless`.
    pub labels: Option<&'static str>,
    pub extent: Extent,
    pub first: First,
    pub presence: Presence,
    /// The timeout of one answer to a list (one page).
    pub patience: Duration,
}

/// How much of each object is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// `PartialObjectMetadata`
    Metadata,
}

/// How the first list is read. A later one, after the position in the order of changes is lost, is
/// always of the newest state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// The newest state, as the first events of a watch (a streaming list), so that no more than
    /// one raw object is in memory at a time. From an API server that cannot do that (before
    /// Kubernetes 1.32): in pages.
    Stream,
    /// The newest state, in pages.
    Pages,
    /// The API server's cache, in one answer (`resourceVersion=0`). It may be old; the watch brings
    /// the rest.
    Memory,
}

/// Whether the API server has the kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// In every release.
    Certain,
    /// Not in an older release. Without the kind there are no objects of it: the observer gets an
    /// empty list, and the API server is asked again after minutes. If objects were read before,
    /// only a second answer that there is no such kind, 10 s later, makes the list empty.
    Newer,
    /// Where an administrator has added its definition, which may be at any time, in the newest
    /// version that this program can read. Without it, or without the right to read it, the
    /// observer is told so ([`Observer::unlisted`]) and keeps what it knows; the API server is
    /// asked again after seconds.
    Defined(&'static Definition),
}

/// Receives the objects and the changes.
pub trait Observer<K: Watched>: Send {
    /// The complete list, as of `version`. An object that is not in it does not exist any more.
    fn all(&mut self, objects: Vec<K::Value>, version: String);

    /// The API server has no such kind, and so no objects of it. Called each time that it was
    /// asked.
    fn absent(&mut self) {
        self.all(Vec::new(), String::new());
    }

    /// The API server has no such kind, or does not let this program read it. That says nothing
    /// about objects that were read before. Called each time that it was asked.
    fn unlisted(&mut self, why: Unlisted) {
        self.lost(&why.to_string());
    }

    /// One object was created or changed.
    ///
    /// # Errors
    ///
    /// `version` contradicts what was read before: the loop lists again.
    fn applied(&mut self, object: K::Value, version: &str) -> Result<(), WrongVersion>;

    /// One object was deleted.
    ///
    /// # Errors
    ///
    /// As for [`applied`](Self::applied).
    fn deleted(&mut self, key: K::Key, version: &str) -> Result<(), WrongVersion>;

    /// Every change up to `version` has been reported (a bookmark).
    ///
    /// # Errors
    ///
    /// As for [`applied`](Self::applied).
    fn advanced(&mut self, _version: &str) -> Result<(), WrongVersion> {
        Ok(())
    }

    /// The value that is kept of an object, before a list is complete; none if the object cannot be
    /// used.
    fn read(&mut self, object: K) -> Option<K::Value> {
        object.value().inspect_err(|reason| self.left_out(reason)).ok()
    }

    /// An object was skipped because it cannot be used.
    fn left_out(&mut self, reason: &str);

    /// The watch is connected: every change is reported from now on.
    fn heard(&mut self);

    /// The watch is disconnected. Called after each failed attempt.
    fn lost(&mut self, why: &str);

    /// The position in the order of changes is lost: the loop lists again.
    fn begins_anew(&mut self, why: &str);

    /// The connection leads to another API server than before (another URL), which may be another
    /// cluster's. The loop lists everything again after this, whatever the versions.
    fn moved(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The watch did not deliver within some seconds what [`Prompt::nudge`] announced, and is
    /// opened again.
    fn behind(&mut self) {}
}

/// Versions that contradict each other; the text says how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongVersion(pub String);

/// Why there is no list of a kind that an administrator defines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unlisted {
    #[error("the API server has no {0}")]
    Undefined(String),
    #[error(
        "the API server has {resource} in the version {versions}, which this program cannot read"
    )]
    UnknownVersion { resource: String, versions: String },
    #[error("this program may not list and watch {resource}: {why}")]
    Forbidden { resource: String, why: String },
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub enum Seen<K, V> {
    /// The complete list: the first one, or one after the watch was lost. An object that is not in
    /// it does not exist any more.
    All(Vec<V>),
    /// One object was created or changed.
    Applied(V),
    /// One object was deleted.
    Deleted(K),
    /// There is no list; what is known of the objects stays.
    Unlisted(Unlisted),
}

/// Requests to a running watch. All clones address the same one.
#[derive(Debug, Clone)]
pub struct Prompt {
    everything: Arc<watch::Sender<u64>>,
    nudge: Arc<Notify>,
}

impl Prompt {
    /// Lists all objects again, as soon as the API server answers.
    pub fn everything(&self) {
        self.everything.send_modify(|times| *times += 1);
    }

    /// The API server has answered another request with something that the watch has not delivered
    /// yet. If the watch is disconnected: the API server has answered another request at all, so
    /// the next attempt is worth making now.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }
}

impl Default for Prompt {
    fn default() -> Self {
        Self { everything: Arc::new(watch::channel(0).0), nudge: Arc::default() }
    }
}

impl Selection {
    /// The object of this name, whole; in pages, of which there is one.
    pub fn named(name: &str) -> Self {
        Self {
            fields: Some(format!("metadata.name={name}")),
            first: First::Pages,
            ..Self::default()
        }
    }
}

impl Default for Selection {
    /// All objects of the kind, whole.
    fn default() -> Self {
        // An API server that works sends a page of 500 objects within some seconds. A much shorter
        // timeout would make a busy one start the list from its beginning again and again; a much
        // longer one hides a hung one.
        Self {
            fields: None,
            labels: None,
            extent: Extent::Whole,
            first: First::Stream,
            presence: Presence::Certain,
            patience: Duration::from_secs(30),
        }
    }
}

/// A watch of all objects of a kind, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    prompt: Prompt,
    standing: watch::Receiver<SyncStatus>,
    task: JoinHandle<()>,
}

/// How far the objects can be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncStatus {
    /// The first list is not complete yet; the text says why.
    Reading(String),
    /// The watch is connected: every change is reported.
    Synced,
    /// The list was read, but the watch is disconnected now; the text says why.
    Behind(String),
    /// The API server answers, and there is no list of this kind.
    Unlisted(Unlisted),
}

impl Watch {
    /// Calls `tell` with all objects of kind `K` and with every change from now on. Returns at
    /// once, whether the API server answers or not. Needs a tokio runtime.
    pub fn start<K: Watched>(
        connection: Connection,
        metrics: Metrics,
        tell: impl FnMut(Seen<K::Key, K::Value>) + Send + 'static,
    ) -> Self {
        let now = std::future::ready(());
        let waits_for = "the API server has not answered yet";
        Self::begin::<K, _>(
            connection,
            metrics,
            waits_for,
            now,
            || std::future::ready(()),
            |_| (),
            tell,
        )
    }

    /// The same from the moment when this process leads, and after `identify`, which is called
    /// again whenever the connection leads to another API server. The list is no older than that,
    /// so it includes the last writes of the former leader.
    ///
    /// `shorten`: called for each value as soon as it is read. All values of a list are in memory
    /// at a time.
    pub fn start_leading<K: Watched, I: Future<Output = ()> + Send + 'static>(
        connection: Connection,
        leadership: Leadership,
        metrics: Metrics,
        identify: impl Fn() -> I + Send + 'static,
        shorten: impl FnMut(&mut K::Value) + Send + 'static,
        tell: impl FnMut(Seen<K::Key, K::Value>) + Send + 'static,
    ) -> Self {
        let won = async move { leadership.won().await };
        Self::begin::<K, _>(
            connection,
            metrics,
            "this process does not lead",
            won,
            identify,
            shorten,
            tell,
        )
    }

    fn begin<K: Watched, I: Future<Output = ()> + Send + 'static>(
        connection: Connection,
        metrics: Metrics,
        waits_for: &str,
        start: impl Future<Output = ()> + Send + 'static,
        identify: impl Fn() -> I + Send + 'static,
        shorten: impl FnMut(&mut K::Value) + Send + 'static,
        tell: impl FnMut(Seen<K::Key, K::Value>) + Send + 'static,
    ) -> Self {
        let (sender, standing) = watch::channel(SyncStatus::Reading(waits_for.to_owned()));
        let prompt = Prompt::default();
        let prompted = prompt.clone();
        let task = tokio::spawn(async move {
            start.await;
            identify().await;
            let report = Report::new(metrics, sender, identify, shorten, tell);
            let selection = Selection { presence: K::PRESENCE, ..Selection::default() };
            follow::<K, _>(connection, selection, prompted, report).await;
        });
        Self { prompt, standing, task }
    }

    /// The handle for requests to this watch.
    pub fn prompt(&self) -> Prompt {
        self.prompt.clone()
    }

    /// The current state of the watch, and every change of it.
    pub fn standing(&self) -> watch::Receiver<SyncStatus> {
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
