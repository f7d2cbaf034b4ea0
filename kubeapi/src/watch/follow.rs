//! Everything, then changes, for ever: a watch that ends goes on where it ended, and only a place that the API server no longer knows
//! costs everything anew.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use contract::backoff::Backoff;
use futures_util::TryStreamExt;
use kube::{
    api::WatchParams,
    core::{WatchEvent, request::Request},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use super::{
    Extent, First, Observer, Prompt, Selection, Watched, WrongVersion,
    list::{Freshness, pages},
};
use crate::{
    connection::Connection,
    trouble::{Kind, Trouble},
};

/// How long the API server may take to begin a watch.
const BEGIN: Duration = Duration::from_secs(30);
/// After how many seconds the API server ends a watch: before balancers lose patience with silent connections (the shortest: 240 s).
const WATCH_SECONDS: u32 = 200;
/// Silence that a watch ends at: the API server sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(90);
/// Silence in the middle of everything.
const STUCK: Duration = Duration::from_secs(15);
/// How long the watch may be behind what the API server told in another answer.
const LAG: Duration = Duration::from_secs(3);
/// A watch that lasted this long was no failure.
const GOOD: Duration = Duration::from_secs(10);
/// What an API server says of a first event that is none.
const END_OF_EVERYTHING: &str = "k8s.io/initial-events-end";

/// Tells `observer` for ever.
pub async fn follow<K: Watched, O: Observer<K>>(connection: Connection, selection: Selection, prompt: Prompt, observer: O) {
    let (streams, freshness) = match selection.first {
        First::Stream => (true, Freshness::Newest),
        First::Pages => (false, Freshness::Newest),
        First::Memory => (false, Freshness::Any),
    };
    let mut follower = Follower::<K, O> {
        connection,
        selection,
        again: prompt.everything.subscribe(),
        prompt,
        observer,
        backoff: Backoff::default(),
        next: Next::Everything(freshness),
        streams,
        read: None,
        kind: std::marker::PhantomData,
    };
    loop {
        follower.step().await;
    }
}

struct Follower<K: Watched, O> {
    connection: Connection,
    selection: Selection,
    prompt: Prompt,
    /// Changes when everything is wanted once more.
    again: watch::Receiver<u64>,
    observer: O,
    backoff: Backoff,
    next: Next,
    /// Whether the API server can tell everything as events, as far as is known, and that is wanted.
    streams: bool,
    /// When everything was read the last time.
    read: Option<Instant>,
    kind: std::marker::PhantomData<fn() -> K>,
}

/// What to do next.
enum Next {
    Everything(Freshness),
    /// From this version on.
    Changes(String),
}

/// Why a watch ended.
enum End {
    /// The API server ended it, or it should be begun anew: nothing is wrong.
    Ordinary,
    /// The API server cannot tell everything as events.
    NoStream(String),
    Trouble(Trouble),
}

impl End {
    /// What an answer to the wish for everything as events means: older API servers say 400 or 422; one whose etcd cannot do its part
    /// (before 3.4.31 and 3.5.13) says 500, and that as an event.
    fn of_streaming(trouble: Trouble) -> Self {
        match trouble {
            Trouble { code: Some(400 | 404 | 405 | 422 | 500), text, .. } => Self::NoStream(text),
            trouble => Self::Trouble(trouble),
        }
    }
}

impl From<WrongVersion> for End {
    fn from(WrongVersion(text): WrongVersion) -> Self {
        Self::Trouble(Trouble::without_answer(Kind::Gone, text))
    }
}

impl<K: Watched, O: Observer<K>> Follower<K, O> {
    async fn step(&mut self) {
        let begun = Instant::now();
        if self.again.has_changed().unwrap_or_default() {
            self.again.mark_unchanged();
            self.next = Next::Everything(Freshness::Newest);
        }
        let end = match &self.next {
            Next::Everything(_) if self.streams => self.watch(None).await,
            Next::Everything(freshness) => match self.list(*freshness).await {
                Ok(()) => return self.backoff.reset(),
                Err(trouble) => End::Trouble(trouble),
            },
            Next::Changes(from) => self.watch(Some(from.clone())).await,
        };
        if begun.elapsed() >= GOOD {
            self.backoff.reset();
        }
        match end {
            End::Ordinary if begun.elapsed() >= GOOD => {}
            End::Ordinary => sleep(self.backoff.next(None)).await,
            End::NoStream(reason) => {
                tracing::debug!(kind = K::KIND, reason, "the API server does not list as a watch: it is asked for pages");
                self.streams = false;
            }
            End::Trouble(trouble) => {
                if matches!(trouble.kind, Kind::Gone | Kind::Malformed) {
                    self.next = Next::Everything(Freshness::Newest);
                }
                self.wait(trouble).await;
            }
        }
    }

    /// Says what is wrong and waits until it is time for the next attempt.
    async fn wait(&mut self, trouble: Trouble) {
        let Trouble { kind, code: _, text, retry_after } = trouble;
        if kind == Kind::Gone {
            self.observer.begins_anew(&text);
            // The API server is there, and waits for nothing but the question.
            if self.read.is_none_or(|read| read.elapsed() >= GOOD) {
                return;
            }
        } else {
            self.observer.lost(&text);
        }
        let mut renewals = self.connection.renewals();
        tokio::select! {
            () = sleep(self.backoff.next(retry_after)) => {}
            // Other credentials, or an answer to another request: worth an attempt now.
            Ok(()) = renewals.changed() => {}
            () = self.prompt.nudge.notified(), if retry_after.is_none() => {}
        }
    }

    async fn list(&mut self, freshness: Freshness) -> Result<(), Trouble> {
        let observer = &mut self.observer;
        let (all, version) = pages::<K>(&self.connection, &self.selection, freshness, |reason| observer.left_out(reason)).await?;
        self.everything(all, version);
        Ok(())
    }

    /// Tells what happens after `from`; without it, everything that there is and then what happens.
    async fn watch(&mut self, from: Option<String>) -> End {
        let streaming = from.is_none();
        let mut renewals = self.connection.renewals();
        let mut again = self.again.clone();
        let request = match self.request(from.as_deref()) {
            Ok(request) => request,
            Err(trouble) => return End::Trouble(trouble),
        };
        let events = match self.connection.ask(BEGIN, self.connection.client().request_events::<K>(request)).await {
            Ok(events) => events,
            Err(trouble) if streaming => return End::of_streaming(trouble),
            Err(trouble) => return End::Trouble(trouble),
        };
        // Changes that come before the end of everything are part of it.
        let mut all: Option<BTreeMap<K::Key, K::Value>> = streaming.then(BTreeMap::new);
        if !streaming {
            self.observer.heard();
        }

        let mut events = pin!(events);
        let patience = |all: &Option<_>| Instant::now() + if all.is_some() { STUCK } else { SILENCE };
        let mut silence = patience(&all);
        let mut behind: Option<Instant> = None;
        loop {
            let event = tokio::select! {
                event = timeout_at(behind.unwrap_or(silence).min(silence), events.try_next()) => event,
                Ok(()) = renewals.changed() => return End::Ordinary,
                // The next step sees it, too.
                Ok(()) = again.changed() => return End::Ordinary,
                () = self.prompt.nudge.notified(), if all.is_none() => {
                    behind.get_or_insert_with(|| Instant::now() + LAG);
                    continue;
                }
            };
            let event = match event {
                Ok(Ok(Some(event))) => event,
                Ok(Err(error)) => return End::Trouble(self.connection.trouble(&error)),
                Err(_) if all.is_some() => return End::NoStream(format!("nothing was heard within {STUCK:?}")),
                Err(_) if behind.is_some() => {
                    self.observer.behind();
                    return End::Ordinary;
                }
                Ok(Ok(None)) | Err(_) => return End::Ordinary,
            };
            let taken = match &mut all {
                None => self.take(event),
                Some(objects) => match self.collect(event, objects) {
                    Ok(None) => Ok(()),
                    Ok(Some(version)) => {
                        let all = all.take().unwrap_or_default().into_values().collect();
                        self.everything(all, version);
                        self.observer.heard();
                        Ok(())
                    }
                    Err(end) => Err(end),
                },
            };
            if let Err(end) = taken {
                return end;
            }
            silence = patience(&all);
            behind = None;
        }
    }

    /// For the events after `from`, or for everything as events.
    fn request(&self, from: Option<&str>) -> Result<hyper::Request<Vec<u8>>, Trouble> {
        let Selection { fields, extent, .. } = &self.selection;
        let params = WatchParams { send_initial_events: from.is_none(), ..WatchParams::default().timeout(WATCH_SECONDS) };
        let params = WatchParams { field_selector: fields.clone(), ..params };
        let request = Request::new(K::PATH);
        // No version: the newest, not what one API server remembers.
        let from = from.unwrap_or_default();
        let request = match extent {
            Extent::Whole => request.watch(&params, from),
            Extent::Metadata => request.watch_metadata(&params, from),
        };
        request.map_err(|error| self.connection.trouble(&kube::Error::BuildRequest(error)))
    }

    /// One of the events that everything comes as. Returns the version of everything after the last.
    fn collect(&mut self, event: WatchEvent<K>, all: &mut BTreeMap<K::Key, K::Value>) -> Result<Option<String>, End> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                all.extend(self.key(&object).and_then(|key| Some((key, self.value(object)?))));
            }
            WatchEvent::Deleted(object) => drop(self.key(&object).and_then(|key| all.remove(&key))),
            WatchEvent::Bookmark(bookmark) if bookmark.metadata.annotations.contains_key(END_OF_EVERYTHING) => {
                return Ok(Some(bookmark.metadata.resource_version));
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(End::of_streaming(self.connection.trouble(&kube::Error::Api(status)))),
        }
        Ok(None)
    }

    /// One change.
    fn take(&mut self, event: WatchEvent<K>) -> Result<(), End> {
        let version = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.version().to_owned();
                if let Some(value) = self.value(object) {
                    self.observer.applied(value, &version)?;
                }
                version
            }
            WatchEvent::Deleted(object) => {
                let version = object.version().to_owned();
                if let Some(key) = self.key(&object) {
                    self.observer.deleted(key, &version)?;
                }
                version
            }
            WatchEvent::Bookmark(bookmark) => {
                let version = bookmark.metadata.resource_version;
                self.observer.advanced(&version)?;
                version
            }
            WatchEvent::Error(status) => return Err(End::Trouble(self.connection.trouble(&kube::Error::Api(status)))),
        };
        self.next = Next::Changes(version);
        Ok(())
    }

    fn key(&mut self, object: &K) -> Option<K::Key> {
        object.key().inspect_err(|reason| self.observer.left_out(reason)).ok()
    }

    fn value(&mut self, object: K) -> Option<K::Value> {
        object.value().inspect_err(|reason| self.observer.left_out(reason)).ok()
    }

    /// These are all objects, as of `version`.
    fn everything(&mut self, all: Vec<K::Value>, version: String) {
        self.read = Some(Instant::now());
        self.next = Next::Changes(version.clone());
        self.observer.all(all, version);
    }
}
