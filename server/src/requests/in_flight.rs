//! Counts what is in flight, and tells when there is nothing.

use tokio::sync::watch;

/// A counter that can be awaited. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct InFlight {
    count: watch::Sender<usize>,
}

/// Counts as one until it is dropped.
#[derive(Debug)]
pub(crate) struct AtWork<'a>(&'a InFlight);

impl InFlight {
    pub(crate) fn enter(&self) -> AtWork<'_> {
        self.count.send_modify(|count| *count += 1);
        AtWork(self)
    }

    /// How many are in flight.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until none is in flight.
    pub async fn none(&self) {
        let mut count = self.count.subscribe();
        // Cannot fail: `self` keeps the sender alive.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}
