//! What is followed of the cluster, and by whom: one watch of each kind of object, however many parties there are.
//!
//! ```text
//! which cluster it is ─▶ every party
//! watch of nodes ──────▶ every party
//! watch of pods ───────▶ who wants them
//!      ▲ everything once more            │
//!      └──── second look ◀── a party doubts a list
//! ```
//!
//! Knows nothing of what parties do with what they hear.

use std::sync::Arc;

use kubeapi::{
    Connection,
    election::Leadership,
    metrics::Metrics,
    watch::{Standing, Watch},
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

/// Somebody who hears of the cluster: the cluster manager or the controller.
#[derive(Debug, Clone)]
pub struct Party {
    pub observations: UnboundedSender<Observation>,
    pub wants: Wants,
    /// Which lists it does not believe.
    pub doubted: watch::Receiver<Option<Doubted>>,
}

/// What a party hears of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    Nodes,
    NodesAndPods,
}

impl ClusterWatch {
    /// Follows all that one of the parties wants as soon as this process leads. Every party hears which cluster it is before it hears of
    /// anything else, and again with each second look. Returns at once. Needs a tokio runtime.
    pub fn start(api: &Connection, leadership: &Leadership, metrics: &Metrics, parties: &[Party]) -> Self {
        let all: Vec<_> = parties.iter().map(|party| party.observations.clone()).collect();
        let of_pods: Vec<_> =
            parties.iter().filter(|party| party.wants == Wants::NodesAndPods).map(|party| party.observations.clone()).collect();
        // Asked once, before anything is listed.
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
        let nodes = Watch::start_leading::<NodeObject>(api.clone(), leadership.clone(), metrics.clone(), identify(), nodes);
        let pods = (!of_pods.is_empty()).then(|| {
            let pods = move |seen| tell(&of_pods, Observation::Pods(seen));
            Watch::start_leading::<PodObject>(api.clone(), leadership.clone(), metrics.clone(), identify(), pods)
        });
        let doubts = parties.iter().map(|party| party.doubted.clone()).collect();
        let again = [Some(&nodes), pods.as_ref()].into_iter().flatten().map(Watch::prompt).collect();
        let looking_again = cluster_id::look_again(api.clone(), doubts, again, move |id| tell(&all, Observation::Cluster(id)));
        Self { nodes, pods, looking_again: tokio::spawn(looking_again) }
    }

    /// Whether changes are heard of, by kind of object.
    pub fn standings(&self) -> Vec<(&'static str, watch::Receiver<Standing>)> {
        let nodes = ("nodes", self.nodes.standing());
        std::iter::once(nodes).chain(self.pods.iter().map(|pods| ("pods", pods.standing()))).collect()
    }
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        self.looking_again.abort();
    }
}

/// A party that does not listen any more has ended.
fn tell(parties: &[UnboundedSender<Observation>], observation: Observation) {
    let Some((last, others)) = parties.split_last() else { return };
    for party in others {
        let _ = party.send(observation.clone());
    }
    let _ = last.send(observation);
}
