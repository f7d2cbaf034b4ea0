//! The watches of the control plane: one per kind of object, shared by all parties.
//!
//! ```text
//! uid of kube-system ─▶ every party
//! watch of nodes ─────▶ every party
//! watch of pods ──────▶ parties that want pods
//!      ▲ list again                      │
//!      └──── second look ◀── a party doubts a list
//! ```
//!
//! A party is a role that receives observations: the cluster manager or the controller. This module does not
//! know what a party does with them.

use std::sync::Arc;

use kubeapi::{
    Connection,
    election::Leadership,
    metrics::Metrics,
    watch::{SyncStatus, Watch},
};
use tokio::{
    sync::{OnceCell, mpsc::UnboundedSender, watch},
    task::JoinHandle,
};

use crate::{
    cluster_id,
    doubt::Doubted,
    observation::Observation,
    store::wire::{NodeObject, PodObject},
};

/// The watches; they end when this is dropped.
#[derive(Debug)]
pub struct ClusterWatch {
    nodes: Watch,
    pods: Option<Watch>,
    looking_again: JoinHandle<()>,
}

/// A subscriber of the watches: the cluster manager or the controller.
#[derive(Debug, Clone)]
pub struct Party {
    pub observations: UnboundedSender<Observation>,
    pub wants: Wants,
    /// The lists that the party doubts; none if it believes all.
    pub doubted: watch::Receiver<Option<Doubted>>,
}

/// The kinds of objects that a party subscribes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    Nodes,
    NodesAndPods,
}

impl ClusterWatch {
    /// Starts the watches that at least one party wants; they begin when this process leads. Each party
    /// receives the identity of the cluster before anything else, and again with each second look. Returns at
    /// once. Needs a tokio runtime.
    pub fn start(api: &Connection, leadership: &Leadership, metrics: &Metrics, parties: &[Party]) -> Self {
        let all: Vec<_> = parties.iter().map(|party| party.observations.clone()).collect();
        let of_pods: Vec<_> = parties
            .iter()
            .filter(|party| party.wants == Wants::NodesAndPods)
            .map(|party| party.observations.clone())
            .collect();
        // Both watches wait for the identity: a party has to know it before it judges a first list. They
        // share one request.
        let identified = Arc::<OnceCell<()>>::default();
        let identify = || {
            let (api, all, identified) = (api.clone(), all.clone(), Arc::clone(&identified));
            async move {
                let identify = || async { tell(&all, Observation::Cluster(cluster_id::first(&api).await)) };
                identified.get_or_init(identify).await;
            }
        };
        let to = all.clone();
        let nodes = move |seen| tell(&to, Observation::Nodes(seen));
        let nodes = Watch::start_leading::<NodeObject>(
            api.clone(),
            leadership.clone(),
            metrics.clone(),
            identify(),
            nodes,
        );
        let pods = (!of_pods.is_empty()).then(|| {
            let pods = move |seen| tell(&of_pods, Observation::Pods(seen));
            Watch::start_leading::<PodObject>(
                api.clone(),
                leadership.clone(),
                metrics.clone(),
                identify(),
                pods,
            )
        });
        // One second look for all kinds: a list of pods is judged against the nodes, and the identity
        // concerns both.
        let doubts = parties.iter().map(|party| party.doubted.clone()).collect();
        let again = [Some(&nodes), pods.as_ref()].into_iter().flatten().map(Watch::prompt).collect();
        let looking_again = cluster_id::look_again(api.clone(), doubts, again, move |id| {
            tell(&all, Observation::Cluster(id))
        });
        Self { nodes, pods, looking_again: tokio::spawn(looking_again) }
    }

    /// The sync status of each watch, by kind of object (`nodes`, `pods`).
    pub fn sync_statuses(&self) -> Vec<(&'static str, watch::Receiver<SyncStatus>)> {
        let nodes = ("nodes", self.nodes.standing());
        std::iter::once(nodes).chain(self.pods.iter().map(|pods| ("pods", pods.standing()))).collect()
    }
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        // Each `Watch` ends by its own `Drop`.
        self.looking_again.abort();
    }
}

/// Sends an observation to each party. A party whose channel is closed has ended, and is skipped.
fn tell(parties: &[UnboundedSender<Observation>], observation: Observation) {
    // A list of all pods is large: it is cloned for all parties but the last.
    let Some((last, others)) = parties.split_last() else { return };
    for party in others {
        let _ = party.send(observation.clone());
    }
    let _ = last.send(observation);
}
