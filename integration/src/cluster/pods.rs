//! All pods of the cluster, from a watch of the API server: what tests wait for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    runtime::{WatchStreamExt as _, utils::Backoff, watcher},
};

use super::api::Api;

/// The current pods. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Pods(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
}

/// Every pod by `namespace/name`.
pub type Known = BTreeMap<String, Pod>;

impl Pods {
    /// Starts the watch, which goes on through failures of the API server.
    pub(crate) fn watch(api: &Api) -> Self {
        let pods = Self::default();
        let (seen, client) = (pods.clone(), api.client.clone());
        api.runtime.spawn(async move {
            // A constant pause: a test takes the API server away for as long as it likes, and must
            // not wait for a long backoff afterwards.
            let events =
                watcher(kube::Api::<Pod>::all(client), watcher::Config::default()).backoff(Soon);
            pin_mut!(events);
            // Known pods that the list under way has not named: those that remain at its end are
            // gone.
            let mut missing = Known::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Init) => missing = seen.lock().clone(),
                    Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => {
                        missing.remove(&key(&pod));
                        seen.put(pod);
                    }
                    Ok(watcher::Event::InitDone) => {
                        std::mem::take(&mut missing).into_values().for_each(|pod| seen.remove(&pod))
                    }
                    Ok(watcher::Event::Delete(pod)) => seen.remove(&pod),
                    // Ignored: the watcher tries again.
                    Err(_) => {}
                }
            }
        });
        pods
    }

    /// Calls `probe` with the current pods, at once and at every change, until it succeeds.
    ///
    /// # Errors
    /// After `deadline`: `what`, and the last error of `probe`.
    pub fn wait<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut probe: impl FnMut(&Known) -> Result<T>,
    ) -> Result<T> {
        let end = Instant::now() + deadline;
        let mut known = self.lock();
        loop {
            let seen = match probe(&known) {
                Ok(found) => return Ok(found),
                Err(seen) => seen,
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(anyhow!("not within {deadline:?}: {what}; last seen: {seen:#}"));
            }
            known =
                self.0.changed.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The current pods.
    pub fn now(&self) -> Known {
        self.lock().clone()
    }

    fn put(&self, pod: Pod) {
        self.lock().insert(key(&pod), pod);
        self.0.changed.notify_all();
    }

    fn remove(&self, pod: &Pod) {
        self.lock().remove(&key(pod));
        self.0.changed.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A backoff of 200 ms, for ever: an API server that comes back is seen at once, and a dead one
/// costs little.
#[derive(Debug)]
pub(super) struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(200))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}

fn key(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}
