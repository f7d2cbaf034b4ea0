//! The work queue of keys: dirty ones, suspects, those that wait for a row, and failed ones with
//! the time of their retry.
//!
//! A key is in one of these places or in none, as while its transaction is in flight; meanwhile it
//! may become dirty again. Knows nothing of rows or databases.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::Duration,
};

use contract::backoff;
use tokio::time::Instant;

use crate::{
    few::{KEPT, give_back},
    key::{Key, Scope},
    rows::RowName,
};

/// The pause after the first refusal; it doubles with each further one. Long beside a transaction
/// (ovsdb-server takes 10,000 of one row a second), short for a person who has just removed the
/// obstacle.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// An obstacle may go away unseen, so retries never end. At this pause, a thousand refused keys
/// cost some twenty transactions a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// After so many refusals in a row, 15 s, an obstacle does not go away by itself. A tenth would
/// tell of each race; ten times as many are an hour.
const REPEATED: u32 = 5;

/// Bytes of edits with which an object of a user goes into a transaction of its own. Three hundred
/// pods' ports are as much; ten times as much would be more than a transaction of all others has.
const LARGE: usize = 128 << 10;

/// Why a key is dirty. Of several causes the last one in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Its rows changed in the database, or a transaction wrote them.
    Rows,
    /// All keys are compared, at the start or after a reconnection. No change, so it does not count
    /// in `settle_seconds`.
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
    /// This key alone: its last edits were large.
    Apart(Item),
    /// These keys and no others in the same transaction: at least one of them is at fault.
    Suspects(Vec<Key>),
}

/// Where a key is queued.
#[derive(Debug)]
enum KeyState {
    /// In one of the queues of dirty keys.
    Dirty(Scope, Cause),
    /// In one of the groups of suspects.
    Suspected,
    /// Until a row with one of these names comes or goes.
    Waiting(Vec<RowName>),
    /// Until then.
    Resting(Instant),
}

/// The queue: see the module.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    /// The place of each key that is queued. Everything below that lists keys is an index of it,
    /// and only [`Self::place`] changes both.
    states: HashMap<Key, KeyState>,
    /// Two lanes: keys that changed, then keys that are only compared. In each lane, the rows that
    /// others refer to come first: the cluster, nodes, sets, policies; then pods and Services in
    /// turn. May hold keys that are no longer dirty.
    queues: [[VecDeque<Key>; 6]; 2],
    /// Which of pods and Services is next where both are dirty.
    next: Next,
    dirty: usize,
    /// Objects of users whose last edits were large. Whatever they change, and how often, all
    /// others have their turn in between.
    large: HashSet<Key>,
    /// Those of them that are dirty. May hold keys that are no longer dirty.
    apart: VecDeque<Key>,
    dirty_apart: usize,
    /// Whether others had their turn since the last one of these.
    others_had_turn: bool,
    groups: VecDeque<Vec<Key>>,
    suspected: usize,
    was_suspects: bool,
    waiting: usize,
    waiting_for: HashMap<RowName, HashSet<Key>>,
    retries: BTreeSet<(Instant, Key)>,
    /// Keys whose last transaction was refused, or whose rows another writer contests; wherever
    /// they are now.
    failures: HashMap<Key, Failure>,
    /// The times of the first and the last change of the store that a key's rows do not show yet.
    changes: HashMap<Key, (Instant, Instant)>,
}

#[derive(Debug, Default)]
struct Failure {
    times: u32,
    /// None if nothing was refused: the key rests because another writer contests its rows.
    error: Option<String>,
}

/// Whether two errors differ in UUIDs at most: each retry's rows have others, which the database
/// names.
fn is_same(one: &str, other: &str) -> bool {
    let words = |error| {
        let words = str::split(error, |c: char| !c.is_alphanumeric() && c != '-');
        words.filter(|word| ovsdb::Uuid::parse_str(word).is_err())
    };
    words(one).eq(words(other))
}

/// Whose turn it is. A Service with rows for each node takes as long as a hundred pods.
#[derive(Debug, Default, Clone, Copy)]
enum Next {
    #[default]
    Pod,
    Service,
}

