//! When stale connections are removed. Pure: the clock is an argument.
//!
//! The API server tells of an endpoint that is gone before OVN has taken it out of the switch.
//! Until then a client that keeps sending gets a new connection to it right after the old one was
//! removed, so they are removed again: soon at first, for a client must not wait longer than OVN
//! takes, and then ever more slowly.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use contract::limits::{Exceeded, STALE_CONNECTIONS};
use podnet::conntrack::Stale;
use tokio::time::Instant;

/// The first attempt follows at once, the second after this, and each further one after twice the
/// time of the one before: a client is without an answer for at most twice as long as OVN takes.
/// OVN takes some 10 ms where it is idle; each attempt has the switch go through its connections.
const FIRST: Duration = Duration::from_millis(25);
/// The number of attempts: the last one is 51 s after the change, more than OVN takes in a large
/// cluster.
const ATTEMPTS: u32 = 12;
/// Connections of so many endpoints are removed in one go. The switch goes through its connections
/// for each, and forwards nothing new meanwhile.
const MOST: usize = 16;
/// The shortest time between two goes.
const PAUSE: Duration = Duration::from_millis(20);

/// What is stale, each with its next attempt. Namespaces have room and turns of their own: the
/// endpoints of one that come and go at thousands of addresses delay nobody else's.
#[derive(Debug, Default)]
pub(super) struct Pending {
    all: BTreeMap<Stale, Attempt>,
    /// The times of the next attempts, by namespace. Without empty ones.
    times: BTreeMap<Arc<str>, BTreeSet<(Instant, Stale)>>,
    last: Option<Last>,
}

/// The last go.
#[derive(Debug)]
struct Last {
    at: Instant,
    /// The namespace that had the last turn.
    namespace: Arc<str>,
}

#[derive(Debug)]
struct Attempt {
    at: Instant,
    number: u32,
    namespace: Arc<str>,
}

impl Pending {
    /// Adds what has become stale, each with the namespace of the Service, and forgets what is
    /// valid again. Returns why some of it is left out, by namespace.
    pub(super) fn take(
        &mut self,
        stale: impl IntoIterator<Item = (Stale, Arc<str>)>,
        valid: impl IntoIterator<Item = Stale>,
        now: Instant,
    ) -> BTreeMap<Arc<str>, Exceeded> {
        for valid in valid {
            self.forget(&valid);
        }
        let mut left_out = BTreeMap::new();
        for (stale, namespace) in stale {
            self.forget(&stale);
            let of_namespace = self.times.get(&namespace).map_or(0, BTreeSet::len);
            match STALE_CONNECTIONS.check(of_namespace + 1) {
                Ok(()) => self.add(stale, Attempt { at: now, number: 0, namespace }),
                Err(exceeded) => {
                    let more = |first: &mut Exceeded| first.value += 1;
                    left_out.entry(namespace).and_modify(more).or_insert(exceeded);
                }
            }
        }
        left_out
    }

    fn add(&mut self, stale: Stale, attempt: Attempt) {
        self.times.entry(Arc::clone(&attempt.namespace)).or_default().insert((attempt.at, stale));
        self.all.insert(stale, attempt);
    }

    fn forget(&mut self, stale: &Stale) -> Option<Attempt> {
        let attempt = self.all.remove(stale)?;
        if let Some(times) = self.times.get_mut(&attempt.namespace) {
            times.remove(&(attempt.at, *stale));
            if times.is_empty() {
                self.times.remove(&attempt.namespace);
            }
        }
        Some(attempt)
    }

