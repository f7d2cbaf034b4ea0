//! Everything, then changes, for ever: a watch that ends goes on where it ended, and only a place that the API server no longer knows
//! costs everything anew.
//!
//! Everything comes as the first events of a watch where the API server can do that (Kubernetes 1.32 and later): no more than one object
//! is held at a time. Otherwise it comes in pages.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use contract::backoff::Backoff;
use futures_util::TryStreamExt;
use kube::{
    api::{ListParams, WatchParams},
    core::{WatchEvent, request::Request},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{Seen, Standing, Watched, page::Page};
use crate::{
    connection::Connection,
    metrics::Metrics,
    trouble::{Kind, Trouble},
};

/// Objects in one answer to a list.
const PAGE: u32 = 500;
/// How long the API server may take for a page, and to begin a watch.
const PATIENCE: Duration = Duration::from_secs(30);
/// After how many seconds the API server ends a watch: before balancers lose patience with silent connections (the shortest: 240 s).
const WATCH_SECONDS: u32 = 200;
/// Silence that a watch ends at: the API server sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(90);
/// Silence in the middle of everything.
const STUCK: Duration = Duration::from_secs(15);
/// A watch that lasted this long was no failure.
const GOOD: Duration = Duration::from_secs(10);
/// What an API server says of a first event that is none.
const END_OF_EVERYTHING: &str = "k8s.io/initial-events-end";

/// Tells until nobody waits for it any more.
pub(super) async fn follow<K: Watched>(
    api: Connection,
    metrics: Metrics,
    standing: watch::Sender<Standing>,
    again: watch::Receiver<u64>,
    tell: impl FnMut(Seen<K::Key, K::Value>) + Send,
) {
    let mut follower = Follower::<K, _> {
        api,
        metrics,
        standing,
        again,
        tell,
        backoff: Backoff::default(),
        next: Next::Everything,
        streams: true,
        read: None,
        complained: None,
        kind: std::marker::PhantomData,
    };
    loop {
        follower.step().await;
    }
}

struct Follower<K: Watched, T> {
    api: Connection,
    metrics: Metrics,
    standing: watch::Sender<Standing>,
    /// Changes when everything is wanted once more.
    again: watch::Receiver<u64>,
    tell: T,
    backoff: Backoff,
    next: Next,
    /// Whether the API server can tell everything as events, as far as is known.
    streams: bool,
    /// When everything was read the last time.
    read: Option<Instant>,
    /// What was last said about what is wrong.
    complained: Option<String>,
    kind: std::marker::PhantomData<fn() -> K>,
}

/// What to do next.
enum Next {
    Everything,
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

impl<K: Watched, T: FnMut(Seen<K::Key, K::Value>) + Send> Follower<K, T> {
    async fn step(&mut self) {
        let begun = Instant::now();
        if self.again.has_changed().unwrap_or_default() {
            self.again.mark_unchanged();
            self.next = Next::Everything;
        }
        let end = match &self.next {
            Next::Everything if self.streams => self.watch(None).await,
            Next::Everything => match self.pages().await {
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
                    self.next = Next::Everything;
                }
                self.wait(trouble).await;
            }
        }
    }

    /// Says what is wrong and waits until it is time for the next attempt.
    async fn wait(&mut self, trouble: Trouble) {
        let Trouble { kind, code: _, text, retry_after } = trouble;
        if kind == Kind::Gone {
            tracing::info!(kind = K::KIND, reason = text, "the watch begins anew, with all objects");
            // The API server is there, and waits for nothing but the question.
            if self.read.is_none_or(|read| read.elapsed() >= GOOD) {
                return;
            }
        } else {
            if self.complained.as_ref() != Some(&text) {
                tracing::warn!(kind = K::KIND, problem = text, "changes are not heard of; it is tried again until they are");
            }
            self.complained = Some(text.clone());
            let read = self.read.is_some();
            self.standing.send_replace(if read { Standing::Behind(text) } else { Standing::Reading(text) });
        }
        let mut renewals = self.api.renewals();
        renewals.mark_unchanged();
        tokio::select! {
            () = sleep(self.backoff.next(retry_after)) => {}
            // Other credentials: worth an attempt now.
            Ok(()) = renewals.changed() => {}
        }
    }

    async fn pages(&mut self) -> Result<(), Trouble> {
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        let mut all = Vec::new();
        let version = loop {
            let request = Request::new(K::PATH).list(&params).map_err(|error| self.api.trouble(&kube::Error::BuildRequest(error)))?;
            let page: Page<K> = self.api.ask(PATIENCE, self.api.client().request(request)).await?;
            all.extend(page.items.into_iter().flatten().filter_map(Self::value));
            if page.metadata.continue_token.is_empty() {
                break page.metadata.resource_version;
            }
            params.continue_token = Some(page.metadata.continue_token);
        };
        self.everything(all, version);
        Ok(())
    }

    /// Tells what happens after `from`; without it, everything that there is and then what happens.
    async fn watch(&mut self, from: Option<String>) -> End {
        let streaming = from.is_none();
        let mut renewals = self.api.renewals();
        renewals.mark_unchanged();
        let mut again = self.again.clone();
        let params = WatchParams { send_initial_events: streaming, ..WatchParams::default().timeout(WATCH_SECONDS) };
        let trouble = |api: &Connection, error: &kube::Error| End::Trouble(api.trouble(error));
        // No version: the newest, not what one API server remembers.
        let request = match Request::new(K::PATH).watch(&params, from.as_deref().unwrap_or_default()) {
            Ok(request) => request,
            Err(error) => return trouble(&self.api, &kube::Error::BuildRequest(error)),
        };
        let events = match self.api.ask(PATIENCE, self.api.client().request_events::<K>(request)).await {
            Ok(events) => events,
            Err(trouble) if streaming => return End::of_streaming(trouble),
            Err(trouble) => return End::Trouble(trouble),
        };
        // Changes that come before the end of everything are part of it.
        let mut all: Option<BTreeMap<K::Key, K::Value>> = streaming.then(BTreeMap::new);
        if !streaming {
            self.heard();
        }

        let mut events = pin!(events);
        loop {
            let event = tokio::select! {
                event = timeout(if all.is_some() { STUCK } else { SILENCE }, events.try_next()) => event,
                Ok(()) = renewals.changed() => return End::Ordinary,
                // The next step sees it, too.
                Ok(()) = again.changed() => return End::Ordinary,
            };
            let event = match event {
                Ok(Ok(Some(event))) => event,
                Ok(Err(error)) => return trouble(&self.api, &error),
                Err(_) if all.is_some() => return End::NoStream(format!("nothing was heard within {STUCK:?}")),
                Ok(Ok(None)) | Err(_) => return End::Ordinary,
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let Some(all) = &mut all else {
                        self.next = Next::Changes(object.version().to_owned());
                        Self::value(object).into_iter().for_each(|value| (self.tell)(Seen::Applied(value)));
                        continue;
                    };
                    all.extend(Self::key(&object).and_then(|key| Some((key, Self::value(object)?))));
                }
                WatchEvent::Deleted(object) => match (&mut all, Self::key(&object)) {
                    (Some(all), key) => drop(key.and_then(|key| all.remove(&key))),
                    (None, key) => {
                        self.next = Next::Changes(object.version().to_owned());
                        key.into_iter().for_each(|key| (self.tell)(Seen::Deleted(key)));
                    }
                },
                WatchEvent::Bookmark(bookmark) if all.is_none() => self.next = Next::Changes(bookmark.metadata.resource_version),
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.contains_key(END_OF_EVERYTHING) {
                        let all = all.take().unwrap_or_default().into_values().collect();
                        self.everything(all, bookmark.metadata.resource_version);
                        self.heard();
                    }
                }
                WatchEvent::Error(status) => {
                    let trouble = self.api.trouble(&kube::Error::Api(status));
                    return if all.is_some() { End::of_streaming(trouble) } else { End::Trouble(trouble) };
                }
            }
        }
    }

    fn key(object: &K) -> Option<K::Key> {
        object.key().inspect_err(|reason| left_out::<K>(reason)).ok()
    }

    fn value(object: K) -> Option<K::Value> {
        object.value().inspect_err(|reason| left_out::<K>(reason)).ok()
    }

    /// These are all objects, as of `version`.
    fn everything(&mut self, all: Vec<K::Value>, version: String) {
        tracing::info!(kind = K::KIND, objects = all.len(), "all objects of the API server are read");
        if self.read.replace(Instant::now()).is_some() {
            self.metrics.watch_restarted(K::KIND);
        }
        self.next = Next::Changes(version);
        (self.tell)(Seen::All(all));
    }

    /// Every change is heard of from now on.
    fn heard(&mut self) {
        if self.complained.take().is_some() {
            tracing::info!(kind = K::KIND, "changes are heard of again");
        }
        self.standing.send_if_modified(|standing| std::mem::replace(standing, Standing::Synced) != Standing::Synced);
    }
}

fn left_out<K: Watched>(reason: &str) {
    tracing::warn!(kind = K::KIND, reason, "an object of the API server is left out");
}
