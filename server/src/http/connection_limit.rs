//! Limits on connections, and which connection is closed in favour of a new one.
//!
//! A connection needs a place to be accepted and, from its first bytes on, a slot to be served.
//! When all slots are taken, the connection that has been idle longest since an answer gives its
//! slot up; if none is idle, the new one waits for a while. A caller that has sent nothing yet
//! holds no slot: nobody needs to take one from it at the moment in which it sends. A caller that
//! waits for the end of a pod needs no slot meanwhile: it costs little, and there may be one for
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

/// Connections that are served at once. Each may hold a body of 1 MiB, which bounds the memory; a
/// kubelet runs 110 pods by default, so even all of them at once find a slot.
const SLOTS: usize = 256;
/// Connections that are accepted at once: with a slot, waiting for one, or waiting for the end of a
/// pod. Each costs a descriptor (`reserve`). Further connections wait in the backlog of the kernel.
const PLACES: usize = 1024;
/// How long a new connection waits for a slot: long enough for requests in flight to end, and short
/// enough that its runtime learns of it before it loses patience.
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
    /// Those that have sent nothing yet. They hold no slot.
    silent: BTreeMap<u64, Arc<Notify>>,
    /// Those whose requests were answered. Each holds a slot.
    kept: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// The right to be accepted.
#[derive(Debug)]
pub(super) struct ConnectionPermit(
    #[expect(dead_code, reason = "gives the place back when it is dropped")] OwnedSemaphorePermit,
);

/// What a connection holds; silent at first.
#[derive(Debug)]
pub(super) struct ConnectionState {
    limit: ConnectionLimit,
    evict: Arc<Notify>,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    slot: Option<OwnedSemaphorePermit>,
    idle_since: Option<u64>,
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { places: semaphore(PLACES), slots: semaphore(SLOTS), idle: Arc::default() }
    }
}

impl ConnectionLimit {
    /// A place for a connection. If all are taken, an idle connection makes room, or this waits
    /// until one ends.
    pub(super) async fn place(&self) -> ConnectionPermit {
        if self.places.available_permits() == 0 {
            self.make_room();
        }
        ConnectionPermit(
            Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed"),
        )
    }

    /// Whether any connection is open.
    pub(super) fn some_connected(&self) -> bool {
        self.places.available_permits() < PLACES
    }

    /// The state of a connection that was just accepted.
    pub(super) fn accepted(&self) -> ConnectionState {
        let state = ConnectionState {
            limit: self.clone(),
            evict: Arc::default(),
            held: Mutex::new(Held { slot: None, idle_since: None }),
        };
        state.idle();
        state
    }

    /// Closes the connection that has been silent longest or, if none is, idle longest.
    pub(super) fn make_room(&self) {
        let mut idle = lock(&self.idle);
        if let Some((_, longest)) = idle.silent.pop_first().or_else(|| idle.kept.pop_first()) {
            longest.notify_one();
        }
    }

    /// Closes all connections on which nothing was sent.
    pub(super) fn close_silent(&self) {
        std::mem::take(&mut lock(&self.idle).silent)
            .values()
            .for_each(|silent| silent.notify_one());
    }

    /// Closes the connection that has kept its slot longest since its last answer.
    fn free_slot(&self) {
        if let Some((_, longest)) = lock(&self.idle).kept.pop_first() {
            longest.notify_one();
        }
    }
}

impl ConnectionState {
    /// Takes a slot for a caller that has begun to send. Returns `false` if all stay busy for too
    /// long.
    pub(super) async fn take_slot(&self) -> bool {
        self.busy();
        let slots = &self.limit.slots;
        // Before the wait: the slot comes free when the evicted connection has ended.
        if slots.available_permits() == 0 {
            self.limit.free_slot();
        }
        let Ok(slot) = timeout(PATIENCE, Arc::clone(slots).acquire_owned()).await else {
            return false;
        };
        lock(&self.held).slot = Some(slot.expect("the semaphore is never closed"));
        true
    }

    /// A request arrives.
    pub(super) fn busy(&self) {
        if let Some(since) = lock(&self.held).idle_since.take() {
            let mut idle = lock(&self.limit.idle);
            idle.silent.remove(&since);
            idle.kept.remove(&since);
        }
    }

    /// The request was answered.
    pub(super) fn idle(&self) {
        let keeps_slot = lock(&self.held).slot.is_some();
        let mut idle = lock(&self.limit.idle);
        let since = idle.next;
        idle.next += 1;
        let idlers = if keeps_slot { &mut idle.kept } else { &mut idle.silent };
        idlers.insert(since, Arc::clone(&self.evict));
        // Released first: `busy` takes the two locks in the other order.
        drop(idle);
        lock(&self.held).idle_since = Some(since);
    }

    /// Gives the slot to others for the time of a long wait that costs little. This connection
    /// serves no other request.
    pub(super) fn step_aside(&self) {
        lock(&self.held).slot = None;
    }

    /// Waits until the connection has to close. An eviction that loses the race against a new
    /// request is ignored.
    pub(super) async fn evicted(&self) {
        loop {
            self.evict.notified().await;
            // A request may have arrived between the eviction and this wake-up.
            if lock(&self.held).idle_since.is_some() {
                return;
            }
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.busy();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
