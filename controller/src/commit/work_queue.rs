//! The work queue of keys: dirty ones, suspects, those that wait for a row, and failed ones with the time of
//! their retry.
//!
//! A key is queued in at most one of these places; it may become dirty again while its transaction is in
//! flight. Knows nothing of rows or databases.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    key::{Key, Scope},
    rows::RowName,
};

/// The pause after the first refusal; it doubles with each further one. Long beside a transaction
/// (ovsdb-server takes 10,000 of one row a second), short for a person who has just removed the obstacle.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// An obstacle may go away unseen, so retries never end. At this pause, a thousand refused keys cost some
/// twenty transactions a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why a key is dirty. Of several causes the last one in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Its rows changed in the database, or a transaction wrote them.
    Rows,
    /// All keys are compared, at the start or after a reconnection. No change, so it does not count in
    /// `settle_seconds`.
    Everything,
    /// Its desired rows may have changed.
    Store,
}

/// A dirty key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) key: Key,
    pub(crate) scope: Scope,
    pub(crate) cause: Cause,
}

impl Item {
    pub(crate) fn whole(key: Key, cause: Cause) -> Self {
        Self { key, scope: Scope::Whole, cause }
    }
}

/// The keys of the next transaction.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Dirty keys, one after the other by [`WorkQueue::pop`].
    Dirty,
    /// These keys and no others in the same transaction: at least one of them is at fault.
    Suspects(Vec<Key>),
}

/// The queue: see the module.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    /// Two lanes: keys that changed, then keys that are only compared. In each lane, the rows that others
    /// refer to come first: the cluster, nodes, pods and services. May hold keys that are no longer dirty.
    queues: [[VecDeque<Key>; 3]; 2],
    dirty: HashMap<Key, (Scope, Cause)>,
    suspects: VecDeque<Vec<Key>>,
    suspected: HashSet<Key>,
    was_suspects: bool,
    waiting: HashMap<Key, Vec<RowName>>,
    waiting_for: HashMap<RowName, HashSet<Key>>,
    failing: HashMap<Key, Failure>,
    retries: BTreeSet<(Instant, Key)>,
    /// Since when the rows of a key differ from the store, for `settle_seconds`.
    since: HashMap<Key, Instant>,
}

#[derive(Debug, Default)]
struct Failure {
    times: u32,
    /// None if nothing was refused: the key rests because another writer contests its rows.
    error: Option<String>,
    retry: Option<Instant>,
}

impl WorkQueue {
    /// Marks a key as dirty. A key that failed before is retried without delay.
    ///
    /// Suspects, failed keys and those that waited are compared as a whole: nothing is known of their rows.
    pub(crate) fn mark(&mut self, item: Item, now: Instant) {
        let Item { key, mut scope, cause } = item;
        if cause == Cause::Store {
            self.since.entry(key.clone()).or_insert(now);
        }
        // It is compared again; if its rows are still missing, it waits again.
        if self.stop_waiting(&key) {
            scope = Scope::Whole;
        }
        if self.suspected.contains(&key) {
            return;
        }
        if let Some(failure) = self.failing.get_mut(&key) {
            // The next change of a contested row is not answered before the rest is over. A change of the
            // store is: its rows are new.
            if failure.error.is_none() && cause == Cause::Rows {
                self.dirty.remove(&key);
                return;
            }
            // It goes alone, so that it cannot fail the others again.
            if let Some(retry) = failure.retry.take() {
                self.retries.remove(&(retry, key.clone()));
            }
            self.dirty.remove(&key);
            self.suspect(vec![key]);
            return;
        }
        let lane = usize::from(cause == Cause::Everything);
        match self.dirty.get_mut(&key) {
            Some((dirty, because)) => {
                dirty.extend(scope);
                // It waited in the second lane and has changed now. Its old entry is skipped by `pop`.
                let overtakes = *because == Cause::Everything && cause == Cause::Store;
                *because = cause.max(*because);
                if overtakes {
                    self.queues[lane][rank(&key)].push_back(key);
                }
            }
            None => {
                self.queues[lane][rank(&key)].push_back(key.clone());
                self.dirty.insert(key, (scope, cause));
            }
        }
    }

    /// Queues keys of which at least one is at fault, to be tried apart from the others.
    pub(crate) fn suspect(&mut self, keys: Vec<Key>) {
        for key in &keys {
            self.dirty.remove(key);
            self.stop_waiting(key);
            self.suspected.insert(key.clone());
        }
        self.suspects.push_back(keys);
    }