impl Next {
    /// The ranks in the order of this turn.
    fn ranks(self) -> [usize; 6] {
        match self {
            Self::Pod => [0, 1, 2, 3, PODS, SERVICES],
            Self::Service => [0, 1, 2, 3, SERVICES, PODS],
        }
    }

    fn after(self, key: &Key) -> Self {
        match rank(key) {
            PODS => Self::Service,
            SERVICES => Self::Pod,
            _ => self,
        }
    }
}

impl WorkQueue {
    /// Puts a key into another place, or into none. Returns the former one.
    fn place(&mut self, key: &Key, state: Option<KeyState>) -> Option<KeyState> {
        // The former entries first: a new one may be the same.
        let before = self.states.remove(key);
        match &before {
            Some(KeyState::Dirty(..)) => *self.count_of(key) -= 1,
            Some(KeyState::Suspected) => self.suspected -= 1,
            Some(KeyState::Waiting(names)) => {
                self.waiting -= 1;
                for name in names {
                    if let Some(keys) = self.waiting_for.get_mut(name) {
                        keys.remove(key);
                        if keys.is_empty() {
                            self.waiting_for.remove(name);
                        }
                    }
                }
            }
            Some(KeyState::Resting(until)) => {
                self.retries.remove(&(*until, key.clone()));
            }
            None => {}
        }
        match &state {
            Some(KeyState::Dirty(..)) => *self.count_of(key) += 1,
            Some(KeyState::Suspected) => self.suspected += 1,
            Some(KeyState::Waiting(names)) => {
                self.waiting += 1;
                for name in names {
                    self.waiting_for.entry(name.clone()).or_default().insert(key.clone());
                }
            }
            Some(KeyState::Resting(until)) => {
                self.retries.insert((*until, key.clone()));
            }
            None => {}
        }
        match state {
            Some(state) => drop(self.states.insert(key.clone(), state)),
            None => give_back(&mut self.states),
        }
        before
    }

    fn count_of(&mut self, key: &Key) -> &mut usize {
        if self.large.contains(key) { &mut self.dirty_apart } else { &mut self.dirty }
    }

    fn push(&mut self, key: Key, lane: usize) {
        if self.large.contains(&key) {
            self.apart.push_back(key);
        } else {
            self.queues[lane][rank(&key)].push_back(key);
        }
    }

    /// The key, which is in no queue, needs edits of so many bytes.
    pub(crate) fn weigh(&mut self, key: &Key, bytes: usize) {
        if is_of_user(key) && bytes >= LARGE {
            self.large.insert(key.clone());
        } else {
            self.large.remove(key);
        }
    }

    /// Marks a key as dirty. A key that failed before is retried without delay.
    ///
    /// Suspects, failed keys and those that waited are compared as a whole: nothing is known of
    /// their rows.
    pub(crate) fn mark(&mut self, item: Item, now: Instant) {
        let Item { key, mut scope, cause } = item;
        if cause == Cause::Store {
            self.changes.entry(key.clone()).or_insert((now, now)).1 = now;
        }
        let lane = usize::from(cause == Cause::Everything);
        let mut waited = false;
        match self.states.get_mut(&key) {
            Some(KeyState::Dirty(dirty, because)) => {
                dirty.extend(scope);
                // It waited in the second lane and has changed now. Its old entry is skipped by
                // `pop`.
                let overtakes = *because == Cause::Everything && cause == Cause::Store;
                *because = cause.max(*because);
                if overtakes {
                    self.push(key, lane);
                }
                return;
            }
            Some(KeyState::Suspected) => return,
            // It is compared again; if its rows are still missing, it waits again.
            Some(KeyState::Waiting(_)) => (scope, waited) = (Scope::Whole, true),
            Some(KeyState::Resting(_)) | None => {}
        }
        if let Some(failure) = self.failures.get(&key) {
            // The next change of a contested row is not answered before the rest is over. A change
            // of the store is: its rows are new.
            if failure.error.is_some() || cause != Cause::Rows || waited {
                // It goes alone, so that it cannot fail the others again.
                self.suspect(vec![key]);
            }
            return;
        }
        self.push(key.clone(), lane);
        self.place(&key, Some(KeyState::Dirty(scope, cause)));
    }

