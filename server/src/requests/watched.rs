//! `POST /watch`: answers when a pod no longer is what the caller configured, so that the plugin
//! need not wait for its port in vain.

use std::collections::BTreeSet;

use contract::{
    names::Network,
    wire::{PodChange, WatchAnswer, WatchRequest},
};
use ipnet::IpNet;
use tokio::time::sleep;

use super::{ApiResponse, HandlerState, Phase};
use crate::{
    api_error::ApiError,
    events::LATE,
    pods::{Pod, Readiness},
};

impl HandlerState {
    /// No deadline: it ends with the caller's connection, or with a refusal at shutdown.
    pub(super) async fn watched(&self, request: WatchRequest) -> Result<ApiResponse, ApiError> {
        let (pod, uid) = (request.pod()?, request.uid.clone());
        let mut watch = self.source.watch(&pod);
        let mut view = PodView::new(request);
        let network = view.network.clone();
        let change = async {
            loop {
                let synced = self.source.readiness() == Readiness::Synced;
                match view.look(watch.now().as_deref()) {
                    // Before the source is synced, a pod that is not known may exist.
                    Some(PodChange::Deleted) if view.known.is_none() && !synced => {}
                    Some(change) => return change,
                    None => {}
                }
                watch.changed().await;
            }
        };
        // Reports once, and never ends: only a change of the pod or the shutdown ends the watch.
        let late = async {
            sleep(LATE).await;
            let uid = self.uid(&pod).unwrap_or(uid);
            self.events.late_port(&pod, &uid, &network);
            std::future::pending().await
        };
        let change = tokio::select! {
            change = change => change,
            () = self.reached(Phase::Draining) => return Err(ApiError::ShuttingDown),
            never = late => never,
        };
        tracing::info!(%change, "told the plugin");
        ApiResponse::json(&WatchAnswer { change })
    }
}

/// What the caller configured, and what the first look at the pod showed.
#[derive(Debug)]
struct PodView {
    request: WatchRequest,
    network: Network,
    known: Option<KnownPod>,
}

#[derive(Debug)]
struct KnownPod {
    incarnation: u64,
    addresses: BTreeSet<IpNet>,
}

impl PodView {
    fn new(request: WatchRequest) -> Self {
        // The key alone identifies the annotation.
        let network = Network::of_key(request.nad.clone(), String::new());
        Self { request, network, known: None }
    }

    /// What has changed, if anything.
    fn look(&mut self, pod: Option<&Pod>) -> Option<PodChange> {
        let Some(pod) = pod else { return Some(PodChange::Deleted) };
        let (asked, there) = (self.request.uid.as_str(), pod.facts.uid.as_str());
        // An empty UID is unknown, and differs from none.
        let other_uid = !asked.is_empty() && !there.is_empty() && asked != there;
        if other_uid
            || self.known.as_ref().is_some_and(|known| known.incarnation != pod.incarnation)
        {
            return Some(PodChange::Replaced);
        }
        let network = match pod.network(&self.network) {
            Ok(Some(network)) => network,
            Ok(None) => return Some(PodChange::AnnotationGone),
            Err(_) => return Some(PodChange::AnnotationChanged),
        };
        let addresses: BTreeSet<IpNet> = network.addresses.iter().copied().collect();
        // The request names the MAC only, so addresses are compared with those of the first look.
        let known = self.known.get_or_insert_with(|| KnownPod {
            incarnation: pod.incarnation,
            addresses: addresses.clone(),
        });
        let same = known.addresses == addresses && self.request.mac.parse() == Ok(network.mac);
        (!same).then_some(PodChange::AnnotationChanged)
    }
}

#[cfg(test)]
mod tests;
