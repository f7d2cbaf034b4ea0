//! The pauses between attempts: short at first, then longer, and random, so that programs that fail
//! together do not retry together.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The first pause between requests. Long enough for a server that restarts not to be asked in a
/// tight loop, short enough that one lost connection is not noticed.
const FIRST: Duration = Duration::from_millis(200);
/// The longest pause, before the random part: how late a program may notice that the server is back
/// (7.5 s at most). Ten times as much would keep pods waiting for more than a minute after an
/// outage; with a tenth, the nodes of a cluster of 1,000 would send 2,000 requests per second to an
/// API server that is starting.
const LONGEST: Duration = Duration::from_secs(5);

/// The pauses between attempts: each the double of the one before, times a random factor of 0.5 to
/// 1.5.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    last: Option<Duration>,
}

/// From 0.2 s to 5 s: for requests to a server.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(FIRST, LONGEST)
    }
}

impl Backoff {
    /// Pauses from `first` to `longest`, before the random factor.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, last: None }
    }

    /// Starts again with the shortest pause. Call it after a success that lasted.
    pub fn reset(&mut self) {
        self.last = None;
    }

    /// The pause before the next attempt; at least `asked`, the wish of the server.
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        let next = self.last.map_or(self.first, |last| (last * 2).min(self.longest));
        self.last = Some(next);
        let wait = next.max(asked.unwrap_or_default());
        // 0.5 to 1.5 times the computed pause, but never less than the server asked for.
        (wait / 2 + part(wait)).max(asked.unwrap_or_default())
    }
}

/// The pause after so many failures, for a caller that counts them: `first`, doubled each time up
/// to `longest`, and cut at random by up to half.
pub fn pause(first: Duration, longest: Duration, times: u32) -> Duration {
    let full = first.saturating_mul(2_u32.saturating_pow(times)).min(longest);
    full / 2 + part(full / 2)
}

/// `wait` plus up to a fifth of it, at random, so that programs that began together drift apart.
pub fn a_fifth_more(wait: Duration) -> Duration {
    wait + part(wait / 5)
}

/// A random part of `whole`. `RandomState` draws its keys at random, which is good enough here and
/// needs no crate.
fn part(whole: Duration) -> Duration {
    whole * u32::try_from(RandomState::new().hash_one(()) % 1000).unwrap_or_default() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_differ() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..20).map(|_| backoff.next(None)).collect();
        assert!(waits[0] >= FIRST / 2 && waits[0] < 2 * FIRST, "{waits:?}");
        assert!(
            waits[10..].iter().all(|wait| *wait >= LONGEST / 2 && *wait <= LONGEST * 3 / 2),
            "{waits:?}"
        );
        assert!(waits[10..].windows(2).any(|pair| pair[0] != pair[1]), "{waits:?}");
        assert!(backoff.next(Some(Duration::from_secs(40))) >= Duration::from_secs(40));
        backoff.reset();
        assert!(backoff.next(None) < 2 * FIRST);
    }
}
