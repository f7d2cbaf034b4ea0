//! [`Watch`](super::Watch)'s observer: it reports the state of the watch to the log, to a metric
//! and to [`SyncStatus`]. Knows nothing of the objects.

use tokio::sync::watch;

use super::{Observer, Seen, SyncStatus, Unlisted, Watched, WrongVersion};
use crate::metrics::Metrics;

pub(super) struct Report<I, S, T> {
    metrics: Metrics,
    standing: watch::Sender<SyncStatus>,
    identify: I,
    shorten: S,
    tell: T,
    /// Whether a complete list has been read.
    read: bool,
    /// Whether the API server does not have the kind, as far as is known.
    is_absent: bool,
    /// The last failure that was logged, to log each one once.
    complained: Option<String>,
}

impl<I, S, T> Report<I, S, T> {
    pub(super) fn new(
        metrics: Metrics,
        standing: watch::Sender<SyncStatus>,
        identify: I,
        shorten: S,
        tell: T,
    ) -> Self {
        Self {
            metrics,
            standing,
            identify,
            shorten,
            tell,
            read: false,
            is_absent: false,
            complained: None,
        }
    }
}

impl<K, I, F, S, T> Observer<K> for Report<I, S, T>
where
    K: Watched,
    I: Fn() -> F + Send,
    F: Future<Output = ()> + Send,
    S: FnMut(&mut K::Value) + Send,
    T: FnMut(Seen<K::Key, K::Value>) + Send,
{
    fn all(&mut self, objects: Vec<K::Value>, _version: String) {
        tracing::info!(
            kind = K::KIND,
            objects = objects.len(),
            "all objects of the API server are read"
        );
        // The first list is a start, not a restart.
        if std::mem::replace(&mut self.read, true) && !self.is_absent {
            self.metrics.watch_restarted(K::KIND);
        }
        self.is_absent = false;
        (self.tell)(Seen::All(objects));
    }

    fn absent(&mut self) {
        self.read = true;
        // Asked every few seconds, for as long as there is no such kind.
        if !std::mem::replace(&mut self.is_absent, true) {
            tracing::info!(
                kind = K::KIND,
                "the API server has no such kind of object, or this program may not read it; looking again later"
            );
        }
        (self.tell)(Seen::All(Vec::new()));
    }

    fn unlisted(&mut self, why: Unlisted) {
        self.standing.send_if_modified(|standing| {
            // Asked every few seconds, for as long as it lasts.
            let is_new = !matches!(standing, SyncStatus::Unlisted(before) if *before == why);
            if is_new {
                tracing::warn!(kind = K::KIND, %why, "there is no list of this kind; looking again later");
            }
            *standing = SyncStatus::Unlisted(why.clone());
            is_new
        });
        self.complained = None;
        (self.tell)(Seen::Unlisted(why));
    }

    fn applied(&mut self, object: K::Value, _version: &str) -> Result<(), WrongVersion> {
        (self.tell)(Seen::Applied(object));
        Ok(())
    }

    fn deleted(&mut self, key: K::Key, _version: &str) -> Result<(), WrongVersion> {
        (self.tell)(Seen::Deleted(key));
        Ok(())
    }

    fn read(&mut self, object: K) -> Option<K::Value> {
        match object.value() {
            Ok(mut value) => {
                (self.shorten)(&mut value);
                Some(value)
            }
            Err(reason) => {
                Observer::<K>::left_out(self, &reason);
                None
            }
        }
    }

    fn left_out(&mut self, reason: &str) {
        tracing::warn!(kind = K::KIND, reason, "an object of the API server is left out");
    }

    fn heard(&mut self) {
        if self.complained.take().is_some() {
            tracing::info!(kind = K::KIND, "the watch is connected again");
        }
        self.standing.send_if_modified(|standing| {
            std::mem::replace(standing, SyncStatus::Synced) != SyncStatus::Synced
        });
    }

    fn lost(&mut self, why: &str) {
        if self.complained.as_deref() != Some(why) {
            tracing::warn!(kind = K::KIND, problem = why, "the watch is disconnected; retrying");
        }
        self.complained = Some(why.to_owned());
        let why = why.to_owned();
        self.standing.send_replace(if self.read {
            SyncStatus::Behind(why)
        } else {
            SyncStatus::Reading(why)
        });
    }

    fn moved(&mut self) -> impl Future<Output = ()> + Send {
        tracing::warn!(
            kind = K::KIND,
            "the connection leads to another API server; all objects are read again"
        );
        (self.identify)()
    }

    fn begins_anew(&mut self, why: &str) {
        tracing::info!(kind = K::KIND, reason = why, "the watch begins anew, with all objects");
    }
}
