//! The cluster manager: assigns subnets, node ids and addresses to nodes. It writes to the API
//! server only, and knows nothing of OVN.
//!
//! ```text
//! nodes ─▶ NodeAssignments ─annotations─▶ Writing ─▶ API server
//!   └─ record lost ─▶ ▲ │ └─ nodes that are gone ─▶ record ─▶ the next leader
//!      pods' networks ┘ └─ troubles ─▶ events on the node, gauges
//! ```
//!
//! [`node_assignments`](crate::node_assignments) decides; this module only brings
//! observations there and annotations back.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kubeapi::{Connection, election::Leadership, events::Recorder};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    time::interval,
};

use crate::{
    annotate::{self, AnnotationWriter},
    cluster_id::ClusterId,
    kinds::node::object::Node,
    node_assignments::{FormerNodes, NodeAnnotation, NodeAssignments},
    safety_brake::HeldLists,
    watch_event::{Kind, Seen, WatchEvent},
};

pub use crate::cluster_manager::metrics::ClusterManagerMetrics;

mod evidence;
mod metrics;
mod record;

/// How often the pods of nodes are looked for that are gone. Only what is due is asked for.
const LOOK: Duration = Duration::from_secs(60);

/// The running role; it ends when this is dropped.
#[derive(Debug)]
pub struct ClusterManager {
    doubted: watch::Receiver<Option<HeldLists>>,
    writing: AnnotationWriter,
    task: tokio::task::JoinHandle<()>,
}

impl ClusterManager {
    /// The kinds of objects that it observes.
    pub const KINDS: &[Kind] = &[Kind::Node];

    /// Starts the role, which works while this process leads. It decides nothing before `believed`
    /// completes: the API server is known to be the right cluster's by other evidence, such as the
    /// northbound database, and returns that cluster if it is known. Returns at once. Needs a tokio
    /// runtime.
    pub fn start(
        ClusterManagerInputs { api, leadership, recorder, namespace, observations }: ClusterManagerInputs,
        assignments: NodeAssignments,
        believed: impl Future<Output = ClusterId> + Send + 'static,
        annotation_metrics: annotate::AnnotationMetrics,
        metrics: ClusterManagerMetrics,
    ) -> Self {
        let (annotations, wishes) = unbounded_channel();
        let (doubts, doubted) = watch::channel(None);
        let (records, recorded) = watch::channel(FormerNodes::new());
        let mut role = Role {
            api: api.clone(),
            assignments,
            annotations,
            doubts,
            records,
            recorder: recorder.clone(),
            metrics,
        };
        let of_records = (api.clone(), leadership.clone());
        let writing =
            AnnotationWriter::start(api, leadership.clone(), recorder, annotation_metrics, wishes);
        let task = tokio::spawn(async move {
            leadership.won().await;
            let work = async {
                if let Some(own) = believed.await {
                    role.assignments.works_for(own);
                }
                let Some(namespace) = namespace else { return role.run(observations).await };
                let (api, leadership) = of_records;
                role.assignments.restore(record::read(&api, &namespace).await);
                tokio::join!(
                    record::write(api, namespace, leadership, recorded),
                    role.run(observations)
                );
            };
            // `biased`: a lost leadership ends the work before the next observation is handled.
            tokio::select! {
                biased;
                () = leadership.lost() => {}
                () = work => {}
            }
        });
        Self { doubted, writing, task }
    }

    /// The list of nodes that the role doubts; none if it believes it.
    pub fn doubted(&self) -> watch::Receiver<Option<HeldLists>> {
        self.doubted.clone()
    }

    /// Waits for the end of the patcher: see [`AnnotationWriter::ended`]. Cancellation-safe.
    pub async fn ended(&mut self) {
        self.writing.ended().await;
    }
}

impl Drop for ClusterManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The dependencies of the role.
#[derive(Debug)]
pub struct ClusterManagerInputs {
    pub api: Connection,
    pub leadership: Leadership,
    pub recorder: Recorder,
    /// Where a Lease records the nodes that are gone, for the next leader; none: only their pods
    /// tell.
    pub namespace: Option<String>,
    /// Nodes, and the identity of their cluster.
    pub observations: UnboundedReceiver<WatchEvent>,
}

