//! How long to wait before the next attempt.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

/// Pauses that double, each cut by up to half at random, so that the clients of a restarted server do not all come at once.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    /// The next pause, before it is cut.
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

    /// A connection lasted this long: longer than the next pause means that the server is well again.
    pub(super) fn served(&mut self, lasted: Duration) {
        if lasted > self.next {
            self.next = self.min.min(self.max);
        }
    }
}

/// 0 to 1000. The standard library's hasher is seeded at random for each map; no more is needed here.
fn random_permille() -> u32 {
    u32::try_from(RandomState::new().build_hasher().finish() % 1001).expect("at most 1000")
}

#[cfg(test)]
mod tests;
