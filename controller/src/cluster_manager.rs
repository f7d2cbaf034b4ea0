//! The role that gives nodes their subnets, numbers and addresses. It writes to the API server only, and knows nothing of OVN.
//!
//! ```text
//! nodes ─▶ NodeAssignments ─annotations─▶ Writing ─▶ API server
//!                └─ troubles ─▶ events on the node, gauges
//! ```
//!
//! Who gets what is decided in [`allocate::node_assignments`](crate::allocate::node_assignments); here is only the way there and back.

use kubeapi::{
    Connection,
    election::Leadership,
    events::{About, Notice, Teller},
    object::Object,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    watch,
};

use crate::{
    allocate::node_assignments::{NodeAnnotation, NodeAssignments},
    annotate::{self, Writing},
    doubt::Doubted,
    key::NodeName,
    observation::Observation,
    trouble::{NodeTrouble, Trouble},
};

mod metrics;

pub use metrics::Metrics;

/// What was being done, in events.
const ACTION: &str = "AssignSubnet";

/// The running role; it ends when this is dropped.
#[derive(Debug)]
pub struct ClusterManager {
    doubted: watch::Receiver<Option<Doubted>>,
    writing: Writing,
    task: tokio::task::JoinHandle<()>,
}

impl ClusterManager {
    /// Serves the nodes that it hears of as soon as this process leads, for as long as it does. `believed`: when it is known that they are of
    /// the right cluster, as far as anything but the API server can tell. Returns at once. Needs a tokio runtime.
    pub fn start(
        Told { api, leadership, teller, observations }: Told,
        assignments: NodeAssignments,
        believed: impl Future<Output = ()> + Send + 'static,
        annotation_metrics: annotate::Metrics,
        metrics: Metrics,
    ) -> Self {
        let (annotations, wishes) = unbounded_channel();
        let (doubts, doubted) = watch::channel(None);
        let writing = Writing::start(api, leadership.clone(), teller.clone(), annotation_metrics, wishes);
        let role = Role { assignments, annotations, doubts, teller, metrics };
        let task = tokio::spawn(async move {
            leadership.won().await;
            let work = async {
                believed.await;
                role.run(observations).await;
            };
            tokio::select! {
                biased;
                () = leadership.lost() => {}
                () = work => {}
            }
        });
        Self { doubted, writing, task }
    }

    /// What the API server lists and is not believed.
    pub fn doubted(&self) -> watch::Receiver<Option<Doubted>> {
        self.doubted.clone()
    }

    /// Waits until nothing that it has begun to write is under way, once the leadership has been resigned or lost. Cancellation-safe.
    pub async fn ended(&mut self) {
        self.writing.ended().await;
    }
}

impl Drop for ClusterManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the role hears, whom it tells, and whether it may.
#[derive(Debug)]
pub struct Told {
    pub api: Connection,
    pub leadership: Leadership,
    pub teller: Teller,
    /// Of nodes, and of which cluster they are.
    pub observations: UnboundedReceiver<Observation>,
}

struct Role {
    assignments: NodeAssignments,
    annotations: UnboundedSender<NodeAnnotation>,
    doubts: watch::Sender<Option<Doubted>>,
    teller: Teller,
    metrics: Metrics,
}

impl Role {
    async fn run(mut self, mut observations: UnboundedReceiver<Observation>) {
        while let Some(observation) = observations.recv().await {
            self.observe(observation);
            // What came meanwhile is decided together.
            while let Ok(observation) = observations.try_recv() {
                self.observe(observation);
            }
            self.tell_doubt();
            for annotation in self.assignments.take_annotations() {
                tracing::info!(node = %annotation.node, annotations = ?annotation.annotations, "a node is given what it lacks");
                // The writer has ended, and so will this.
                let _ = self.annotations.send(annotation);
            }
            for trouble in self.assignments.take_troubles() {
                tracing::warn!(node = %trouble.subject, problem = %trouble.why, "a node does not get all that it needs");
                self.teller.tell(notice(&trouble));
            }
            self.metrics.show(&self.assignments);
        }
    }
}

impl Role {
    fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Nodes(seen) => self.assignments.observe(seen),
            Observation::Cluster(id) => self.assignments.cluster(id),
            // Nobody watches them here.
            Observation::Pods(_) => {}
        }
    }

    fn tell_doubt(&self) {
        let now = self.assignments.doubted();
        self.doubts.send_if_modified(|before| {
            if *before == now {
                return false;
            }
            match &now {
                Some(doubted) => tracing::warn!(nodes = doubted.nodes, "{doubted}"),
                None => tracing::info!("the nodes that the API server lists are believed again"),
            }
            *before = now;
            true
        });
    }
}

fn notice(Trouble { subject, uid, why }: &Trouble<NodeName, NodeTrouble>) -> Notice {
    Notice::new(Object::Node(subject.clone()), uid, About::new(ACTION, why.reason()), why.to_string())
}

#[cfg(test)]
mod tests;
