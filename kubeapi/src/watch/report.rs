//! What a watch of all objects of a kind says of itself: to the log, as a metric, and as its standing. Knows nothing of the objects.

use tokio::sync::watch;

use super::{Observer, Seen, Standing, Watched, WrongVersion};
use crate::metrics::Metrics;

pub(super) struct Report<T> {
    metrics: Metrics,
    standing: watch::Sender<Standing>,
    tell: T,
    /// Whether everything was read once.
    read: bool,
    /// What was last said about what is wrong.
    complained: Option<String>,
}

impl<T> Report<T> {
    pub(super) fn new(metrics: Metrics, standing: watch::Sender<Standing>, tell: T) -> Self {
        Self { metrics, standing, tell, read: false, complained: None }
    }
}

impl<K: Watched, T: FnMut(Seen<K::Key, K::Value>) + Send> Observer<K> for Report<T> {
    fn all(&mut self, objects: Vec<K::Value>, _version: String) {
        tracing::info!(kind = K::KIND, objects = objects.len(), "all objects of the API server are read");
        if std::mem::replace(&mut self.read, true) {
            self.metrics.watch_restarted(K::KIND);
        }
        (self.tell)(Seen::All(objects));
    }

    fn applied(&mut self, object: K::Value, _version: &str) -> Result<(), WrongVersion> {
        (self.tell)(Seen::Applied(object));
        Ok(())
    }

    fn deleted(&mut self, key: K::Key, _version: &str) -> Result<(), WrongVersion> {
        (self.tell)(Seen::Deleted(key));
        Ok(())
    }

    fn left_out(&mut self, reason: &str) {
        tracing::warn!(kind = K::KIND, reason, "an object of the API server is left out");
    }

    fn heard(&mut self) {
        if self.complained.take().is_some() {
            tracing::info!(kind = K::KIND, "changes are heard of again");
        }
        self.standing.send_if_modified(|standing| std::mem::replace(standing, Standing::Synced) != Standing::Synced);
    }

    fn lost(&mut self, why: &str) {
        if self.complained.as_deref() != Some(why) {
            tracing::warn!(kind = K::KIND, problem = why, "changes are not heard of; it is tried again until they are");
        }
        self.complained = Some(why.to_owned());
        let why = why.to_owned();
        self.standing.send_replace(if self.read { Standing::Behind(why) } else { Standing::Reading(why) });
    }

    fn begins_anew(&mut self, why: &str) {
        tracing::info!(kind = K::KIND, reason = why, "the watch begins anew, with all objects");
    }
}
