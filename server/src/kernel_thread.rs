//! The thread for questions that the kernel may answer late.
//!
//! The kernel does what a message to rtnetlink asks for while it is being sent, and not before whoever else changes a link is done (`rtnl_mutex`). The
//! thread that sends it sleeps for as long, whatever kind of socket it has. That must be none of those which serve the socket, `/healthz` and the
//! ports of pods. One thread for all: what waits here waits for the same lock.

use std::{io, sync::OnceLock};

use tokio::runtime::{Builder, Handle, Runtime};

static THREAD: OnceLock<Runtime> = OnceLock::new();

/// Starts the thread, unless it runs: what is spawned with the handle is done there, with all tasks that it starts.
pub(crate) fn handle() -> io::Result<&'static Handle> {
    if THREAD.get().is_none() {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("kernel").enable_all().build()?;
        if let Err(surplus) = THREAD.set(runtime) {
            surplus.shutdown_background();
        }
    }
    THREAD.get().map(Runtime::handle).ok_or_else(|| io::Error::other("no thread to ask the kernel"))
}

/// What comes of a question that is asked there.
pub(crate) async fn ask<T: Send + 'static>(question: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
    handle()?.spawn(question).await.map_err(io::Error::other)
}
