//! The observations of an observer so far, and waiting for further ones.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use tokio::{
    sync::watch,
    time::{Instant as Deadline, timeout_at},
};

/// State that is shared between the observer, which writes it, and the tasks that wait for changes.
#[derive(Debug)]
pub(crate) struct Seen<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<T>,
    changed: watch::Sender<()>,
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Default + Debug> Seen<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { state: Mutex::new(T::default()), changed: watch::Sender::new(()) }))
    }

    /// The observations until now.
    pub(crate) fn now(&self) -> MutexGuard<'_, T> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes all waiting tasks; for the observer.
    pub(crate) fn note(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.now());
        self.0.changed.send_replace(());
    }

    /// Waits until `probe` succeeds; it runs once, and again after each change. A timeout error has
    /// the last error of `probe`.
    pub(crate) async fn wait<R>(
        &self,
        what: &str,
        patience: Duration,
        mut probe: impl FnMut(&T) -> Result<R>,
    ) -> Result<R> {
        // Subscribe before the first probe, so that no change in between is missed.
        let mut changed = self.0.changed.subscribe();
        let end = Deadline::from_std(Instant::now() + patience);
        loop {
            let missing = match probe(&self.now()) {
                Ok(found) => return Ok(found),
                Err(missing) => missing,
            };
            if timeout_at(end, changed.changed()).await.is_err() {
                return Err(anyhow!("not within {patience:?}: {what}; last seen: {missing:#}"));
            }
        }
    }
}
