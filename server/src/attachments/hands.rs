//! What works beside the keeper, and may wait: for the kernel, for a database, for a fence. The keeper itself waits for nothing, because every
//! ADD of the node waits for the ports that it writes.

use std::{future::pending, sync::Arc};

use ovsdb::Client;
use podnet::{
    link::{self, Link, LinkError},
    netlink::Netlink,
    settings::Settings,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinError, JoinHandle, spawn_blocking},
};

use super::{Surroundings, plan::Suspect};
use crate::chain;

/// What a task needs that repairs. Clones are the same hands.
#[derive(Debug, Clone)]
pub(super) struct Hands {
    pub(super) around: Arc<Surroundings>,
    pub(super) client: Client,
    pub(super) plugin: Arc<Settings>,
    /// To the keeper, who alone knows rows and pods.
    pub(super) questions: mpsc::UnboundedSender<Question>,
}

/// Who is suspected now, where these are the host's links?
#[derive(Debug)]
pub(super) struct Question {
    pub(super) links: Arc<Vec<Link>>,
    pub(super) answer: oneshot::Sender<Vec<Suspect>>,
}

/// Begins to ask the kernel for all links, on a thread that may block: it answers no sooner than whoever changes a link at the moment is done.
pub(super) fn list() -> JoinHandle<Result<Vec<Link>, LinkError>> {
    spawn_blocking(|| {
        let netlink = Netlink::open().map_err(|source| LinkError::Kernel { what: "open a netlink socket".to_owned(), source })?;
        link::list_by(&netlink)
    })
}

/// All links there are; none if the kernel does not tell, which is in the log.
pub(super) async fn links() -> Option<Vec<Link>> {
    match list().await {
        Ok(Ok(links)) => Some(links),
        Ok(Err(error)) => {
            say_unlisted(&error);
            None
        }
        // The runtime ends.
        Err(_) => None,
    }
}

pub(super) fn say_unlisted(error: &LinkError) {
    tracing::warn!(error = chain(error), "the links of this host cannot be listed");
}

/// What a task came to; never, where none is under way. Cancellation-safe.
pub(super) async fn ended<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    let Some(running) = task else { return pending().await };
    let outcome = running.await;
    *task = None;
    outcome
}
