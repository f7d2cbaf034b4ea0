//! When to try again: at once, then after longer and longer, never at the same moment as everybody else.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// The waits between attempts: 0.2 s, doubled until 5 s.
#[derive(Debug, Default)]
pub struct Backoff {
    last: Option<Duration>,
}

impl Backoff {
    /// The last attempt succeeded, and for long enough.
    pub fn reset(&mut self) {
        self.last = None;
    }

    /// How long to wait now, but at least `asked` if somebody asked for that.
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        let next = self.last.map_or(FIRST, |last| (last * 2).min(LONGEST));
        self.last = Some(next);
        let wait = next.max(asked.unwrap_or_default());
        // A random half more or less: 0.5 to 1.5 of what was computed, but no less than was asked for.
        (wait / 2 + part(wait)).max(asked.unwrap_or_default())
    }
}

/// `wait` and up to a fifth of it, so that those who began together do not go on together.
pub fn a_fifth_more(wait: Duration) -> Duration {
    wait + part(wait / 5)
}

/// A random part of it.
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
        assert!(waits[10..].iter().all(|wait| *wait >= LONGEST / 2 && *wait <= LONGEST * 3 / 2), "{waits:?}");
        assert!(waits[10..].windows(2).any(|pair| pair[0] != pair[1]), "{waits:?}");
        assert!(backoff.next(Some(Duration::from_secs(40))) >= Duration::from_secs(40));
        backoff.reset();
        assert!(backoff.next(None) < 2 * FIRST);
    }
}
