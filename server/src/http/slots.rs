//! How many connections there are at once, and which of them has to go when another one comes.
//!
//! A connection needs a place to be accepted and a slot to be listened to. When all slots are taken, the one that has been idle
//! for the longest gives its slot up; when none is idle, the newcomer waits a while. A caller that waits for the end of a pod needs
//! no slot meanwhile: it costs nothing, and there may be one for every pod of the node.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Connections that are listened to at once.
const SLOTS: usize = 256;
/// Connections that are accepted at once: with a slot, waiting for one, or waiting for the end of a pod. The others wait in the kernel.
const PLACES: usize = 1024;
/// How long a newcomer waits for a slot.
const PATIENCE: Duration = Duration::from_secs(5);

/// What all connections share.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    places: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    idle: Arc<Mutex<Idle>>,
}

/// The connections without a request, by the time since which they are.
#[derive(Debug, Default)]
struct Idle {
    since: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// The right to be accepted.
#[derive(Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "gives the place back when it is dropped")] OwnedSemaphorePermit);

/// The right to be listened to; idle at first.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    evict: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    permit: Option<OwnedSemaphorePermit>,
    idle_since: Option<u64>,
}

impl Default for Slots {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { places: semaphore(PLACES), slots: semaphore(SLOTS), idle: Arc::default() }
    }
}

impl Slots {
    /// Waits until another connection may be accepted.
    pub(super) async fn place(&self) -> Place {
        Place(Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed"))
    }

    /// Whether a connection is accepted now.
    pub(super) fn some_connected(&self) -> bool {
        self.places.available_permits() < PLACES
    }

    /// A slot for a new connection; none if all are busy for too long.
    pub(super) async fn slot(&self) -> Option<Slot> {
        if self.slots.available_permits() == 0 {
            self.make_room();
        }
        let permit = timeout(PATIENCE, Arc::clone(&self.slots).acquire_owned()).await.ok()?;
        let slot = Slot {
            slots: self.clone(),
            evict: Arc::default(),
            state: Mutex::new(State { permit: Some(permit.expect("the semaphore is never closed")), idle_since: None }),
        };
        slot.idle();
        Some(slot)
    }

    /// Ends the connection that has been idle for the longest.
    pub(super) fn make_room(&self) {
        if let Some((_, longest)) = lock(&self.idle).since.pop_first() {
            longest.notify_one();
        }
    }
}

impl Slot {
    /// A request has arrived.
    pub(super) fn busy(&self) {
        if let Some(since) = lock(&self.state).idle_since.take() {
            lock(&self.slots.idle).since.remove(&since);
        }
    }

    /// The request was answered.
    pub(super) fn idle(&self) {
        let mut idle = lock(&self.slots.idle);
        let since = idle.next;
        idle.next += 1;
        idle.since.insert(since, Arc::clone(&self.evict));
        drop(idle);
        lock(&self.state).idle_since = Some(since);
    }

    /// The request will be a long wait that costs nothing: others may have the slot. This connection answers no other request.
    pub(super) fn step_aside(&self) {
        lock(&self.state).permit = None;
    }

    /// Waits until the connection has to go, which it has not if a request came at the last moment.
    pub(super) async fn evicted(&self) {
        loop {
            self.evict.notified().await;
            if lock(&self.state).idle_since.is_some() {
                return;
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.busy();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
