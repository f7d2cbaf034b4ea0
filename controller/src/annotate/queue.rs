//! The work queue of the patcher: which object is next, how many requests are in flight, and when a
//! failed one is retried. Pure: the caller passes the time.
//!
//! A failure delays only the object that it concerns. Three things slow down all objects: an API
//! server that answers 429, one that answers nothing at all, and one that refuses one object after
//! the other.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use contract::backoff::Backoff;
use kubeapi::object::Object;
use tokio::time::Instant;

use crate::{
    annotate::{Wish, patch::Outcome},
    few::{KEPT, give_back},
};

/// Most requests in flight. More do not make an API server faster: with etcd beside it, it takes
/// about 1,400 annotation patches a second. With a tenth, the time that each request is on its way
/// would limit the rate.
const MOST: usize = 96;
/// One in this many of the requests in flight may be a retry. A retry can take long and fail again:
/// a webhook that does not answer takes 10 s. Without a limit, retries would hold every slot and
/// new pods would wait for them.
const REPETITIONS: usize = 6;
/// After refusals of this many different objects, with no write in between, the API server is at
/// fault and not the objects. More than the pods that one broken workload usually starts at once;
/// few enough to spare an API server that has lost its database.
const MANY: usize = 16;

/// The queue: see the module.
#[derive(Debug)]
pub(super) struct Queue<W> {
    objects: HashMap<Object, QueuedObject<W>>,
    /// Objects that may be written now, in the order of their wishes.
    ready: VecDeque<Object>,
    /// Objects that failed, by the time of their retry.
    later: BinaryHeap<Reverse<(Instant, Object)>>,
    under_way: usize,
    /// Retries among the requests in flight.
    repeated: usize,
    /// Most requests in flight at present: halved by 429 and by refusals in a row, 1 while the API
    /// server is silent, one more for each other answer.
    most: usize,
    /// No request is sent before this time.
    pause: Option<Instant>,
    backoff: Backoff,
    /// Time of the API server's last answer, whatever it was.
    heard: Option<Instant>,
    /// The API server does not answer.
    away: bool,
    /// Objects that were refused since the last successful write.
    refused: HashSet<Object>,
    /// No retry is sent before this time.
    rest: Option<Instant>,
    rests: Backoff,
}

#[derive(Debug)]
struct QueuedObject<W> {
    wish: Arc<W>,
    /// None before the first request. At the start thousands of objects wait for theirs.
    tries: Option<Box<Tries>>,
}

/// The requests for an object.
#[derive(Debug, Default)]
struct Tries {
    /// When the request in flight was sent; none if there is none.
    begun: Option<Instant>,
    /// The request in flight is a retry.
    repeated: bool,
    backoff: Backoff,
    /// The API server has answered 429 for this object before.
    put_off: bool,
}

/// State of the queue as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Failures, if any, concern single objects.
    Well,
    /// The API server refuses one object after the other.
    Refusing,
    /// The API server does not answer.
    Away,
}

impl<W: Wish> Queue<W> {
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

    /// Objects whose annotations are not written yet, including those in flight.
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

    /// Queues a wish, which replaces an earlier one of the same object.
    pub(super) fn wish(&mut self, wish: W) {
        let object = wish.object();
        let wish = Arc::new(wish);
        if let Some(entry) = self.objects.get_mut(&object) {
            // With a request in flight, `answered` sees that its wish is no longer the newest.
            entry.wish = wish;
            return;
        }
        self.objects.insert(object.clone(), QueuedObject { wish, tries: None });
        // An API server that does not answer is probed by one request at a time. Newer objects go
        // first, so that the probe is not always the same object, which may be the cause.
        if self.away {
            self.ready.push_front(object);
        } else {
            self.ready.push_back(object);
        }
    }

