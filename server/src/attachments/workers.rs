//! What the tasks beside the reconciler share. They may wait for the kernel, for the database, or
//! for a per-interface lock; the reconciler follows links and pods meanwhile.

use std::{future::pending, sync::Arc};

use podnet::{
    link::{self, Link, LinkError},
    netlink::Netlink,
    settings::Settings,
};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::{Environment, local_rows::RowsHandle};
use crate::chain;

/// What a repair task needs. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Workers {
    pub(super) environment: Arc<Environment>,
    pub(super) plugin: Arc<Settings>,
    pub(super) rows: RowsHandle,
}

/// Starts to list all links, on a thread that may block: the kernel answers only after other
/// changes of links (`rtnl_mutex`).
pub(super) fn list() -> JoinHandle<Result<Vec<Link>, LinkError>> {
    spawn_blocking(|| {
        let netlink = Netlink::open().map_err(|source| LinkError::Kernel {
            what: "open a netlink socket".to_owned(),
            source,
        })?;
        link::list_by(&netlink)
    })
}

/// All links of the host; `None` if the kernel does not list them, which is logged.
pub(super) async fn links() -> Option<Vec<Link>> {
    match list().await {
        Ok(Ok(links)) => Some(links),
        Ok(Err(error)) => {
            say_unlisted(&error);
            None
        }
        // The runtime is shutting down.
        Err(_) => None,
    }
}

pub(super) fn say_unlisted(error: &LinkError) {
    tracing::warn!(error = chain(error), "the links of this host cannot be listed");
}

/// The result of the running task; waits for ever if there is none. Cancellation-safe.
pub(super) async fn ended<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    let Some(running) = task else { return pending().await };
    // Cleared after the wait: if `select!` drops this future, the task must still be known.
    let outcome = running.await;
    *task = None;
    outcome
}
