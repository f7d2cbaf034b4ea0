//! Whose annotations are written next, how many at once, and when after a failure. Pure: the time comes from outside.
//!
//! What an answer says of one object is that object's alone: it waits, and others go on. Only two things slow down all: an API server
//! that says it has too much to do, and one that is silent although nothing else was answered meanwhile.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use contract::backoff::Backoff;
use kubeapi::object::Object;
use tokio::time::Instant;

use super::{Annotations, patch::Outcome};

/// Requests under way, at most. More do not make an API server faster.
const MOST: usize = 96;
/// Of the requests under way, one in so many may be a repetition: what takes long and fails again (a webhook that does not answer takes
/// 10 s) leaves room for the others.
const REPETITIONS: usize = 6;
/// So many different objects refused, and nothing written meanwhile: it is not these objects that are at fault. More than the pods that one
/// broken owner usually starts at once, few enough to spare an API server whose database is away.
const MANY: usize = 16;

/// What is to be written.
#[derive(Debug)]
pub(super) struct Queue {
    objects: HashMap<Object, Entry>,
    /// Those that may be written, in the order of their wishes.
    ready: VecDeque<Object>,
    /// Those that failed.
    later: BinaryHeap<Reverse<(Instant, Object)>>,
    under_way: usize,
    /// Of those, the repetitions.
    repeated: usize,
    /// How many may be under way: halved when the API server has too much to do, one more for each answer.
    most: usize,
    /// Nothing is begun before.
    pause: Option<Instant>,
    backoff: Backoff,
    /// The API server answered, whatever it said.
    heard: Option<Instant>,
    /// It is silent.
    away: bool,
    /// Objects that were refused since something was written.
    refused: HashSet<Object>,
    /// Nothing is repeated before.
    rest: Option<Instant>,
    rests: Backoff,
}

#[derive(Debug)]
struct Entry {
    wish: Arc<Annotations>,
    /// When the request under way was begun, if one is.
    begun: Option<Instant>,
    /// It is a repetition.
    repeated: bool,
    backoff: Backoff,
    /// The API server had too much to do when this was asked last.
    put_off: bool,
}