    /// Queues keys of which at least one is at fault, to be tried apart from the others.
    pub(crate) fn suspect(&mut self, keys: Vec<Key>) {
        for key in &keys {
            self.place(key, Some(KeyState::Suspected));
        }
        self.groups.push_back(keys);
    }

    /// What is next; none if there is nothing to do. Suspects, dirty keys, and those with large
    /// edits take turns, so that none holds up the others.
    pub(crate) fn turn(&mut self) -> Option<Turn> {
        let dirty = self.dirty + self.dirty_apart;
        if self.groups.is_empty() && dirty == 0 {
            self.others_had_turn = false;
            return None;
        }
        // Alternates while there are both.
        self.was_suspects = !self.groups.is_empty() && (dirty == 0 || !self.was_suspects);
        if !self.was_suspects {
            let is_apart = self.dirty_apart > 0 && (self.dirty == 0 || self.others_had_turn);
            self.others_had_turn = !is_apart;
            let apart = if is_apart { self.pop_apart() } else { None };
            return Some(apart.map_or(Turn::Dirty, Turn::Apart));
        }
        let keys = self.groups.pop_front()?;
        for key in &keys {
            self.place(key, None);
        }
        Some(Turn::Suspects(keys))
    }

    /// The next dirty key.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        let (states, mut next) = (&self.states, None);
        let ranks = self.next.ranks();
        for (lane, rank) in (0..2).flat_map(|lane| ranks.map(|rank| (lane, rank))) {
            let queue = &mut self.queues[lane][rank];
            // Skips entries of keys that are no longer dirty.
            next = std::iter::from_fn(|| queue.pop_front())
                .find(|key| matches!(states.get(key), Some(KeyState::Dirty(..))));
            if queue.is_empty() {
                queue.shrink_to(KEPT);
            }
            if next.is_some() {
                break;
            }
        }
        let next = next?;
        self.next = self.next.after(&next);
        self.take(next)
    }

    /// The next dirty key whose last edits were large.
    fn pop_apart(&mut self) -> Option<Item> {
        let (states, queue) = (&self.states, &mut self.apart);
        let next = std::iter::from_fn(|| queue.pop_front())
            .find(|key| matches!(states.get(key), Some(KeyState::Dirty(..))));
        self.take(next?)
    }

    fn take(&mut self, key: Key) -> Option<Item> {
        let Some(KeyState::Dirty(scope, cause)) = self.place(&key, None) else { return None };
        Some(Item { key, scope, cause })
    }

    /// The key needs these rows, which do not exist, or which others have: it waits for a change of
    /// one.
    pub(crate) fn wait(&mut self, key: &Key, rows: &[RowName]) {
        self.place(key, Some(KeyState::Waiting(rows.iter().map(RowName::called).collect())));
    }

    /// Other objects have these rows, so the key waits for them. Returns whether that is new.
    pub(crate) fn taken(&mut self, key: &Key, rows: &[RowName], why: String) -> bool {
        let failure = self.failures.entry(key.clone()).or_default();
        let is_new = failure.error.as_ref() != Some(&why);
        failure.error = Some(why);
        self.wait(key, rows);
        is_new
    }

    /// The row of that name came, went or is another one: marks the keys that wait for it.
    pub(crate) fn changed(&mut self, name: &RowName, now: Instant) {
        for key in self.waiting_for.get(name).cloned().unwrap_or_default() {
            self.mark(Item::whole(key, Cause::Store), now);
        }
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting_for.is_empty()
    }

    /// The database refused the key's rows. Returns whether the error differs from the last one,
    /// and the pause before the retry.
    pub(crate) fn fail(&mut self, key: &Key, error: String, now: Instant) -> (bool, Duration) {
        // Counts whatever the error is: a new error does not shorten the pause.
        let failure = self.failures.entry(key.clone()).or_default();
        let pause = pause(failure.times);
        failure.times = failure.times.saturating_add(1);
        let another = failure.error.as_deref().is_none_or(|last| !is_same(last, &error));
        failure.error = Some(error);
        self.rest_until(key, now + pause);
        (another, pause)
    }

    /// Leaves the key alone until that time, whatever happens to its rows.
    pub(crate) fn rest(&mut self, key: &Key, until: Instant) {
        self.failures.entry(key.clone()).or_default();
        self.rest_until(key, until);
    }

    fn rest_until(&mut self, key: &Key, until: Instant) {
        // A suspect has changed since it was sent, and is tried again without a pause.
        if !matches!(self.states.get(key), Some(KeyState::Suspected)) {
            self.place(key, Some(KeyState::Resting(until)));
        }
    }

    /// Whether the database has refused the key's rows.
    pub(crate) fn is_refused(&self, key: &Key) -> bool {
        self.failures.get(key).is_some_and(|failure| failure.error.is_some())
    }

    /// The key's rows were committed, or were right already. Returns whether they had been refused
    /// before.
    pub(crate) fn succeeded(&mut self, key: &Key) -> bool {
        let Some(failure) = self.failures.remove(key) else { return false };
        if matches!(self.states.get(key), Some(KeyState::Resting(_))) {
            self.place(key, None);
        }
        failure.error.is_some()
    }

    /// The times of the first and the last change of the store that the key's rows do not show yet.
    pub(crate) fn changes(&self, key: &Key) -> Option<(Instant, Instant)> {
        self.changes.get(key).copied()
    }

    /// The key's rows are right. Returns since when they were not.
    pub(crate) fn settled(&mut self, key: &Key) -> Option<Instant> {
        let changes = self.changes.remove(key);
        give_back(&mut self.changes);
        changes.map(|(first, _)| first)
    }

    /// Queues the keys whose pause is over.
    pub(crate) fn retry_due(&mut self, now: Instant) {
        while let Some((_, key)) = self.retries.first().filter(|(at, _)| *at <= now).cloned() {
            // Alone: whatever else is in the transaction must not fail with it.
            self.suspect(vec![key]);
        }
    }

    /// When [`retry_due`](Self::retry_due) has something to do.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Keys that could go into a transaction now.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty + self.dirty_apart + self.suspected
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn failing(&self) -> usize {
        self.failures.len()
    }

    /// Keys whose rows the database refuses again and again, with the last error.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&Key, &str)> {
        let repeated = self.failures.iter().filter(|(_, failure)| failure.times >= REPEATED);
        repeated.filter_map(|(key, failure)| Some((key, failure.error.as_deref()?)))
    }
}

