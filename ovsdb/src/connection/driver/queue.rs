//! The queue of updates for the reader of a monitor, limited in bytes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use crate::message::Body;

/// A queue that takes updates while it holds at most `limit` bytes. The last update may exceed the limit, so
/// that one larger than it can pass.
pub(crate) fn updates(limit: usize) -> (UpdateSender, UpdateReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (UpdateSender { sender, waiting: Arc::clone(&waiting), limit }, UpdateReceiver { receiver, waiting })
}

#[derive(Debug)]
pub(crate) struct UpdateSender {
    sender: mpsc::UnboundedSender<Body>,
    waiting: Arc<AtomicUsize>,
    limit: usize,
}

#[derive(Debug)]
pub(crate) struct UpdateReceiver {
    receiver: mpsc::UnboundedReceiver<Body>,
    waiting: Arc<AtomicUsize>,
}

/// Why an update was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The queue holds this many bytes, more than the limit.
    Backlog(usize),
    NoReader,
}

impl UpdateSender {
    pub(crate) fn send(&self, update: Body) -> Result<(), Full> {
        let waiting = self.waiting.fetch_add(update.size(), Ordering::Relaxed);
        if waiting > self.limit {
            return Err(Full::Backlog(waiting));
        }
        self.sender.send(update).map_err(|_| Full::NoReader)
    }
}

impl UpdateReceiver {
    /// The next update; `None` once the connection is closed and all updates are read. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Option<Body> {
        let update = self.receiver.recv().await?;
        self.waiting.fetch_sub(update.size(), Ordering::Relaxed);
        Some(update)
    }
}

#[cfg(test)]
mod tests;
