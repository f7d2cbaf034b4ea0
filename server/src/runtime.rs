//! A runtime that has all its threads from the start.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};

/// An idle thread for blocking work is kept. On a host that has run out of threads no new one can
/// be started, and a read would wait for a thread that never comes.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The runtime that `builder` describes, with so many threads for blocking work. None is started
/// later, so that the first burst does not find that there is no thread left.
///
/// # Errors
///
/// A thread cannot be started, or the event loop cannot be created.
pub(crate) fn with_blocking_threads(builder: &mut Builder, threads: usize) -> io::Result<Runtime> {
    let runtime =
        builder.max_blocking_threads(threads).thread_keep_alive(FOREVER).enable_all().build()?;
    // tokio starts a thread for each job that finds no idle one. None is idle while all wait for
    // this lock.
    let busy = Arc::new(Mutex::new(()));
    let all_started = busy.lock();
    for _ in 0..threads {
        let busy = Arc::clone(&busy);
        runtime.spawn_blocking(move || drop(busy.lock()));
    }
    drop(all_started);
    Ok(runtime)
}
