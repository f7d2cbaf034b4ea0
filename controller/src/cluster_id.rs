//! The identity of a cluster: the uid of the namespace `kube-system`, which every cluster has and
//! no two share. Also the second look: the task that reads it again, and has everything listed
//! again, while a list is doubted.

use std::{sync::Arc, time::Duration};

use contract::backoff::Backoff;
use futures_util::{FutureExt, TryFutureExt, future::select_all};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kubeapi::{Connection, Trouble, watch::Prompt};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::safety_brake::HeldLists;

pub use crate::safety_brake::ClusterId;

/// The namespace whose uid is the identity. Reading it needs the right `get` on it. Without that
/// right, two lists that agree are the only evidence.
const NAMESPACE: &str = "kube-system";
/// Deadline of one request: longer than a busy API server takes for one small object. With ten
/// times as much, one lost answer would use up [`FIRST`].
const PATIENCE: Duration = Duration::from_secs(10);
/// How long [`first`] retries: three requests that time out. The first lists wait for it, so an API
/// server that lists objects but does not answer this request delays them by this much at most.
const FIRST: Duration = Duration::from_secs(30);
/// Time from a doubted list to the second look. Longer than an API server takes to start and to
/// fill its caches: with a tenth of it, the same wrong list would come twice and be believed. A
/// real mass deletion waits this long.
pub const SECOND_LOOK: Duration = Duration::from_secs(10);

/// Reads the identity at the start. Retries for 30 s if the API server does not answer; then none.
pub async fn first(api: &Connection) -> ClusterId {
    let (begun, mut backoff) = (Instant::now(), Backoff::default());
    loop {
        match ask(api).await {
            Ok(id) => return id,
            Err(trouble) if begun.elapsed() > FIRST => {
                tracing::warn!(
                    problem = %trouble,
                    "cannot determine the identity of the cluster: the uid of the namespace kube-system"
                );
                return None;
            }
            Err(_) => sleep(backoff.next(None)).await,
        }
    }
}

/// Reads the identity once; none if the API server does not tell it.
///
/// # Errors
///
/// The API server does not answer.
pub async fn ask(api: &Connection) -> Result<ClusterId, Trouble> {
    let namespaces = Api::<Namespace>::all(api.client().clone());
    match api.ask(PATIENCE, namespaces.get_metadata(NAMESPACE)).await {
        Ok(namespace) => Ok(namespace.metadata.uid.map(Arc::from)),
        // No right to read it, or no such namespace: a retry gets the same answer.
        Err(Trouble { code: Some(403 | 404), text, .. }) => {
            tracing::info!(
                reason = text,
                "cannot read the identity of the cluster: the uid of the namespace kube-system"
            );
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}

/// While a party doubts a list: every [`SECOND_LOOK`], reads the identity, passes it to `tell` and
/// has all watches list everything again.
pub(crate) async fn look_again(
    api: Connection,
    mut doubts: Vec<watch::Receiver<Option<HeldLists>>>,
    watches: Vec<Prompt>,
    mut tell: impl FnMut(ClusterId),
) {
    while is_any_doubted(&mut doubts).await {
        sleep(SECOND_LOOK).await;
        // A watch may have listed everything for another reason meanwhile, and ended the doubt.
        if doubts.iter().all(|doubted| doubted.borrow().is_none()) {
            continue;
        }
        // The identity comes before the lists, so that a list of another cluster never counts as
        // the second one. Without an answer nothing is listed; the next round tries again.
        if let Ok(id) = ask(&api).await {
            tell(id);
            watches.iter().for_each(Prompt::everything);
        }
    }
}

/// Waits until a party doubts a list; false once all parties have ended.
async fn is_any_doubted(doubts: &mut Vec<watch::Receiver<Option<HeldLists>>>) -> bool {
    loop {
        let waiting =
            doubts.iter_mut().map(|doubted| doubted.wait_for(Option::is_some).map_ok(drop).boxed());
        if waiting.len() == 0 {
            return false;
        }
        let (found, place, _) = select_all(waiting).await;
        if found.is_ok() {
            return true;
        }
        // The sender is gone: this party has ended.
        drop(doubts.swap_remove(place));
    }
}
