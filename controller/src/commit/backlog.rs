//! Which keys have to be looked at, which wait for a row to appear, and which failed and when they are tried again.
//!
//! A key is in at most one of these places, or with the transaction that is under way. Knows nothing of rows or databases.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::Instant;

use crate::{key::Key, rows::RowName};

/// The pause after the first refusal; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why a key is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Its rows changed, or should have.
    Rows,
    /// Everything is looked at, whether it has changed or not: no measure of how long a change takes.
    Everything,
    /// What it should have may be another now.
    Store,
}

/// The keys to look at next.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Whatever is dirty, one after the other by [`Backlog::pop`].
    Dirty,
    /// These, and no others in the same transaction: one of them is at fault.
    Suspects(Vec<Key>),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// What has changed, and then everything else that is looked at. In each, what others need comes first: the cluster, nodes, pods. May
    /// name keys that are not dirty any more.
    queues: [[VecDeque<Key>; 3]; 2],
    dirty: HashMap<Key, Cause>,
    suspects: VecDeque<Vec<Key>>,
    suspected: HashSet<Key>,
    was_suspects: bool,
    waiting: HashMap<Key, Vec<RowName>>,
    waiting_for: HashMap<RowName, HashSet<Key>>,
    failing: HashMap<Key, Failure>,
    retries: BTreeSet<(Instant, Key)>,
    /// Since when the rows of a key are not what the store says.
    since: HashMap<Key, Instant>,
}

#[derive(Debug, Default)]
struct Failure {
    times: u32,
    /// None if nothing was refused: the key has to rest because its rows are contested.
    error: Option<String>,
    retry: Option<Instant>,
}

impl Backlog {
    /// The key is to be looked at, without delay even if it failed before.
    pub(crate) fn mark(&mut self, key: Key, cause: Cause, now: Instant) {
        if cause == Cause::Store {
            self.since.entry(key.clone()).or_insert(now);
        }
        self.stop_waiting(&key);
        if self.suspected.contains(&key) {
            return;
        }
        if let Some(failure) = self.failing.get_mut(&key) {
            // The next change of a contested row is what is not to be answered at once.
            if failure.error.is_none() && cause == Cause::Rows {
                self.dirty.remove(&key);
                return;
            }
            // Alone, not to hold up others again.
            if let Some(retry) = failure.retry.take() {
                self.retries.remove(&(retry, key.clone()));
            }
            self.dirty.remove(&key);
            self.suspect(vec![key]);
            return;
        }
        let before = self.dirty.insert(key.clone(), cause);
        let lane = usize::from(cause == Cause::Everything);
        match before {
            // It has changed while it waited behind everything that did.
            Some(Cause::Everything) if cause == Cause::Store => self.queues[lane][rank(&key)].push_back(key),
            Some(before) => drop(self.dirty.insert(key, cause.max(before))),
            None => self.queues[lane][rank(&key)].push_back(key),
        }
    }

    /// Keys of which at least one is at fault: to be tried apart from others.
    pub(crate) fn suspect(&mut self, keys: Vec<Key>) {
        for key in &keys {
            self.dirty.remove(key);
            self.stop_waiting(key);
            self.suspected.insert(key.clone());
        }
        self.suspects.push_back(keys);
    }

    /// What is next; none if there is nothing to do. Suspects and others take turns.
    pub(crate) fn turn(&mut self) -> Option<Turn> {
        if self.suspects.is_empty() && self.dirty.is_empty() {
            return None;
        }
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
    pub(crate) fn pop(&mut self) -> Option<(Key, Cause)> {
        self.queues.iter_mut().flatten().find_map(|queue| {
            std::iter::from_fn(|| queue.pop_front()).find_map(|key| {
                let cause = self.dirty.remove(&key)?;
                Some((key, cause))
            })
        })
    }

    /// The key cannot go on without these rows.
    pub(crate) fn wait(&mut self, key: Key, names: Vec<RowName>) {
        for name in &names {
            self.waiting_for.entry(name.clone()).or_default().insert(key.clone());
        }
        self.waiting.insert(key, names);
    }

    /// A row of that name appeared: who waited for it?
    pub(crate) fn appeared(&mut self, name: &RowName, now: Instant) {
        for key in self.waiting_for.get(name).cloned().unwrap_or_default() {
            self.mark(key, Cause::Store, now);
        }
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting_for.is_empty()
    }

    /// The key is at fault. Whether this error is another than the last time, and when it is tried again.
    pub(crate) fn fail(&mut self, key: Key, error: String, now: Instant) -> (bool, Duration) {
        let failure = self.failing.entry(key.clone()).or_default();
        let pause = pause(failure.times);
        failure.times = failure.times.saturating_add(1);
        let another = failure.error.as_ref() != Some(&error);
        failure.error = Some(error);
        self.retry_at(key, now + pause);
        (another, pause)
    }

    /// The key is not to be looked at for some time, whatever happens to its rows.
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

    /// The transaction with the key's rows was carried out, or nothing is left to do; whether it had been refused before.
    pub(crate) fn succeeded(&mut self, key: &Key) -> bool {
        let Some(failure) = self.failing.remove(key) else { return false };
        if let Some(retry) = failure.retry {
            self.retries.remove(&(retry, key.clone()));
        }
        failure.error.is_some()
    }

    /// The key's rows are as they should be; since when they were not.
    pub(crate) fn settled(&mut self, key: &Key) -> Option<Instant> {
        self.since.remove(key)
    }

    /// Keys whose pause is over are to be tried again.
    pub(crate) fn retry_due(&mut self, now: Instant) {
        while self.retries.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.retries.pop_first() else { return };
            if let Some(failure) = self.failing.get_mut(&key) {
                failure.retry = None;
            }
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

    fn stop_waiting(&mut self, key: &Key) {
        for name in self.waiting.remove(key).unwrap_or_default() {
            if let Some(keys) = self.waiting_for.get_mut(&name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.waiting_for.remove(&name);
                }
            }
        }
    }
}

fn rank(key: &Key) -> usize {
    match key {
        Key::Cluster => 0,
        Key::Node(_) => 1,
        Key::Pod(_) => 2,
    }
}

/// Half a second, doubled each time, a minute at most; cut by up to half, at random, so that keys that failed together part.
pub(crate) fn pause(times: u32) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(times.min(16))).min(LONGEST_PAUSE);
    let thousandths = u32::try_from(RandomState::new().hash_one(()) % 1001).unwrap_or_default();
    full / 2 + full / 2 * thousandths / 1000
}

#[cfg(test)]
mod tests;
