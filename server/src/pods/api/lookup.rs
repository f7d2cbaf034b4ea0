//! The request for one pod, for an ADD that comes before the watch reports the pod. Concurrent
//! requests for a pod are one.
//!
//! It is a list of at most one pod. The API server reads it by its key, as it does for a GET, but a
//! list can be limited to this node.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use contract::names::PodKey;
use kube::{api::ListParams, core::request};
use kubeapi::watch::Page;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    Shared,
    pod_meta::{PodMeta, VersionedPod},
};

/// The timeout of a lookup, with the wait for its turn. Less than an ADD waits for a pod that is
/// not known (`GRACE`, 5 s), so that the answer is of use to the ADD that caused it.
const DEADLINE: Duration = Duration::from_secs(4);

/// The lookups in flight.
#[derive(Debug)]
pub(super) struct Lookups {
    pods: Mutex<HashSet<PodKey>>,
    at_once: Semaphore,
}

impl Lookups {
    pub(super) fn new(at_once: Semaphore) -> Self {
        Self { pods: Mutex::default(), at_once }
    }

    fn pods(&self) -> MutexGuard<'_, HashSet<PodKey>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks `pod` up, unless a lookup of it is in flight. The answer reaches callers by the pod's
/// watch.
pub(super) fn start(shared: &Arc<Shared>, pod: &PodKey) {
    if !shared.lookups.pods().insert(pod.clone()) {
        return;
    }
    let (shared, pod) = (Arc::clone(shared), pod.clone());
    tokio::spawn(async move {
        let outcome = timeout(DEADLINE, look_up(&shared, &pod)).await;
        // Before the answer is taken: an ADD that comes now may start another lookup, and must not
        // rely on this one.
        shared.lookups.pods().remove(&pod);
        match outcome {
            Ok(Ok(Some(seen))) => {
                let news = shared.versioned_pods().looked_up(seen);
                tracing::debug!(%pod, news, "looked a pod up");
                // The watch should have reported it: it may hang, or wait for its next attempt to
                // connect.
                if news {
                    shared.prompt.nudge();
                }
            }
            Ok(Ok(None)) => {
                tracing::debug!(%pod, node = shared.node, "the API server knows no such pod of this node");
            }
            Ok(Err(error)) => {
                let problem = shared.connection.trouble(&error).text;
                tracing::info!(%pod, problem, "a pod could not be looked up");
            }
            Err(_) => {
                tracing::info!(%pod, problem = "no answer in time", "a pod could not be looked up")
            }
        }
    });
}

async fn look_up(shared: &Shared, pod: &PodKey) -> Result<Option<VersionedPod>, kube::Error> {
    let _permit = shared.lookups.at_once.acquire().await;
    let selector = format!("metadata.name={},spec.nodeName={}", pod.name(), shared.node);
    let path = format!("/api/v1/namespaces/{}/pods", pod.namespace());
    let request = request::Request::new(path)
        .list_metadata(&ListParams::default().fields(&selector))
        .map_err(kube::Error::BuildRequest)?;
    let text = shared.connection.client().request_text(request).await?;
    let list: Page<PodMeta> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
    Ok(list
        .items
        .into_iter()
        .flatten()
        // Compared, so that an answer that ignores the selector is not taken for this pod.
        .find_map(|meta| VersionedPod::try_from(meta).ok().filter(|seen| seen.pod == *pod)))
}
