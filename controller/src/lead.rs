//! Whether this process is the one that may write.

use tokio::sync::watch;

/// Whether this process leads, and word of when that changes.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<bool>);

impl Leadership {
    /// For programs that nobody competes with.
    pub fn always() -> Self {
        Self(watch::channel(true).1)
    }

    pub fn is_leader(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it may have changed.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
