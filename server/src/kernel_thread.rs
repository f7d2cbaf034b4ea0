//! The thread for rtnetlink requests, which may block.
//!
//! The kernel carries out an rtnetlink request inside sendmsg(2), and waits there for `rtnl_mutex`
//! while another process changes a link. The sending thread sleeps that long, whatever kind of
//! socket it has. So it must not be one of the threads that serve the socket, `/healthz` and the
//! ports of pods. One thread is enough: all of its requests wait for the same lock.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::runtime::with_blocking_threads;

/// Threads for what the thread's tasks leave to others: sockets of nftables wait for the kernel
/// when they are closed, and twenty are closed at a server's start.
const BLOCKING: usize = 8;

static THREAD: Mutex<Option<Runtime>> = Mutex::new(None);

/// Starts the thread unless it runs. Tasks that are spawned with this handle run there, and so do
/// the tasks that they spawn.
pub(crate) fn handle() -> io::Result<Handle> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*thread {
        return Ok(runtime.handle().clone());
    }
    let mut kernel = Builder::new_multi_thread();
    let runtime = with_blocking_threads(kernel.worker_threads(1).thread_name("kernel"), BLOCKING)?;
    Ok(thread.insert(runtime).handle().clone())
}

/// Ends the thread's tasks. Waits up to `patience` for one that is inside a request. Not for async
/// code.
pub(crate) fn end(patience: Duration) {
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(runtime) = thread {
        runtime.shutdown_timeout(patience);
    }
}

/// Runs `question` on that thread, and returns its result.
pub(crate) async fn ask<T: Send + 'static>(
    question: impl Future<Output = T> + Send + 'static,
) -> io::Result<T> {
    handle()?.spawn(question).await.map_err(io::Error::other)
}