struct Role {
    api: Connection,
    assignments: NodeAssignments,
    annotations: UnboundedSender<NodeAnnotation>,
    doubts: watch::Sender<Option<HeldLists>>,
    records: watch::Sender<FormerNodes>,
    recorder: Recorder,
    metrics: ClusterManagerMetrics,
}

impl Role {
    async fn run(mut self, mut observations: UnboundedReceiver<WatchEvent>) {
        let mut looks = interval(LOOK);
        loop {
            tokio::select! {
                observation = observations.recv() => match observation {
                    Some(observation) => self.observe(observation).await,
                    None => return,
                },
                _ = looks.tick() => {}
            }
            // Decide once for all queued observations: a later one may free what an earlier node
            // needs.
            while let Ok(observation) = observations.try_recv() {
                self.observe(observation).await;
            }
            self.look_for_pods().await;
            if let Some(record) = self.assignments.take_former() {
                self.records.send_replace(record);
            }
            self.tell_doubt();
            for annotation in self.assignments.take_annotations() {
                tracing::info!(
                    node = %annotation.node,
                    annotations = ?annotation.annotations,
                    "assigning annotations to a node"
                );
                // Fails only if the patcher has ended; then this task ends, too.
                let _ = self.annotations.send(annotation);
            }
            for problem in self.assignments.take_problems() {
                self.recorder.event(problem.report());
            }
            self.metrics.show(&self.assignments);
        }
    }
}

impl Role {
    async fn observe(&mut self, observation: WatchEvent) {
        self.assignments.at(now());
        match observation {
            WatchEvent::Nodes(seen) => {
                if let Seen::All(nodes) = &seen {
                    self.recall(nodes).await;
                }
                self.assignments.observe(seen);
            }
            WatchEvent::Cluster(id) => self.assignments.cluster(id),
            // This role subscribes to nodes only.
            WatchEvent::Namespaces(_)
            | WatchEvent::Pods(_)
            | WatchEvent::Policies(_)
            | WatchEvent::ClusterPolicies(..)
            | WatchEvent::Custom(_)
            | WatchEvent::Name(..)
            | WatchEvent::Reread(..)
            | WatchEvent::Connection(_)
            | WatchEvent::Services(_)
            | WatchEvent::Slices(_)
            | WatchEvent::Ranges(_) => {}
        }
    }

    /// Looks for the subnets of nodes whose record was lost while no cluster manager ran, and of
    /// nodes that have gone meanwhile.
    async fn recall(&mut self, nodes: &[Node]) {
        if !self.assignments.needs_evidence() {
            return;
        }
        let recorded = NodeAssignments::with_record(nodes);
        let networks = match evidence::networks_elsewhere(&self.api, recorded).await {
            Some(networks) => networks,
            None => {
                let mut networks = evidence::Networks::new();
                for name in self.assignments.without_record(nodes) {
                    networks.insert(
                        Arc::clone(&name),
                        evidence::networks_of_pods(&self.api, &name).await,
                    );
                }
                networks
            }
        };
        for (name, networks) in networks {
            tracing::warn!(
                node = %name,
                networks = ?networks,
                "no annotation has the subnet of a node; its pods are in these networks"
            );
            self.assignments.recall(name, networks);
        }
    }

    /// Looks for pods of nodes that are gone, so that a subnet without pods becomes free.
    async fn look_for_pods(&mut self) {
        self.assignments.at(now());
        for name in self.assignments.due() {
            match evidence::networks_left(&self.api, &name).await {
                Ok(networks) => self.assignments.left(&name, &networks),
                Err(trouble) => {
                    tracing::debug!(node = %name, problem = %trouble, "cannot look for pods of a node that is gone");
                    return;
                }
            }
        }
    }

    fn tell_doubt(&self) {
        let now = self.assignments.doubted();
        // Only a change is logged and sent: a receiver that is woken begins a second look.
        self.doubts.send_if_modified(|before| {
            if *before == now {
                return false;
            }
            match &now {
                Some(doubted) => tracing::warn!(nodes = doubted.nodes, "{doubted}"),
                None => tracing::info!("the list of nodes is accepted again"),
            }
            *before = now;
            true
        });
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    Timestamp::now().as_second()
}

#[cfg(test)]
mod tests;
