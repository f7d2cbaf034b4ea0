//! Whose annotations are written next, how many at once, and when after a failure. Pure: the time comes from outside.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

use super::{Annotations, patch::Outcome};
use crate::{backoff::Backoff, object::Object};

/// Requests under way, at most. More do not make an API server faster.
const MOST: usize = 96;

/// What is to be written.
#[derive(Debug)]
pub(super) struct Queue {
    objects: HashMap<Object, Entry>,
    /// Those that may be written, in the order of their wishes.
    ready: VecDeque<Object>,
    /// Those that were refused.
    later: BinaryHeap<Reverse<(Instant, Object)>>,
    under_way: usize,
    /// How many may be under way: halved when the API server has too much to do, one more for each answer.
    most: usize,
    /// Nothing is begun before.
    pause: Option<Instant>,
    backoff: Backoff,
}

#[derive(Debug)]
struct Entry {
    wish: Arc<Annotations>,
    under_way: bool,
    backoff: Backoff,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            objects: HashMap::new(),
            ready: VecDeque::new(),
            later: BinaryHeap::new(),
            under_way: 0,
            most: MOST,
            pause: None,
            backoff: Backoff::default(),
        }
    }

    /// Objects that are not as they should be, as far as is known.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The newest wish of an object counts.
    pub(super) fn wish(&mut self, wish: Annotations) {
        let object = wish.object.clone();
        let wish = Arc::new(wish);
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.wish = wish;
        } else {
            self.objects.insert(object.clone(), Entry { wish, under_way: false, backoff: Backoff::default() });
            self.ready.push_back(object);
        }
    }

    /// What to write now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Arc<Annotations>> {
        if self.under_way >= self.most || self.pause.is_some_and(|pause| now < pause) {
            return None;
        }
        self.pause = None;
        while let Some(Reverse((at, _))) = self.later.peek()
            && *at <= now
        {
            self.ready.extend(self.later.pop().map(|Reverse((_, object))| object));
        }
        let object = self.ready.pop_front()?;
        let entry = self.objects.get_mut(&object)?;
        entry.under_way = true;
        self.under_way += 1;
        Some(Arc::clone(&entry.wish))
    }

    /// When there is something to write, if nothing happens until then.
    pub(super) fn next_at(&self) -> Option<Instant> {
        if self.under_way >= self.most {
            return None;
        }
        match (self.ready.is_empty(), self.later.peek()) {
            (false, _) => self.pause,
            (true, Some(Reverse((at, _)))) => Some(self.pause.map_or(*at, |pause| pause.max(*at))),
            (true, None) => None,
        }
    }

    /// What came of writing `written`.
    pub(super) fn answered(&mut self, written: &Arc<Annotations>, outcome: &Outcome, now: Instant) {
        self.under_way -= 1;
        match outcome {
            Outcome::Written | Outcome::Gone | Outcome::Refused(_) => {
                self.most = (self.most + 1).min(MOST);
                self.backoff.reset();
            }
            Outcome::Overloaded(trouble) => {
                self.most = (self.most / 2).max(1);
                self.pause_until(now, trouble.retry_after);
            }
            Outcome::Unavailable(_) => {
                // One finds out when it is there again.
                self.most = 1;
                self.pause_until(now, None);
            }
        }
        let Some(entry) = self.objects.get_mut(&written.object) else { return };
        entry.under_way = false;
        let newest = Arc::ptr_eq(&entry.wish, written);
        match outcome {
            Outcome::Written | Outcome::Gone if newest => {
                self.objects.remove(&written.object);
            }
            Outcome::Refused(trouble) if newest => {
                let at = now + entry.backoff.next(trouble.retry_after);
                self.later.push(Reverse((at, written.object.clone())));
            }
            // Another wish, or the same again as soon as anything is written: it was first before.
            Outcome::Overloaded(_) | Outcome::Unavailable(_) => self.ready.push_front(written.object.clone()),
            Outcome::Written | Outcome::Gone | Outcome::Refused(_) => {
                entry.backoff.reset();
                self.ready.push_back(written.object.clone());
            }
        }
    }

    fn pause_until(&mut self, now: Instant, asked: Option<std::time::Duration>) {
        // Of those that were under way together, the first one decides.
        if self.pause.is_none_or(|pause| asked.is_some_and(|asked| pause < now + asked)) {
            self.pause = Some(now + self.backoff.next(asked));
        }
    }
}

#[cfg(test)]
mod tests;
