//! The queue of updates for the reader of a monitor, limited in bytes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use crate::{error::Closed, message::Body};

/// A queue that takes updates while it holds at most `limit` bytes. The last update may exceed the
/// limit, so that one larger than it can pass.
pub(crate) fn updates(limit: usize, overflow: Overflow) -> (UpdateSender, UpdateReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let receiver = UpdateReceiver { receiver, waiting: Arc::clone(&waiting) };
    (UpdateSender { sender, waiting, limit, overflow }, receiver)
}

/// What ends if too many updates are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// Only the monitor: its reader begins anew, and other readers of the connection are not
    /// disturbed.
    EndsMonitor,
    EndsConnection,
}

#[derive(Debug)]
pub(crate) struct UpdateSender {
    /// An error is the last element: the reader finds it after the updates before it.
    sender: mpsc::UnboundedSender<Result<Body, Closed>>,
    waiting: Arc<AtomicUsize>,
    limit: usize,
    overflow: Overflow,
}

#[derive(Debug)]
pub(crate) struct UpdateReceiver {
    receiver: mpsc::UnboundedReceiver<Result<Body, Closed>>,
    waiting: Arc<AtomicUsize>,
}

/// Why an update was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The queue holds this many bytes, more than the limit.
    Backlog(usize),
    /// The same, of a monitor that ends alone. Its reader is told.
    Overflown,
    NoReader,
}

impl UpdateSender {
    pub(crate) fn send(&self, update: Body) -> Result<(), Full> {
        let waiting = self.waiting.fetch_add(update.size(), Ordering::Relaxed);
        match self.overflow {
            Overflow::EndsConnection if waiting > self.limit => Err(Full::Backlog(waiting)),
            Overflow::EndsMonitor if waiting > self.limit => {
                // Without a reader, nothing has to be told.
                let _ = self.sender.send(Err(Closed::Backlog(waiting)));
                Err(Full::Overflown)
            }
            Overflow::EndsConnection | Overflow::EndsMonitor => {
                self.sender.send(Ok(update)).map_err(|_| Full::NoReader)
            }
        }
    }
}

impl UpdateReceiver {
    /// The next update, or the reason why there are no more; `None` once the connection is closed
    /// and all updates are read. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Body, Closed>> {
        let update = self.receiver.recv().await?;
        if let Ok(update) = &update {
            self.waiting.fetch_sub(update.size(), Ordering::Relaxed);
        }
        Some(update)
    }
}

#[cfg(test)]
mod tests;
