//! The pause before the next attempt to connect.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

/// Exponential backoff with jitter. Pauses double; each is cut at random by up to half, so that the
/// clients of a restarted server do not all reconnect at once.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    /// The next pause, before the jitter.
    next: Duration,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min.min(max) }
    }

    pub(super) fn pause(&mut self) -> Duration {
        let full = self.next;
        self.next = full.saturating_mul(2).min(self.max);
        let half = full / 2;
        half + half * random_permille() / 1000
    }

    /// Records how long a connection lasted. Longer than the next pause means that the server is
    /// healthy, and pauses start at the minimum again. A server that accepts and closes at once
    /// does not reset them.
    pub(super) fn served(&mut self, lasted: Duration) {
        if lasted > self.next {
            self.next = self.min.min(self.max);
        }
    }
}

/// A random number from 0 to 1000. The standard library seeds each `RandomState` differently, which
/// is random enough for jitter and saves a dependency.
fn random_permille() -> u32 {
    u32::try_from(RandomState::new().build_hasher().finish() % 1001).expect("at most 1000")
}

#[cfg(test)]
mod tests;
