//! Rules in memory, as the ledger counts them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Rules that are counted, until all copies of them are dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) bytes: usize,
    pub(crate) sum: Arc<AtomicUsize>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