    /// The time of the next go.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = self.times.values().filter_map(BTreeSet::first).map(|(at, _)| *at).min()?;
        Some(self.last.as_ref().map_or(first, |last| first.max(last.at + PAUSE)))
    }

    /// What is to be removed now: of each namespace in turn the one that waits for the longest
    /// time.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Stale> {
        let mut due = Vec::new();
        while due.len() < MOST
            && let Some((namespace, stale)) = self.turn(now)
        {
            self.last = Some(Last { at: now, namespace });
            due.push(stale);
            let Some(mut attempt) = self.forget(&stale) else { continue };
            attempt.at = now + FIRST * 2_u32.pow(attempt.number);
            attempt.number += 1;
            if attempt.number < ATTEMPTS {
                self.add(stale, attempt);
            }
        }
        due
    }

    /// What is due of the next namespace.
    fn turn(&self, now: Instant) -> Option<(Arc<str>, Stale)> {
        let after =
            self.last.as_ref().map_or(Bound::Unbounded, |last| Bound::Excluded(&last.namespace));
        let later = self.times.range::<Arc<str>, _>((after, Bound::Unbounded));
        let first = |(namespace, times): (&Arc<str>, &BTreeSet<(Instant, Stale)>)| {
            let (at, stale) = times.first()?;
            (*at <= now).then(|| (Arc::clone(namespace), *stale))
        };
        later.chain(&self.times).find_map(first)
    }
}

#[cfg(test)]
mod tests {
    use podnet::conntrack::StaleEnd;

    use super::*;

    fn stale(port: u16) -> Stale {
        Stale { address: Some([10, 96, 0, 10].into()), port, end: StaleEnd::Any }
    }

    fn of(namespace: &str, ports: impl IntoIterator<Item = u16>) -> Vec<(Stale, Arc<str>)> {
        ports.into_iter().map(|port| (stale(port), namespace.into())).collect()
    }

    #[test]
    fn the_attempts_follow_each_other_ever_more_slowly_and_end() {
        let begin = Instant::now();
        let mut pending = Pending::default();
        assert!(pending.take(of("a", [53]), [], begin).is_empty());
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
        pending.take(of("a", [53, 54]), [], begin);
        assert_eq!(pending.due(begin).len(), 2);
        pending.take([], [stale(53)], begin);
        assert_eq!(pending.due(begin + FIRST), [stale(54)]);
    }

    /// The switch forwards nothing new while it goes through its connections.
    #[test]
    fn many_at_once_are_spread_out() {
        let begin = Instant::now();
        let mut pending = Pending::default();
        pending.take(of("a", 0..100), [], begin);
        assert_eq!(pending.due(begin).len(), MOST);
        assert_eq!(pending.next(), Some(begin + PAUSE));
        let left_out = pending.take(of("a", 0..60_000), [], begin);
        assert_eq!(left_out["a"], Exceeded { limit: &STALE_CONNECTIONS, value: 60_000 });
        assert_eq!(pending.all.len(), STALE_CONNECTIONS.most);
    }

    /// One Service of UDP at 5,000 addresses had all the room, and another's clients stayed with an
    /// endpoint that was gone.
    #[test]
    fn a_namespace_with_thousands_delays_and_displaces_no_other_one() {
        let begin = Instant::now();
        let mut pending = Pending::default();
        pending.take(of("evil", 0..60_000), [], begin);
        let many: Vec<(Stale, Arc<str>)> =
            (0..50).flat_map(|number| of(&format!("n{number}"), [60_001 + number])).collect();
        assert!(pending.take(many.clone(), [], begin).is_empty());
        // A namespace after the other.
        let mut due = BTreeSet::new();
        for go in 0..4 {
            due.extend(pending.due(begin + PAUSE * go));
        }
        assert_eq!(many.iter().filter(|(stale, _)| due.contains(stale)).count(), 50);
    }

    /// The room of what is done is free again.
    #[test]
    fn nothing_is_kept_of_a_namespace_whose_attempts_are_over() {
        let begin = Instant::now();
        let mut pending = Pending::default();
        pending.take(of("a", 0..3), [], begin);
        while let Some(next) = pending.next() {
            pending.due(next);
        }
        assert!(pending.all.is_empty() && pending.times.is_empty());
    }
}
