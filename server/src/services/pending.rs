//! When stale connections are removed. Pure: the clock is an argument.
//!
//! The API server tells of an endpoint that is gone before OVN has taken it out of the switch. Until then a
//! client that keeps sending gets a new connection to it right after the old one was removed, so they are
//! removed again: soon at first, for a client must not wait longer than OVN takes, and then ever more slowly.

use std::{collections::BTreeMap, time::Duration};

use podnet::conntrack::Stale;
use tokio::time::Instant;

/// The first attempt follows at once, the second after this, and each further one after twice the time of the
/// one before: a client is without an answer for at most twice as long as OVN takes. OVN takes some 10 ms
/// where it is idle; each attempt has the switch go through its connections.
const FIRST: Duration = Duration::from_millis(25);
/// The number of attempts: the last one is 51 s after the change, more than OVN takes in a large cluster.
const ATTEMPTS: u32 = 12;
/// Connections of so many endpoints are removed in one go. The switch goes through its connections for each,
/// and forwards nothing new meanwhile.
const MOST: usize = 16;
/// The shortest time between two goes.
const PAUSE: Duration = Duration::from_millis(20);
/// The most that is remembered. More go away only with whole Services or nodes; then the oldest are of no
/// use.
const ROOM: usize = 4096;

/// What is stale, each with its next attempt.
#[derive(Debug, Default)]
pub(super) struct Pending {
    all: BTreeMap<Stale, Attempt>,
    last: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    at: Instant,
    number: u32,
}

impl Pending {
    /// Adds what has become stale, and forgets what is valid again.
    pub(super) fn take(
        &mut self,
        stale: impl IntoIterator<Item = Stale>,
        valid: impl IntoIterator<Item = Stale>,
        now: Instant,
    ) {
        for valid in valid {
            self.all.remove(&valid);
        }
        for stale in stale {
            if self.all.len() < ROOM {
                self.all.insert(stale, Attempt { at: now, number: 0 });
            }
        }
    }

    /// The time of the next go.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = self.all.values().map(|attempt| attempt.at).min()?;
        Some(self.last.map_or(first, |last| first.max(last + PAUSE)))
    }

    /// What is to be removed now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Stale> {
        let mut due: Vec<(Instant, Stale)> = self
            .all
            .iter()
            .filter(|(_, attempt)| attempt.at <= now)
            .map(|(stale, attempt)| (attempt.at, *stale))
            .collect();
        due.sort_unstable();
        due.truncate(MOST);
        for (_, stale) in &due {
            let Some(attempt) = self.all.get_mut(stale) else { continue };
            attempt.at = now + FIRST * 2_u32.pow(attempt.number);
            attempt.number += 1;
            if attempt.number == ATTEMPTS {
                self.all.remove(stale);
            }
        }
        if !due.is_empty() {
            self.last = Some(now);
        }
        due.into_iter().map(|(_, stale)| stale).collect()
    }
}

#[cfg(test)]
mod tests {
    use podnet::conntrack::StaleEnd;

    use super::*;

    fn stale(port: u16) -> Stale {
        Stale { address: Some([10, 96, 0, 10].into()), port, end: StaleEnd::Any }
    }

    #[test]
    fn the_attempts_follow_each_other_ever_more_slowly_and_end() {
        let begin = Instant::now();
        let mut pending = Pending::default();
        pending.take([stale(53)], [], begin);
        let mut times = Vec::new();
        while let Some(next) = pending.next() {
            assert_eq!(pending.due(next), [stale(53)]);
            times.push((next - begin).as_millis());
        }
        assert_eq!(times, [0, 25, 75, 175, 375, 775, 1575, 3175, 6375, 12775, 25575, 51175]);
    }

    #[test]
    fn what_is_valid_again_is_left_alone() {
        let begin = Instant::now();
        let mut pending = Pending::default();
        pending.take([stale(53), stale(54)], [], begin);
        assert_eq!(pending.due(begin).len(), 2);
        pending.take([], [stale(53)], begin);
        assert_eq!(pending.due(begin + FIRST), [stale(54)]);
    }

    /// The switch forwards nothing new while it goes through its connections.
    #[test]
    fn many_at_once_are_spread_out() {
        let begin = Instant::now();
        let mut pending = Pending::default();
        pending.take((0..100).map(stale), [], begin);
        assert_eq!(pending.due(begin).len(), MOST);
        assert_eq!(pending.next(), Some(begin + PAUSE));
        pending.take((0..60_000).map(stale), [], begin);
        assert!(pending.all.len() <= ROOM);
    }
}