    /// What is next; none if there is nothing to do. Suspects and dirty keys take turns, so that neither
    /// holds up the other.
    pub(crate) fn turn(&mut self) -> Option<Turn> {
        if self.suspects.is_empty() && self.dirty.is_empty() {
            return None;
        }
        // Alternates while there are both.
        self.was_suspects = !self.suspects.is_empty() && (self.dirty.is_empty() || !self.was_suspects);
        if !self.was_suspects {
            return Some(Turn::Dirty);
        }
        let keys = self.suspects.pop_front()?;
        for key in &keys {
            self.suspected.remove(key);
        }
        Some(Turn::Suspects(keys))
    }

    /// The next dirty key.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.queues.iter_mut().flatten().find_map(|queue| {
            // Skips entries of keys that are no longer dirty.
            std::iter::from_fn(|| queue.pop_front()).find_map(|key| {
                let (scope, cause) = self.dirty.remove(&key)?;
                Some(Item { key, scope, cause })
            })
        })
    }

    /// The key needs these rows, which do not exist: it waits for one to appear.
    pub(crate) fn wait(&mut self, key: Key, names: Vec<RowName>) {
        for name in &names {
            self.waiting_for.entry(name.clone()).or_default().insert(key.clone());
        }
        self.waiting.insert(key, names);
    }

    /// A row of that name appeared: marks the keys that wait for it.
    pub(crate) fn appeared(&mut self, name: &RowName, now: Instant) {
        for key in self.waiting_for.get(name).cloned().unwrap_or_default() {
            self.mark(Item::whole(key, Cause::Store), now);
        }
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting_for.is_empty()
    }

    /// The database refused the key's rows. Returns whether the error differs from the last one, and the
    /// pause before the retry.
    pub(crate) fn fail(&mut self, key: Key, error: String, now: Instant) -> (bool, Duration) {
        // Counts whatever the error is: a new error does not shorten the pause.
        let failure = self.failing.entry(key.clone()).or_default();
        let pause = pause(failure.times);
        failure.times = failure.times.saturating_add(1);
        let another = failure.error.as_ref() != Some(&error);
        failure.error = Some(error);
        self.retry_at(key, now + pause);
        (another, pause)
    }

    /// Leaves the key alone until that time, whatever happens to its rows.
    pub(crate) fn rest(&mut self, key: Key, until: Instant) {
        self.failing.entry(key.clone()).or_default();
        self.retry_at(key, until);
    }

    fn retry_at(&mut self, key: Key, at: Instant) {
        self.dirty.remove(&key);
        if let Some(failure) = self.failing.get_mut(&key)
            && let Some(before) = failure.retry.replace(at)
        {
            self.retries.remove(&(before, key.clone()));
        }
        self.retries.insert((at, key));
    }

    /// The key's rows were committed, or were right already. Returns whether they had been refused before.
    pub(crate) fn succeeded(&mut self, key: &Key) -> bool {
        let Some(failure) = self.failing.remove(key) else { return false };
        if let Some(retry) = failure.retry {
            self.retries.remove(&(retry, key.clone()));
        }
        failure.error.is_some()
    }

    /// The key's rows are right. Returns since when they were not.
    pub(crate) fn settled(&mut self, key: &Key) -> Option<Instant> {
        self.since.remove(key)
    }

    /// Queues the keys whose pause is over.
    pub(crate) fn retry_due(&mut self, now: Instant) {
        while self.retries.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.retries.pop_first() else { return };
            if let Some(failure) = self.failing.get_mut(&key) {
                failure.retry = None;
            }
            // Alone: whatever else is in the transaction must not fail with it.
            if !self.suspected.contains(&key) {
                self.suspect(vec![key]);
            }
        }
    }

    /// When [`retry_due`](Self::retry_due) has something to do.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Keys that could go into a transaction now.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len() + self.suspected.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn failing(&self) -> usize {
        self.failing.len()
    }

    /// Returns whether the key waited.
    fn stop_waiting(&mut self, key: &Key) -> bool {
        let Some(names) = self.waiting.remove(key) else { return false };
        for name in names {
            if let Some(keys) = self.waiting_for.get_mut(&name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.waiting_for.remove(&name);
                }
            }
        }
        true
    }
}

/// Rows of pods and services refer to nodes' rows, and nodes' rows to the cluster's. Pods and services are
/// equals: a burst of one kind does not hold up the other.
fn rank(key: &Key) -> usize {
    match key {
        Key::Cluster => 0,
        Key::Node(_) => 1,
        Key::Pod(_) | Key::Service(_) => 2,
    }
}

/// Half a second, doubled each time, a minute at most. Shortened at random by up to half, so that keys that
/// failed together are not retried together.
pub(crate) fn pause(times: u32) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(times.min(16))).min(LONGEST_PAUSE);
    // The hasher's keys are random: no generator of random numbers is needed.
    let thousandths = u32::try_from(RandomState::new().hash_one(()) % 1001).unwrap_or_default();
    full / 2 + full / 2 * thousandths / 1000
}

#[cfg(test)]
mod tests;
