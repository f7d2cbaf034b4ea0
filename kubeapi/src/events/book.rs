//! What was told of which subject, how often, and what may be told now. Pure: the time comes from outside.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::notice::{Notice, Subject};

/// A series grows no faster than this.
const PAUSE: Duration = Duration::from_secs(30);
/// A series that nothing was heard of for this long is over. Longer than a kubelet's longest pause between two attempts (5 min).
const END: Duration = Duration::from_secs(900);
/// Subjects at once.
const SUBJECTS: usize = 512;
/// Events that may be told at once, and how long it takes until one more may.
const BURST: u32 = 20;
const REFILL: Duration = Duration::from_secs(2);

/// The series that are going on.
#[derive(Debug)]
pub(super) struct Book {
    series: HashMap<Subject, Series>,
    /// How many may be told, as of when.
    tokens: u32,
    counted: Instant,
}

#[derive(Debug)]
struct Series {
    /// Of the first notice.
    note: String,
    heard: u32,
    told: u32,
    last_heard: Instant,
    last_told: Option<Instant>,
    /// Name of the event that grows.
    event: Option<String>,
}

/// Something to tell now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) subject: Subject,
    pub(super) note: String,
    /// How often it happened.
    pub(super) count: u32,
    /// The event that is to grow; none: a new one.
    pub(super) event: Option<String>,
}

impl Book {
    pub(super) fn new(now: Instant) -> Self {
        Self { series: HashMap::new(), tokens: BURST, counted: now }
    }

    /// Returns whether there was room for it.
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

    /// What to tell now; counts as told, whatever comes of it.
    pub(super) fn due(&mut self, now: Instant) -> Option<Due> {
        self.refill(now);
        if self.tokens == 0 {
            return None;
        }
        // The one that waits longest.
        let (subject, series) = self
            .series
            .iter_mut()
            .filter(|(_, series)| series.due_at().is_some_and(|due| due <= now))
            .min_by_key(|(_, series)| series.due_at())?;
        self.tokens -= 1;
        series.told = series.heard;
        series.last_told = Some(now);
        Some(Due { subject: subject.clone(), note: series.note.clone(), count: series.heard, event: series.event.clone() })
    }

    /// When there may be something to tell, if nothing is heard until then.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.series.values().filter_map(Series::due_at).min()?;
        Some(if self.tokens == 0 { due.max(self.counted + REFILL) } else { due })
    }

    /// The API server has an event of this name for `subject`; none: it has none any more.
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
    use super::{super::About, *};
    use crate::object::Object;

    fn notice(pod: &str) -> Notice {
        let pod = contract::names::PodKey::new("shop", pod).unwrap();
        Notice::new(Object::Pod(pod), "u1", About::new("AddNetwork", "NetworkFailed"), "no")
    }

    #[test]
    fn repetitions_are_one_series_that_grows_slowly() {
        let start = Instant::now();
        let mut book = Book::new(start);
        assert!(book.hear(notice("a"), start));
        let first = book.due(start).unwrap();
        assert_eq!((first.count, &first.event), (1, &None));
        book.told(&first.subject, Some("a.1".to_owned()));

        for second in 1..20 {
            assert!(book.hear(notice("a"), start + Duration::from_secs(second)));
            assert_eq!(book.due(start + Duration::from_secs(second)), None);
        }
        assert_eq!(book.next_due(), Some(start + PAUSE));
        let second = book.due(start + PAUSE).unwrap();
        assert_eq!((second.count, second.event.as_deref()), (20, Some("a.1")));
        assert_eq!((book.due(start + 10 * PAUSE), book.next_due()), (None, None));
    }

    #[test]
    fn a_storm_of_pods_is_told_of_slowly() {
        let start = Instant::now();
        let mut book = Book::new(start);
        (0..100).for_each(|n| assert!(book.hear(notice(&format!("pod-{n}")), start)));
        let told = |book: &mut Book, now| std::iter::from_fn(|| book.due(now)).count();
        assert_eq!(told(&mut book, start), 20);
        assert_eq!(book.next_due(), Some(start + REFILL));
        assert_eq!(told(&mut book, start + 10 * REFILL), 10);
        assert_eq!(told(&mut book, start + 1000 * REFILL), 20, "what was not needed does not add up");
    }

    #[test]
    fn series_end_and_room_is_bounded() {
        let start = Instant::now();
        let mut book = Book::new(start);
        let taken = (0..SUBJECTS + 10).filter(|n| book.hear(notice(&format!("pod-{n}")), start)).count();
        assert_eq!(taken, SUBJECTS);
        assert!(book.hear(notice("pod-0"), start), "what is known may repeat itself");
        assert!(book.hear(notice("another"), start + END));
        assert_eq!(book.series.len(), 1);
    }
}