/// Whether a user of a namespace decides how large it is. No row of others refers to its rows.
fn is_of_user(key: &Key) -> bool {
    match key {
        Key::Policy(_) | Key::Custom(_) | Key::Service(_) => true,
        Key::Cluster
        | Key::Node(_)
        | Key::Gateway(_)
        | Key::Transit(_)
        | Key::Chassis(_)
        | Key::Set(_)
        | Key::Isolation(_)
        | Key::Namespace(_)
        | Key::ClusterPolicy(_)
        | Key::Pod(_)
        | Key::SourceNat(_) => false,
    }
}

const PODS: usize = 4;
const SERVICES: usize = 5;

/// Rows of pods and services refer to nodes' rows, and nodes' rows to the cluster's. Pods and
/// services are equals, and have their turns one by one: a burst of one kind does not hold up the
/// other.
fn rank(key: &Key) -> usize {
    match key {
        Key::Cluster => 0,
        Key::Node(_) | Key::Gateway(_) | Key::Transit(_) | Key::Chassis(_) => 1,
        // A rule names sets, and a pod's port is in groups. An address leaves its sets before a
        // rule comes that names them.
        Key::Set(_) | Key::Isolation(_) | Key::Namespace(_) => 2,
        Key::Policy(_) | Key::ClusterPolicy(_) | Key::Custom(_) => 3,
        Key::Pod(_) | Key::SourceNat(_) => PODS,
        Key::Service(_) => SERVICES,
    }
}

/// The pause after so many refusals. Keys that failed together are not retried together.
pub(crate) fn pause(times: u32) -> Duration {
    backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, times)
}

#[cfg(test)]
mod tests;
