//! Work on several threads at once. The first error is the caller's, and so is a panic.

use std::thread::{self, ScopedJoinHandle};

use anyhow::{Result, bail};

/// Waits for the end of a thread; what it returns.
pub fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a thread panicked (see above)"))
}

/// Does `work` on every item, each on a thread of its own. The results are in the order of the
/// items.
pub fn at_once<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let ended: Vec<Result<R>> = threads.into_iter().map(join).collect();
        ended.into_iter().collect()
    })
}

/// The same for many items, on this many threads.
pub fn on_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let shares = items.chunks(items.len().div_ceil(threads).max(1));
    let done = at_once(shares, |share| share.iter().map(&work).collect::<Result<Vec<R>>>())?;
    Ok(done.into_iter().flatten().collect())
}
