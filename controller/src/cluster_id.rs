//! Which cluster an API server is: the uid of its namespace `kube-system`, which every cluster has and none shares. And the second look at
//! lists that are doubted.

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

use crate::doubt::Doubted;

/// The namespace that is asked for. Needs `get` on it; without that, two lists have to agree, and that is all.
const NAMESPACE: &str = "kube-system";
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the first question is repeated, when nothing else is known; the lists themselves are asked for as long as it takes.
const FIRST: Duration = Duration::from_secs(30);
/// Between a list that is doubted and the next: longer than an API server takes to start, and its caches to fill; short enough for a mass
/// deletion that is true.
pub const SECOND_LOOK: Duration = Duration::from_secs(10);

/// The identity; none where it may not be asked for.
pub type ClusterId = Option<Arc<str>>;

/// Asks at the start, for as long as the API server does not answer, but not for ever.
pub async fn first(api: &Connection) -> ClusterId {
    let (begun, mut backoff) = (Instant::now(), Backoff::default());
    loop {
        match ask(api).await {
            Ok(id) => return id,
            Err(trouble) if begun.elapsed() > FIRST => {
                tracing::warn!(problem = %trouble, "it is not known which cluster the API server is");
                return None;
            }
            Err(_) => sleep(backoff.next(None)).await,
        }
    }
}

async fn ask(api: &Connection) -> Result<ClusterId, Trouble> {
    let namespaces = Api::<Namespace>::all(api.client().clone());
    match api.ask(PATIENCE, namespaces.get_metadata(NAMESPACE)).await {
        Ok(namespace) => Ok(namespace.metadata.uid.map(Arc::from)),
        Err(Trouble { code: Some(403 | 404), text, .. }) => {
            tracing::info!(reason = text, "which cluster the API server is cannot be asked: the uid of the namespace kube-system");
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}

/// As long as somebody doubts something, asks which cluster it is from time to time, tells, and has everything listed anew.
pub(crate) async fn look_again(
    api: Connection,
    mut doubts: Vec<watch::Receiver<Option<Doubted>>>,
    watches: Vec<Prompt>,
    mut tell: impl FnMut(ClusterId),
) {
    while is_any_doubted(&mut doubts).await {
        sleep(SECOND_LOOK).await;
        // Meanwhile everything may have been listed for another reason.
        if doubts.iter().all(|doubted| doubted.borrow().is_none()) {
            continue;
        }
        // An API server that does not answer says nothing, and lists nothing.
        if let Ok(id) = ask(&api).await {
            tell(id);
            watches.iter().for_each(Prompt::everything);
        }
    }
}

/// Waits until somebody doubts something; false if nobody can any more.
async fn is_any_doubted(doubts: &mut Vec<watch::Receiver<Option<Doubted>>>) -> bool {
    loop {
        let waiting = doubts.iter_mut().map(|doubted| doubted.wait_for(Option::is_some).map_ok(drop).boxed());
        if waiting.len() == 0 {
            return false;
        }
        let (found, place, _) = select_all(waiting).await;
        if found.is_ok() {
            return true;
        }
        // That one has ended.
        drop(doubts.swap_remove(place));
    }
}