    /// The next wish to send; none if no request may be sent now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Arc<W>> {
        if self.under_way >= self.most || self.pause.is_some_and(|pause| now < pause) {
            return None;
        }
        self.pause = None;
        // A retry that is due goes before new objects: `REPETITIONS` limits its share.
        let repeat = self.repetition_at().is_some_and(|at| at <= now);
        let object = match repeat {
            true => self.later.pop().map(|Reverse((_, object))| object),
            false => self.ready.pop_front(),
        }?;
        if self.ready.is_empty() {
            self.ready.shrink_to(KEPT);
        }
        let entry = self.objects.get_mut(&object)?;
        let tries = entry.tries.get_or_insert_default();
        (tries.begun, tries.repeated) = (Some(now), repeat);
        self.under_way += 1;
        self.repeated += usize::from(repeat);
        Some(Arc::clone(&entry.wish))
    }

    /// When the next retry may be sent; none if too many are in flight.
    fn repetition_at(&self) -> Option<Instant> {
        let share = self.most / REPETITIONS;
        // With few requests allowed the share rounds to none. One retry is allowed then, unless new
        // objects wait.
        let share = if self.ready.is_empty() { share.max(1) } else { share };
        let Reverse((at, _)) = self.later.peek().filter(|_| self.repeated < share)?;
        Some(self.rest.map_or(*at, |rest| rest.max(*at)))
    }

    /// When [`next`](Self::next) has something to send, unless a wish or an answer comes first. To
    /// be called after `next` has returned none.
    pub(super) fn next_at(&self) -> Option<Instant> {
        if self.under_way >= self.most {
            return None;
        }
        if !self.ready.is_empty() {
            // `next` left objects that are ready, so a pause holds them back.
            return self.pause;
        }
        self.repetition_at().map(|at| self.pause.map_or(at, |pause| pause.max(at)))
    }

    /// Takes the outcome of the request for `written`.
    pub(super) fn answered(&mut self, written: &Arc<W>, outcome: &Outcome, now: Instant) {
        self.under_way -= 1;
        let object = &written.object();
        let Some(entry) = self.objects.get_mut(object) else { return };
        let tries = entry.tries.get_or_insert_default();
        self.repeated -= usize::from(std::mem::take(&mut tries.repeated));
        let begun = tries.begun.take();
        let newest = Arc::ptr_eq(&entry.wish, written);
        match outcome {
            Outcome::Written | Outcome::Gone | Outcome::Outdated | Outcome::Unwritable(_) => {
                tries.backoff.reset();
                if newest {
                    self.objects.remove(object);
                    give_back(&mut self.objects);
                } else {
                    self.ready.push_back(object.clone());
                }
                self.refused.clear();
                self.rest = None;
                self.rests.reset();
                self.hear(now);
            }
            Outcome::Overloaded(trouble) => {
                // It keeps its place in front, but only once: an object that always gets 429 must
                // not block the others.
                if std::mem::replace(&mut tries.put_off, true) {
                    self.ready.push_back(object.clone());
                } else {
                    self.ready.push_front(object.clone());
                }
                (self.heard, self.away) = (Some(now), false);
                self.most = (self.most / 2).max(1);
                self.pause_until(now, trouble.retry_after);
            }
            // Silence concerns the API server only if it has answered nothing since this request
            // was sent. Otherwise it concerns this object: its webhook may be slow.
            Outcome::Silent(_)
                if begun.is_none_or(|begun| self.heard.is_none_or(|heard| heard <= begun)) =>
            {
                self.ready.push_back(object.clone());
                self.away = true;
                // One request at a time probes for the API server's return.
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
                // The API server answers, so new objects are still tried at once. Retries slow down
                // together: otherwise each of thousands of objects would retry every few seconds.
                self.most = (self.most / 2).max(1);
                self.rest = Some(now + self.rests.next(trouble.retry_after));
            }
        }
    }

    /// The API server has answered.
    fn hear(&mut self, now: Instant) {
        (self.heard, self.away) = (Some(now), false);
        self.most = (self.most + 1).min(MOST);
        self.backoff.reset();
    }

    /// The object backs off alone. A newer wish has not failed yet and is ready at once.
    fn fail(&mut self, object: &Object, newest: bool, asked: Option<Duration>, now: Instant) {
        let Some(entry) = self.objects.get_mut(object) else { return };
        let tries = entry.tries.get_or_insert_default();
        if newest {
            self.later.push(Reverse((now + tries.backoff.next(asked), object.clone())));
        } else {
            tries.backoff.reset();
            self.ready.push_back(object.clone());
        }
    }

    fn pause_until(&mut self, now: Instant, asked: Option<Duration>) {
        // Requests that were in flight together fail together. The first one decides, or else each
        // of them would lengthen the backoff; only an answer that asks for a later time counts as
        // well.
        if self.pause.is_none_or(|pause| asked.is_some_and(|asked| pause < now + asked)) {
            self.pause = Some(now + self.backoff.next(asked));
        }
    }
}

#[cfg(test)]
mod tests;
