//! The event aggregator: which series of events exist, how often each occurred, and what may be sent now.
//! Pure: the time is a parameter.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::notice::{Notice, Subject};

/// The shortest time between two updates of one series. A kubelet may repeat a failed ADD every few seconds;
/// each update is a write of the API server, and a person who looks at the events needs no more.
const PAUSE: Duration = Duration::from_secs(30);
/// A series without a notice for this long has ended, and the next notice begins a new event. Longer than a
/// kubelet's longest pause between two attempts (5 min), which would otherwise make each attempt an event of
/// its own. The API server keeps events for an hour by default, so the event of a running series still
/// exists.
const END: Duration = Duration::from_secs(900);
/// The largest number of series; it bounds the memory. More than the pods of a node. In a larger outage the
/// first ones say enough.
const SUBJECTS: usize = 512;
/// A token bucket: so many events may be sent at once, and one more after each [`REFILL`]. It protects the
/// API server if all pods of all nodes fail at the same time: 1,000 nodes then send 500 events per second at
/// most, after the burst. A tenth of the rate would report the last of 100 pods half an hour later.
const BURST: u32 = 20;
const REFILL: Duration = Duration::from_secs(2);

/// The series that have not ended.
#[derive(Debug)]
pub(super) struct Aggregator {
    series: HashMap<Subject, Series>,
    /// Events that may be sent now, as of `counted`.
    tokens: u32,
    counted: Instant,
}

#[derive(Debug)]
struct Series {
    /// The text of the first notice.
    note: String,
    heard: u32,
    told: u32,
    last_heard: Instant,
    last_told: Option<Instant>,
    /// The name of the event whose count grows.
    event: Option<String>,
}

/// An event to send now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) subject: Subject,
    pub(super) note: String,
    /// How often it occurred in this series.
    pub(super) count: u32,
    /// The event to update; `None`: create a new one.
    pub(super) event: Option<String>,
}

impl Aggregator {
    pub(super) fn new(now: Instant) -> Self {
        Self { series: HashMap::new(), tokens: BURST, counted: now }
    }

    /// Counts a notice. Returns false if there is no room for another series.
    pub(super) fn hear(&mut self, notice: Notice, now: Instant) -> bool {
        self.series.retain(|_, series| now.duration_since(series.last_heard) < END);
        let Notice { subject, note } = notice;
        if self.series.len() >= SUBJECTS && !self.series.contains_key(&subject) {
            return false;
        }
        let new = || Series { note, heard: 0, told: 0, last_heard: now, last_told: None, event: None };
        let series = self.series.entry(subject).or_insert_with(new);
        series.heard += 1;
        series.last_heard = now;
        true
    }

    /// The next event to send. It counts as sent, even if the request fails later.
    pub(super) fn due(&mut self, now: Instant) -> Option<Due> {
        self.refill(now);
        if self.tokens == 0 {
            return None;
        }
        // The longest wait first, so that no series starves while tokens are rare.
        let (subject, series) = self
            .series
            .iter_mut()
            .filter(|(_, series)| series.due_at().is_some_and(|due| due <= now))
            .min_by_key(|(_, series)| series.due_at())?;
        self.tokens -= 1;
        series.told = series.heard;
        series.last_told = Some(now);
        Some(Due {
            subject: subject.clone(),
            note: series.note.clone(),
            count: series.heard,
            event: series.event.clone(),
        })
    }

    /// When there may be an event to send, if no notice arrives until then.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.series.values().filter_map(Series::due_at).min()?;
        Some(if self.tokens == 0 { due.max(self.counted + REFILL) } else { due })
    }

    /// Remembers the name of the event that the API server has for `subject`; `None`: it has none any more.
    pub(super) fn told(&mut self, subject: &Subject, event: Option<String>) {
        if let Some(series) = self.series.get_mut(subject) {
            series.event = event;
        }
    }

    fn refill(&mut self, now: Instant) {
        while self.tokens < BURST && now.duration_since(self.counted) >= REFILL {
            self.tokens += 1;
            self.counted += REFILL;
        }
        if self.tokens == BURST {
            self.counted = now;
        }
    }
}

impl Series {
    fn due_at(&self) -> Option<Instant> {
        (self.heard > self.told).then(|| self.last_told.map_or(self.last_heard, |told| told + PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::EventReason, *};
    use crate::object::Object;

    fn notice(pod: &str) -> Notice {
        let pod = contract::names::PodKey::new("shop", pod).unwrap();
        Notice::new(Object::Pod(pod), "u1", EventReason::new("AddNetwork", "NetworkFailed"), "no")
    }

    #[test]
    fn repetitions_are_one_series_that_grows_slowly() {
        let start = Instant::now();
        let mut aggregator = Aggregator::new(start);
        assert!(aggregator.hear(notice("a"), start));
        let first = aggregator.due(start).unwrap();
        assert_eq!((first.count, &first.event), (1, &None));
        aggregator.told(&first.subject, Some("a.1".to_owned()));

        for second in 1..20 {
            assert!(aggregator.hear(notice("a"), start + Duration::from_secs(second)));
            assert_eq!(aggregator.due(start + Duration::from_secs(second)), None);
        }
        assert_eq!(aggregator.next_due(), Some(start + PAUSE));
        let second = aggregator.due(start + PAUSE).unwrap();
        assert_eq!((second.count, second.event.as_deref()), (20, Some("a.1")));
        assert_eq!((aggregator.due(start + 10 * PAUSE), aggregator.next_due()), (None, None));
    }

    #[test]
    fn a_storm_of_pods_is_told_of_slowly() {
        let start = Instant::now();
        let mut aggregator = Aggregator::new(start);
        (0..100).for_each(|n| assert!(aggregator.hear(notice(&format!("pod-{n}")), start)));
        let told = |aggregator: &mut Aggregator, now| std::iter::from_fn(|| aggregator.due(now)).count();
        assert_eq!(told(&mut aggregator, start), 20);
        assert_eq!(aggregator.next_due(), Some(start + REFILL));
        assert_eq!(told(&mut aggregator, start + 10 * REFILL), 10);
        assert_eq!(told(&mut aggregator, start + 1000 * REFILL), 20, "what was not needed does not add up");
    }

    #[test]
    fn series_end_and_room_is_bounded() {
        let start = Instant::now();
        let mut aggregator = Aggregator::new(start);
        let taken =
            (0..SUBJECTS + 10).filter(|n| aggregator.hear(notice(&format!("pod-{n}")), start)).count();
        assert_eq!(taken, SUBJECTS);
        assert!(aggregator.hear(notice("pod-0"), start), "what is known may repeat itself");
        assert!(aggregator.hear(notice("another"), start + END));
        assert_eq!(aggregator.series.len(), 1);
    }
}