/// How it goes altogether.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Who fails does so alone.
    Well,
    /// One object after the other is refused.
    Refusing,
    /// The API server does not answer.
    Away,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            objects: HashMap::new(),
            ready: VecDeque::new(),
            later: BinaryHeap::new(),
            under_way: 0,
            repeated: 0,
            most: MOST,
            pause: None,
            backoff: Backoff::default(),
            heard: None,
            away: false,
            refused: HashSet::new(),
            rest: None,
            rests: Backoff::default(),
        }
    }

    /// Objects that are not as they should be, as far as is known.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn standing(&self) -> Standing {
        match (self.away, self.refused.len() >= MANY) {
            (true, _) => Standing::Away,
            (false, true) => Standing::Refusing,
            (false, false) => Standing::Well,
        }
    }

    /// The newest wish of an object counts.
    pub(super) fn wish(&mut self, wish: Annotations) {
        let object = wish.object.clone();
        let wish = Arc::new(wish);
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.wish = wish;
            return;
        }
        let entry = Entry { wish, begun: None, repeated: false, backoff: Backoff::default(), put_off: false };
        self.objects.insert(object.clone(), entry);
        // While the API server is silent one asks for all, and better not always the same one.
        if self.away {
            self.ready.push_front(object);
        } else {
            self.ready.push_back(object);
        }
    }

    /// What to write now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Arc<Annotations>> {
        if self.under_way >= self.most || self.pause.is_some_and(|pause| now < pause) {
            return None;
        }
        self.pause = None;
        let repeat = self.repetition_at().is_some_and(|at| at <= now);
        let object = match repeat {
            true => self.later.pop().map(|Reverse((_, object))| object),
            false => self.ready.pop_front(),
        }?;
        let entry = self.objects.get_mut(&object)?;
        (entry.begun, entry.repeated) = (Some(now), repeat);
        self.under_way += 1;
        self.repeated += usize::from(repeat);
        Some(Arc::clone(&entry.wish))
    }

    /// When one that failed may be written again, if not too many such are under way.
    fn repetition_at(&self) -> Option<Instant> {
        let share = self.most / REPETITIONS;
        let share = if self.ready.is_empty() { share.max(1) } else { share };
        let Reverse((at, _)) = self.later.peek().filter(|_| self.repeated < share)?;
        Some(self.rest.map_or(*at, |rest| rest.max(*at)))
    }

    /// When there is something to write, if nothing happens until then.
    pub(super) fn next_at(&self) -> Option<Instant> {
        if self.under_way >= self.most {
            return None;
        }
        if !self.ready.is_empty() {
            return self.pause;
        }
        self.repetition_at().map(|at| self.pause.map_or(at, |pause| pause.max(at)))
    }

    /// What came of writing `written`.
    pub(super) fn answered(&mut self, written: &Arc<Annotations>, outcome: &Outcome, now: Instant) {
        self.under_way -= 1;
        let object = &written.object;
        let Some(entry) = self.objects.get_mut(object) else { return };
        self.repeated -= usize::from(std::mem::take(&mut entry.repeated));
        let begun = entry.begun.take();
        let newest = Arc::ptr_eq(&entry.wish, written);
        match outcome {
            Outcome::Written | Outcome::Gone | Outcome::Outdated => {
                entry.backoff.reset();
                if newest {
                    self.objects.remove(object);
                } else {
                    self.ready.push_back(object.clone());
                }
                self.refused.clear();
                self.rest = None;
                self.rests.reset();
                self.hear(now);
            }
            Outcome::Overloaded(trouble) => {
                // Its turn was now; but one of which it is always said keeps nobody else waiting.
                if std::mem::replace(&mut entry.put_off, true) {
                    self.ready.push_back(object.clone());
                } else {
                    self.ready.push_front(object.clone());
                }
                (self.heard, self.away) = (Some(now), false);
                self.most = (self.most / 2).max(1);
                self.pause_until(now, trouble.retry_after);
            }
            // Of the API server it says something only if nothing else was answered since.
            Outcome::Silent(_) if begun.is_none_or(|begun| self.heard.is_none_or(|heard| heard <= begun)) => {
                self.ready.push_back(object.clone());
                self.away = true;
                // One finds out when it is there again.
                self.most = 1;
                self.pause_until(now, None);
            }
            Outcome::Silent(trouble) => self.fail(object, newest, trouble.retry_after, now),
            Outcome::Refused(trouble) => {
                self.fail(object, newest, trouble.retry_after, now);
                self.refused.insert(object.clone());
                if self.refused.len() < MANY {
                    return self.hear(now);
                }
                (self.heard, self.away) = (Some(now), false);
                self.backoff.reset();
                // It answers, so that others may try; those that failed do so one after the other.
                self.most = (self.most / 2).max(1);
                self.rest = Some(now + self.rests.next(trouble.retry_after));
            }
        }
    }

    /// The API server answers.
    fn hear(&mut self, now: Instant) {
        (self.heard, self.away) = (Some(now), false);
        self.most = (self.most + 1).min(MOST);
        self.backoff.reset();
    }

    /// It waits alone; if another is wished by now, that has not failed yet.
    fn fail(&mut self, object: &Object, newest: bool, asked: Option<Duration>, now: Instant) {
        let Some(entry) = self.objects.get_mut(object) else { return };
        if newest {
            self.later.push(Reverse((now + entry.backoff.next(asked), object.clone())));
        } else {
            entry.backoff.reset();
            self.ready.push_back(object.clone());
        }
    }

    fn pause_until(&mut self, now: Instant, asked: Option<Duration>) {
        // Of those that were under way together, the first one decides.
        if self.pause.is_none_or(|pause| asked.is_some_and(|asked| pause < now + asked)) {
            self.pause = Some(now + self.backoff.next(asked));
        }
    }
}

#[cfg(test)]
mod tests;
