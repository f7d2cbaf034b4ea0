//! Limits on connections, and which connection is closed in favour of a new one.
//!
//! A connection needs a place to be accepted and a slot to be served. When all slots are taken, the
//! connection that has been idle longest gives its slot up; if none is idle, the new one waits for a while. A
//! caller that waits for the end of a pod needs no slot meanwhile: it costs little, and there may be one for
//! every pod of the node.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Connections that are served at once. Each may hold a body of 1 MiB, which bounds the memory; a kubelet
/// runs 110 pods by default, so even all of them at once find a slot.
const SLOTS: usize = 256;
/// Connections that are accepted at once: with a slot, waiting for one, or waiting for the end of a pod. Each
/// costs a descriptor (`reserve`). Further connections wait in the backlog of the kernel.
const PLACES: usize = 1024;
/// How long a new connection waits for a slot: long enough for requests in flight to end, and short enough
/// that its runtime learns of it before it loses patience.
const PATIENCE: Duration = Duration::from_secs(5);

/// State shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLimit {
    places: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    idle: Arc<Mutex<Idle>>,
}

/// The connections without a request, in the order in which they became idle.
#[derive(Debug, Default)]
struct Idle {
    since: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// The right to be accepted.
#[derive(Debug)]
pub(super) struct ConnectionPermit(
    #[expect(dead_code, reason = "gives the place back when it is dropped")] OwnedSemaphorePermit,
);

/// The right to be served; idle at first.
#[derive(Debug)]
pub(super) struct Slot {
    slots: ConnectionLimit,
    evict: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    permit: Option<OwnedSemaphorePermit>,
    idle_since: Option<u64>,
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { places: semaphore(PLACES), slots: semaphore(SLOTS), idle: Arc::default() }
    }
}

impl ConnectionLimit {
    /// Waits until another connection may be accepted.
    pub(super) async fn place(&self) -> ConnectionPermit {
        ConnectionPermit(
            Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed"),
        )
    }

    /// Whether any connection is open.
    pub(super) fn some_connected(&self) -> bool {
        self.places.available_permits() < PLACES
    }

    /// A slot for a new connection; `None` if all stay busy for too long.
    pub(super) async fn slot(&self) -> Option<Slot> {
        // Before the wait: the slot comes free when the evicted connection has ended.
        if self.slots.available_permits() == 0 {
            self.make_room();
        }
        let permit = timeout(PATIENCE, Arc::clone(&self.slots).acquire_owned()).await.ok()?;
        let slot = Slot {
            slots: self.clone(),
            evict: Arc::default(),
            state: Mutex::new(State {
                permit: Some(permit.expect("the semaphore is never closed")),
                idle_since: None,
            }),
        };
        slot.idle();
        Some(slot)
    }

    /// Closes the connection that has been idle longest.
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
        // Released first: `busy` takes the two locks in the other order.
        drop(idle);
        lock(&self.state).idle_since = Some(since);
    }

    /// Gives the slot to others for the time of a long wait that costs little. This connection serves no
    /// other request.
    pub(super) fn step_aside(&self) {
        lock(&self.state).permit = None;
    }

    /// Waits until the connection has to close. An eviction that loses the race against a new request is
    /// ignored.
    pub(super) async fn evicted(&self) {
        loop {
            self.evict.notified().await;
            // A request may have arrived between the eviction and this wake-up.
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
