//! The event correlator: which series of events exist, how often each occurred, and what may be
//! sent now. One spam filter limits all series together, and each namespace has its share of it:
//! one in which everything fails silences no other. Pure: the time is a parameter.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::event::{Event, EventKey};
use crate::Allowance;

/// The shortest time between two updates of one series. A kubelet may repeat a failed ADD every few
/// seconds; each update is a write of the API server, and a person who looks at the events needs no
/// more.
const REFRESH_TIME: Duration = Duration::from_secs(30);
/// A series without an event for this long has ended, and the next one begins a new series. Longer
/// than a kubelet's longest pause between two attempts (5 min), which would otherwise make each
/// attempt an event of its own. The API server keeps events for an hour by default, so the event of
/// a running series still exists.
const FINISH_TIME: Duration = Duration::from_secs(900);
/// The largest number of series; it bounds the memory. More than the pods of a node. In a larger
/// outage the first ones say enough.
const MAX_SERIES: usize = 512;
/// So many events may be sent at once, and one more after each [`REFILL`]. It protects the API
/// server if all pods of all nodes fail at the same time: 1,000 nodes then send 500 events per
/// second at most, after the burst. A tenth of the rate would report the last of 100 pods half an
/// hour later.
const BURST: u32 = 20;
/// The time after which one more event may be sent: see [`BURST`].
const REFILL: Duration = Duration::from_secs(2);

/// The series that have not ended.
#[derive(Debug)]
pub(super) struct EventCorrelator {
    series: HashMap<EventKey, Series>,
    /// When an event of each namespace was sent last; none for objects of the cluster. Of those
    /// with a series.
    served: HashMap<Option<Box<str>>, Instant>,
    /// Events that may be sent.
    allowance: Allowance,
}

#[derive(Debug)]
struct Series {
    /// The text of the first event.
    note: String,
    count: u32,
    recorded: u32,
    begun: Instant,
    last_observed: Instant,
    last_recorded: Option<Instant>,
    /// The name of the event whose count grows.
    event: Option<String>,
}

/// An event to send now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) key: EventKey,
    pub(super) note: String,
    /// How often it occurred in this series.
    pub(super) count: u32,
    /// The event to update; `None`: create a new one.
    pub(super) event: Option<String>,
}

impl EventCorrelator {
    pub(super) fn new(now: Instant) -> Self {
        let allowance = Allowance::full(BURST, REFILL, now);
        Self { series: HashMap::new(), served: HashMap::new(), allowance }
    }

    /// Counts an event. Returns false if there is no room for another series: not even that of a
    /// namespace with more of them.
    pub(super) fn correlate(&mut self, event: Event, now: Instant) -> bool {
        self.series.retain(|_, series| now.duration_since(series.last_observed) < FINISH_TIME);
        let Event { key, note } = event;
        if self.series.len() >= MAX_SERIES
            && !self.series.contains_key(&key)
            && !self.make_room(&key)
        {
            return false;
        }
        let new = || Series {
            note,
            count: 0,
            recorded: 0,
            begun: now,
            last_observed: now,
            last_recorded: None,
            event: None,
        };
        let series = self.series.entry(key).or_insert_with(new);
        series.count += 1;
        series.last_observed = now;
        true
    }

    /// The next event to send. It counts as sent, even if the request fails later.
    pub(super) fn due(&mut self, now: Instant) -> Option<Due> {
        if self.allowance.next(now) > now {
            return None;
        }
        // The namespace that has waited longest, so that none starves while tokens are rare; of its
        // series the same.
        let (key, series) = self
            .series
            .iter_mut()
            .filter(|(_, series)| series.due_at().is_some_and(|due| due <= now))
            .min_by_key(|(key, series)| {
                (self.served.get(&namespace(key)).copied(), series.due_at())
            })?;
        self.allowance.spend(now);
        series.recorded = series.count;
        series.last_recorded = Some(now);
        self.served.insert(namespace(key), now);
        Some(Due {
            key: key.clone(),
            note: series.note.clone(),
            count: series.count,
            event: series.event.clone(),
        })
    }

