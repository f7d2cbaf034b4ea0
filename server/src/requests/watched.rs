//! `POST /watch`: answered when a pod is no longer what the caller configured, so that it need not wait for a port in vain.

use std::collections::BTreeSet;

use contract::{
    annotation::PodNetwork,
    names::Network,
    wire::{PodChange, WatchAnswer, WatchRequest},
};
use ipnet::IpNet;
use tokio::time::sleep;

use super::{Desk, Phase, Reply};
use crate::{
    events::LATE,
    pods::{Pod, Readiness},
    refusal::Refusal,
};

impl Desk {
    /// No deadline: the caller ends it with its connection, a shutdown with a refusal.
    pub(super) async fn watched(&self, request: WatchRequest) -> Result<Reply, Refusal> {
        let (pod, uid) = (request.pod()?, request.uid.clone());
        let mut watch = self.source.watch(&pod);
        let mut view = View::new(request);
        let network = view.network.clone();
        let change = async {
            loop {
                let synced = self.source.readiness() == Readiness::Synced;
                match view.look(watch.now().as_deref()) {
                    // Before everything is known, a pod that is not known may well be there.
                    Some(PodChange::Deleted) if view.known.is_none() && !synced => {}
                    Some(change) => return change,
                    None => {}
                }
                watch.changed().await;
            }
        };
        let late = async {
            sleep(LATE).await;
            let uid = self.uid(&pod).unwrap_or(uid);
            self.events.late_port(&pod, &uid, &network);
            std::future::pending().await
        };
        let change = tokio::select! {
            change = change => change,
            () = self.reached(Phase::Draining) => return Err(Refusal::ShuttingDown),
            never = late => never,
        };
        tracing::info!(%change, "told the plugin");
        Reply::json(&WatchAnswer { change })
    }
}

/// What the caller configured, and what was known of the pod at the first look.
#[derive(Debug)]
struct View {
    request: WatchRequest,
    network: Network,
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    incarnation: u64,
    addresses: BTreeSet<IpNet>,
}

impl View {
    fn new(request: WatchRequest) -> Self {
        let network = match request.nad.as_str() {
            "" | "default" => Network::Default,
            // The name in the configuration plays no part in finding the annotation.
            nad => Network::Attachment { name: String::new(), nad: nad.to_owned() },
        };
        Self { request, network, known: None }
    }

    /// What is different now, if anything.
    fn look(&mut self, pod: Option<&Pod>) -> Option<PodChange> {
        let Some(pod) = pod else { return Some(PodChange::Deleted) };
        let (asked, there) = (self.request.uid.as_str(), pod.facts.uid.as_str());
        let other_uid = !asked.is_empty() && !there.is_empty() && asked != there;
        if other_uid || self.known.as_ref().is_some_and(|known| known.incarnation != pod.incarnation) {
            return Some(PodChange::Replaced);
        }
        let network = match PodNetwork::from_annotations(&pod.facts.annotations, &self.network) {
            Ok(Some(network)) => network,
            Ok(None) => return Some(PodChange::AnnotationGone),
            Err(_) => return Some(PodChange::AnnotationChanged),
        };
        let addresses: BTreeSet<IpNet> = network.addresses.into_iter().collect();
        let known = self.known.get_or_insert_with(|| Known { incarnation: pod.incarnation, addresses: addresses.clone() });
        let same = known.addresses == addresses && self.request.mac.parse() == Ok(network.mac);
        (!same).then_some(PodChange::AnnotationChanged)
    }
}

#[cfg(test)]
mod tests;
