//! How many are at work, and the moment when nobody is.

use tokio::sync::watch;

/// A counter that can be waited for. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct InFlight {
    count: watch::Sender<usize>,
}

/// One that is at work until it is dropped.
#[derive(Debug)]
pub(super) struct AtWork<'a>(&'a InFlight);

impl InFlight {
    pub(super) fn enter(&self) -> AtWork<'_> {
        self.count.send_modify(|count| *count += 1);
        AtWork(self)
    }

    /// How many are at work.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until nobody is at work.
    pub async fn none(&self) {
        let mut count = self.count.subscribe();
        // Cannot fail: the sender is borrowed meanwhile.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}