    /// When there may be an event to send, if none arrives until then.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.series.values().filter_map(Series::due_at).min()?;
        Some(due.max(self.allowance.next(due)))
    }

    /// Remembers the name of the event that the API server has for `key`; `None`: it has none any
    /// more.
    pub(super) fn update_state(&mut self, key: &EventKey, event: Option<String>) {
        if let Some(series) = self.series.get_mut(key) {
            series.event = event;
        }
    }

    /// Ends a series of the namespace with the most of them: of its last ones, which say least.
    /// Returns whether that namespace has more than that of the new event.
    fn make_room(&mut self, new: &EventKey) -> bool {
        let mut counts: HashMap<Option<Box<str>>, usize> = HashMap::new();
        self.series.keys().for_each(|key| *counts.entry(namespace(key)).or_default() += 1);
        self.served.retain(|of, _| counts.contains_key(of));
        let own = counts.get(&namespace(new)).copied().unwrap_or_default();
        let Some((most, _)) =
            counts.into_iter().max_by_key(|(_, count)| *count).filter(|(_, most)| *most > own + 1)
        else {
            return false;
        };
        let of_most = self.series.iter().filter(|(key, _)| namespace(key) == most);
        let Some(last) = of_most.max_by_key(|(_, series)| series.begun).map(|(key, _)| key.clone())
        else {
            return false;
        };
        self.series.remove(&last);
        true
    }
}

fn namespace(key: &EventKey) -> Option<Box<str>> {
    key.object.namespace().map(Box::from)
}

impl Series {
    fn due_at(&self) -> Option<Instant> {
        (self.count > self.recorded).then(|| {
            self.last_recorded.map_or(self.last_observed, |recorded| recorded + REFRESH_TIME)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::EventReason, *};
    use crate::object::Object;

    fn event(pod: &str) -> Event {
        let pod = contract::names::PodKey::new("shop", pod).unwrap();
        Event::new(Object::Pod(pod), "u1", EventReason::new("AddNetwork", "NetworkFailed"), "no")
    }

    #[test]
    fn repetitions_are_one_series_that_grows_slowly() {
        let start = Instant::now();
        let mut correlator = EventCorrelator::new(start);
        assert!(correlator.correlate(event("a"), start));
        let first = correlator.due(start).unwrap();
        assert_eq!((first.count, &first.event), (1, &None));
        correlator.update_state(&first.key, Some("a.1".to_owned()));

        for second in 1..20 {
            assert!(correlator.correlate(event("a"), start + Duration::from_secs(second)));
            assert_eq!(correlator.due(start + Duration::from_secs(second)), None);
        }
        assert_eq!(correlator.next_due(), Some(start + REFRESH_TIME));
        let second = correlator.due(start + REFRESH_TIME).unwrap();
        assert_eq!((second.count, second.event.as_deref()), (20, Some("a.1")));
        assert_eq!(
            (correlator.due(start + 10 * REFRESH_TIME), correlator.next_due()),
            (None, None)
        );
    }

    #[test]
    fn a_storm_of_pods_is_told_of_slowly() {
        let start = Instant::now();
        let mut correlator = EventCorrelator::new(start);
        (0..100).for_each(|n| assert!(correlator.correlate(event(&format!("pod-{n}")), start)));
        let told = |correlator: &mut EventCorrelator, now| {
            std::iter::from_fn(|| correlator.due(now)).count()
        };
        assert_eq!(told(&mut correlator, start), 20);
        assert_eq!(correlator.next_due(), Some(start + REFILL));
        assert_eq!(told(&mut correlator, start + 10 * REFILL), 10);
        assert_eq!(
            told(&mut correlator, start + 1000 * REFILL),
            20,
            "what was not needed does not add up"
        );
    }

    /// A tenant with hundreds of broken policies silenced everybody's events for a quarter of an
    /// hour.
    #[test]
    fn a_namespace_in_which_everything_fails_silences_no_other() {
        let start = Instant::now();
        let mut correlator = EventCorrelator::new(start);
        let taken = (0..MAX_SERIES)
            .filter(|n| correlator.correlate(event(&format!("pod-{n}")), start))
            .count();
        assert_eq!(taken, MAX_SERIES);
        while correlator.due(start).is_some() {}
        let other = contract::names::PodKey::new("other", "pod").unwrap();
        let reason = EventReason::new("AddNetwork", "NetworkFailed");
        let other = || Event::new(Object::Pod(other.clone()), "u2", reason.clone(), "no");
        assert!(correlator.correlate(other(), start + REFILL), "there is room for it");
        assert_eq!(
            correlator.due(start + REFILL).unwrap().key,
            other().key,
            "it is not behind the others"
        );
        assert_eq!(correlator.series.len(), MAX_SERIES);
    }

    #[test]
    fn series_end_and_room_is_bounded() {
        let start = Instant::now();
        let mut correlator = EventCorrelator::new(start);
        let taken = (0..MAX_SERIES + 10)
            .filter(|n| correlator.correlate(event(&format!("pod-{n}")), start))
            .count();
        assert_eq!(taken, MAX_SERIES);
        assert!(correlator.correlate(event("pod-0"), start), "what is known may repeat itself");
        assert!(correlator.correlate(event("another"), start + FINISH_TIME));
        assert_eq!(correlator.series.len(), 1);
    }
}
