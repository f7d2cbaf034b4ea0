//! The list-watch loop. A watch that ends goes on from its last version; only if the API server no
//! longer knows that version (410) is everything listed again.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use contract::backoff::Backoff;
use futures_util::{TryStream, TryStreamExt};
use kube::{
    api::WatchParams,
    core::{WatchEvent, request::Request},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use super::{
    Extent, First, Observer, Presence, Prompt, Selection, Unlisted, Watched, WrongVersion,
    list::{Freshness, pages},
};
use crate::{
    connection::Connection,
    discovery::{Served, served},
    trouble::{Kind, Trouble},
};

/// How long the API server may take to begin a watch: connection (10 s at most), TLS and the
/// headers of the answer. A much shorter limit would drop requests that a busy API server has
/// queued; a much longer one hides a hung API server for minutes.
const BEGIN: Duration = Duration::from_secs(30);
/// The API server ends a watch after this many seconds (`timeoutSeconds`): before load balancers
/// drop a flow that they take for idle (the shortest limit known: 240 s). A much shorter watch
/// costs a request of each node for nothing.
const WATCH_SECONDS: u32 = 200;
/// A watch without any event ends after this long. The API server sends a bookmark every minute, so
/// a value below 60 s would end healthy watches; a much larger one would leave a dead connection
/// unnoticed.
const SILENCE: Duration = Duration::from_secs(90);
/// The longest pause between two events of a streaming list. The API server has these objects in
/// its cache and sends them in one go, so a pause means that it cannot finish; from then on, this
/// loop lists in pages. A tenth of this would give up streaming, for as long as the loop runs, at a
/// short hiccup; ten times as much would leave the program without any objects for minutes.
const STUCK: Duration = Duration::from_secs(15);
/// How long the watch may lag behind an answer to another request ([`Prompt::nudge`]) before it is
/// opened again. Any event within this time counts as a sign of life. A tenth of this would reopen
/// healthy watches that are only slower than the other answer; without a limit, a dead connection
/// stays unnoticed until [`SILENCE`] has passed.
const LAG: Duration = Duration::from_secs(3);
/// A watch that lasted this long was a success: the backoff starts anew, and the next watch begins
/// at once. More than the longest pause between two attempts (7.5 s, see `contract::backoff`), so
/// an API server that ends each watch shortly after its begin is asked ever more slowly. Far less
/// than the 200 s of a normal watch, whose end must not cost a pause. Likewise, a list that is this
/// old may be repeated at once.
const GOOD: Duration = Duration::from_secs(10);
/// Pause before a kind of object that the API server does not have, or that this program may not
/// read, is looked for again. It comes with another release of the API server: minutes do not
/// matter, and a request of every node each second would.
const ABSENT: Duration = Duration::from_secs(300);
/// The same for a kind that an administrator may define at any time, whose objects have no effect
/// until it is found. Only leaders read such kinds, so ten times more often would be no load; ten
/// times less is minutes. Also the time after which a kind of the API's own that was read before is
/// gone if it is still missing.
const UNDEFINED: Duration = Duration::from_secs(10);
/// Annotation of the bookmark that ends a streaming list.
const END_OF_EVERYTHING: &str = "k8s.io/initial-events-end";

/// Lists and watches the objects of `selection` for ever, and calls `observer` for each event.
pub async fn follow<K: Watched, O: Observer<K>>(
    connection: Connection,
    selection: Selection,
    prompt: Prompt,
    observer: O,
) {
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
        missing: None,
        path: K::PATH.to_owned(),
        url: String::new(),
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
    /// Changes when the caller wants a new list ([`Prompt::everything`]).
    again: watch::Receiver<u64>,
    observer: O,
    backoff: Backoff,
    next: Next,
    /// Whether to use a streaming list: the selection asks for it, and the API server has not
    /// refused it so far.
    streams: bool,
    /// When the last list was complete.
    read: Option<Instant>,
    /// Since when the API server does not have the kind, of which a list was read before.
    missing: Option<Instant>,
    /// The collection.
    path: String,
    /// URL of the API server; empty while its configuration cannot be read.
    url: String,
    kind: std::marker::PhantomData<fn() -> K>,
}

/// What to do next.
enum Next {
    Everything(Freshness),
    /// Watch, from this `resourceVersion` on.
    Changes(String),
}

/// Why a watch has to be opened again although nothing is wrong with it.
struct Reopen {
    /// New credentials.
    renewals: watch::Receiver<u64>,
    /// The caller wants a new list.
    again: watch::Receiver<u64>,
}

/// What a watch brings.
enum Arrival<K> {
    Event(WatchEvent<K>),
    Error(kube::Error),
    /// No event until the deadline.
    Silence,
    /// The API server ended the watch, or it has to be opened again.
    End,
}

/// Waits for the next event. Cancellation-safe.
async fn next<K>(
    events: &mut (impl TryStream<Ok = WatchEvent<K>, Error = kube::Error> + Unpin),
    reopen: &mut Reopen,
    deadline: Instant,
) -> Arrival<K> {
    tokio::select! {
        event = timeout_at(deadline, events.try_next()) => match event {
            Ok(Ok(Some(event))) => Arrival::Event(event),
            Ok(Ok(None)) => Arrival::End,
            Ok(Err(error)) => Arrival::Error(error),
            Err(_) => Arrival::Silence,
        },
        Ok(()) = reopen.renewals.changed() => Arrival::End,
        Ok(()) = reopen.again.changed() => Arrival::End,
    }
}

/// Why a watch ended.
enum End {
    /// The API server ended it, or it has to be opened again: there is no error.
    Ordinary,
    /// The API server does not support streaming lists.
    NoStream(String),
    Trouble(Trouble),
}

impl End {
    /// What the answer to a request for a streaming list means. Older API servers answer 400 or
    /// 422. One with an etcd that lacks a needed feature (before 3.4.31 and 3.5.13) sends 500, and
    /// that as an event.
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
        self.find_api_server().await;
        if self.again.has_changed().unwrap_or_default() {
            self.again.mark_unchanged();
            self.next = Next::Everything(Freshness::Newest);
        }
        if let (Presence::Defined(definition), Next::Everything(_)) =
            (self.selection.presence, &self.next)
        {
            match served(&self.connection, definition).await {
                Ok(Served::In(version)) => self.path = definition.path(version),
                Ok(Served::Otherwise(versions)) => {
                    let (resource, versions) = (definition.resource(), versions.join(", "));
                    return self.unlisted(Unlisted::UnknownVersion { resource, versions }).await;
                }
                Ok(Served::Nowhere) => {
                    return self.unlisted(Unlisted::Undefined(definition.resource())).await;
                }
                Err(trouble) => return self.failed(trouble).await,
            }
        }
        let end = match &self.next {
            Next::Everything(_) if self.streams => self.watch(None).await,
            Next::Everything(freshness) => match self.list(*freshness).await {
                Ok(()) => return self.backoff.reset(),
                Err(trouble) => End::Trouble(trouble),
            },
            Next::Changes(from) => self.watch(Some(from.clone())).await,
        };
        // Before the wait below, so that the first failure after a good watch waits about 0.2 s
        // only.
        if begun.elapsed() >= GOOD {
            self.backoff.reset();
        }
        match end {
            End::Ordinary if begun.elapsed() >= GOOD => {}
            // A balancer, or an API server that shuts down, may end each watch at once.
            End::Ordinary => sleep(self.backoff.next(None)).await,
            End::NoStream(reason) => {
                tracing::debug!(
                    kind = K::KIND,
                    reason,
                    "the API server does not support streaming lists; listing in pages"
                );
                self.streams = false;
            }
            End::Trouble(trouble) => self.failed(trouble).await,
        }
    }

    /// Decides what a failure means, and waits until it is time for the next attempt.
    async fn failed(&mut self, trouble: Trouble) {
        let code = trouble.code;
        // The version of a kind that is defined may be served no longer: another one may be.
        let is_missing = self.selection.presence != Presence::Certain && code == Some(404);
        let is_lost = matches!(trouble.kind, Kind::Gone | Kind::Malformed);
        match self.selection.presence {
            Presence::Defined(definition) if code == Some(403) => {
                let (resource, why) = (definition.resource(), trouble.text);
                self.unlisted(Unlisted::Forbidden { resource, why }).await;
            }
            // Without the right to read them, there are none as far as this program goes: an
            // upgrade that leaves its ClusterRole behind must not wait for ever. What was read
            // before stays.
            Presence::Newer if code == Some(403) && self.read.is_none() => {
                tracing::warn!(
                    kind = K::KIND,
                    why = trouble.text,
                    "this program may not read objects of this kind, and goes on as if there were none"
                );
                self.next = Next::Everything(Freshness::Newest);
                self.absent().await;
            }
            Presence::Newer if is_missing => {
                self.next = Next::Everything(Freshness::Newest);
                if self.is_gone() {
                    self.absent().await;
                } else {
                    self.look_twice(&trouble.text).await;
                }
            }
            Presence::Certain | Presence::Newer | Presence::Defined(_) => {
                if is_missing || is_lost {
                    self.next = Next::Everything(Freshness::Newest);
                }
                self.wait(trouble).await;
            }
        }
    }

    /// Reports that there is no list, and waits until it is time to look for the kind again.
    async fn unlisted(&mut self, why: Unlisted) {
        self.next = Next::Everything(Freshness::Newest);
        self.observer.unlisted(why);
        self.pause(UNDEFINED).await;
    }

    /// Follows the connection to another API server. Versions of objects mean nothing there: a
    /// watch from the last one would report changes of other objects.
    async fn find_api_server(&mut self) {
        while self.has_moved() {
            let before = std::mem::replace(&mut self.url, self.connection.url());
            if !before.is_empty() {
                self.next = Next::Everything(Freshness::Newest);
                self.observer.moved().await;
            }
        }
    }

    fn has_moved(&self) -> bool {
        self.connection.url() != self.url
    }

    /// Whether an answer that there is no such kind means that there are no objects of it: at
    /// first, and if it is the second such answer, with enough time in between. An API server that
    /// was restored, or whose definitions are made anew, has the objects back in a moment.
    fn is_gone(&mut self) -> bool {
        let has_passed = |since: Instant| since.elapsed() >= UNDEFINED;
        self.read.is_none() || has_passed(*self.missing.get_or_insert_with(Instant::now))
    }

    /// Waits until a second answer counts.
    async fn look_twice(&mut self, why: &str) {
        self.observer.lost(&format!(
            "{why}; what was read before stays until a second answer says the same"
        ));
        let passed = self.missing.map_or(Duration::ZERO, |since| since.elapsed());
        self.pause(UNDEFINED.saturating_sub(passed)).await;
    }

    /// Reports that there are no objects, and waits until it is time to look for the kind again.
    async fn absent(&mut self) {
        (self.read, self.missing) = (None, None);
        self.observer.absent();
        self.observer.heard();
        self.pause(ABSENT).await;
    }

    /// Waits until it is time to look for the kind again.
    async fn pause(&mut self, pause: Duration) {
        let mut renewals = self.connection.renewals();
        tokio::select! {
            () = sleep(pause) => {}
            Ok(()) = renewals.changed() => {}
            Ok(()) = self.again.changed() => {}
        }
    }

    /// Reports the failure, and waits until it is time for the next attempt.
    async fn wait(&mut self, trouble: Trouble) {
        let Trouble { kind, code: _, text, retry_after } = trouble;
        if kind == Kind::Gone {
            self.observer.begins_anew(&text);
            // The API server answers, so ask again at once; but not if there is no list yet, or one
            // this young: an API server that refuses each version would be listed in a tight loop.
            if self.read.is_some_and(|read| read.elapsed() >= GOOD) {
                return;
            }
        } else {
            self.observer.lost(&text);
        }
        let mut renewals = self.connection.renewals();
        tokio::select! {
            () = sleep(self.backoff.next(retry_after)) => {}
            // New credentials, or an answer to another request: an attempt is worth making now.
            // `retry_after` holds against the latter only: the API server asked for that pause.
            Ok(()) = renewals.changed() => {}
            () = self.prompt.nudge.notified(), if retry_after.is_none() => {}
        }
    }

    async fn list(&mut self, freshness: Freshness) -> Result<(), Trouble> {
        let observer = &mut self.observer;
        let (all, version) =
            pages::<K>(&self.connection, &self.path, &self.selection, freshness, |object| {
                observer.read(object)
            })
            .await?;
        // The answers may be of two API servers.
        if !self.has_moved() {
            self.everything(all, version);
        }
        Ok(())
    }

    /// Watches from version `from`. Without it: a streaming list first, then the changes after it.
    async fn watch(&mut self, from: Option<String>) -> End {
        // Subscribed before the request: a change of credentials while it is under way ends the
        // watch. `again` is a clone: `step` sees the change, too, and lists.
        let mut reopen = Reopen { renewals: self.connection.renewals(), again: self.again.clone() };
        let request = match self.request(from.as_deref()) {
            Ok(request) => request,
            Err(trouble) => return End::Trouble(trouble),
        };
        let events = match self
            .connection
            .ask(BEGIN, self.connection.client().request_events::<K>(request))
            .await
        {
            Ok(events) => events,
            Err(trouble) if from.is_none() => return End::of_streaming(trouble),
            Err(trouble) => return End::Trouble(trouble),
        };
        // The request may have gone to another API server than the one that `from` is of.
        if self.has_moved() {
            return End::Ordinary;
        }
        let mut events = pin!(events);
        if from.is_none() {
            match self.initial(&mut events, &mut reopen).await {
                Ok((all, version)) => self.everything(all, version),
                Err(end) => return end,
            }
        }
        self.observer.heard();
        self.changes(&mut events, &mut reopen).await
    }

    /// The objects of a streaming list, and its version. Nothing is reported before the end of the
    /// list: an incomplete one would look like deletions.
    async fn initial(
        &mut self,
        events: &mut (impl TryStream<Ok = WatchEvent<K>, Error = kube::Error> + Unpin),
        reopen: &mut Reopen,
    ) -> Result<(Vec<K::Value>, String), End> {
        // Changes that arrive before the end of the list are part of it.
        let mut all = BTreeMap::new();
        loop {
            let event = match next(events, reopen, Instant::now() + STUCK).await {
                Arrival::Event(event) => event,
                Arrival::Error(error) => return Err(End::Trouble(self.connection.trouble(&error))),
                Arrival::Silence => {
                    return Err(End::NoStream(format!("no event arrived within {STUCK:?}")));
                }
                Arrival::End => return Err(End::Ordinary),
            };
            if let Some(version) = self.collect(event, &mut all)? {
                return Ok((all.into_values().collect(), version));
            }
        }
    }

    /// Reports each change, until the watch ends.
    async fn changes(
        &mut self,
        events: &mut (impl TryStream<Ok = WatchEvent<K>, Error = kube::Error> + Unpin),
        reopen: &mut Reopen,
    ) -> End {
        let mut silence = Instant::now() + SILENCE;
        // The deadline for the next event, once a nudge has announced one.
        let mut behind: Option<Instant> = None;
        loop {
            let arrival = tokio::select! {
                arrival = next(events, reopen, behind.unwrap_or(silence).min(silence)) => arrival,
                () = self.prompt.nudge.notified() => {
                    // Only the first nudge counts: more of them must not postpone the deadline.
                    behind.get_or_insert_with(|| Instant::now() + LAG);
                    continue;
                }
            };
            match arrival {
                Arrival::Event(event) => {
                    if let Err(end) = self.take(event) {
                        return end;
                    }
                }
                Arrival::Error(error) => return End::Trouble(self.connection.trouble(&error)),
                Arrival::Silence if behind.is_some() => {
                    self.observer.behind();
                    return End::Ordinary;
                }
                Arrival::Silence | Arrival::End => return End::Ordinary,
            }
            (silence, behind) = (Instant::now() + SILENCE, None);
        }
    }

    /// The request for the changes after `from`, or for a streaming list.
    fn request(&self, from: Option<&str>) -> Result<hyper::Request<Vec<u8>>, Trouble> {
        let Selection { fields, labels, extent, .. } = &self.selection;
        let params = WatchParams {
            send_initial_events: from.is_none(),
            ..WatchParams::default().timeout(WATCH_SECONDS)
        };
        let label_selector = labels.map(str::to_owned);
        let params = WatchParams { field_selector: fields.clone(), label_selector, ..params };
        let request = Request::new(&self.path);
        // An empty version asks for the newest state, not for what one API server has in its cache.
        let from = from.unwrap_or_default();
        let request = match extent {
            Extent::Whole => request.watch(&params, from),
            Extent::Metadata => request.watch_metadata(&params, from),
        };
        request.map_err(|error| self.connection.trouble(&kube::Error::BuildRequest(error)))
    }

    /// Takes one event of a streaming list into `all`. Returns the version of the list after the
    /// last one.
    fn collect(
        &mut self,
        event: WatchEvent<K>,
        all: &mut BTreeMap<K::Key, K::Value>,
    ) -> Result<Option<String>, End> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                if let Some(key) = self.key(&object)
                    && let Some(value) = self.observer.read(object)
                {
                    all.insert(key, value);
                }
            }
            WatchEvent::Deleted(object) => {
                if let Some(key) = self.key(&object) {
                    all.remove(&key);
                }
            }
            WatchEvent::Bookmark(bookmark)
                if bookmark.metadata.annotations.contains_key(END_OF_EVERYTHING) =>
            {
                return Ok(Some(bookmark.metadata.resource_version));
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => {
                return Err(End::of_streaming(self.connection.trouble(&kube::Error::Api(status))));
            }
        }
        Ok(None)
    }

    /// Reports one change, and remembers its version.
    fn take(&mut self, event: WatchEvent<K>) -> Result<(), End> {
        let version = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.version().to_owned();
                if let Some(value) = self.observer.read(object) {
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
            WatchEvent::Error(status) => {
                return Err(End::Trouble(self.connection.trouble(&kube::Error::Api(status))));
            }
        };
        // After the observer has accepted it: if the observer refuses the version, the loop lists
        // again.
        self.next = Next::Changes(version);
        Ok(())
    }

    fn key(&mut self, object: &K) -> Option<K::Key> {
        object.key().inspect_err(|reason| self.observer.left_out(reason)).ok()
    }

    /// Reports the complete list, as of `version`.
    fn everything(&mut self, all: Vec<K::Value>, version: String) {
        (self.read, self.missing) = (Some(Instant::now()), None);
        self.next = Next::Changes(version.clone());
        self.observer.all(all, version);
    }
}
