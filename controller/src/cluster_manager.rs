//! The role that gives nodes their subnets, numbers and addresses. It connects to the API server only, and knows nothing of OVN.
//!
//! ```text
//! watch of nodes ─▶ NodeAssignments ─annotations─▶ Writing ─▶ API server
//!                         └─ troubles ─▶ events on the node, gauges
//! ```
//!
//! Who gets what is decided in [`allocate::node_assignments`](crate::allocate::node_assignments); here is only the way there and back.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    allocate::node_assignments::{NodeAnnotation, NodeAssignments},
    annotate::Writing,
    api_server::{ApiServer, metrics::Metrics as ApiMetrics},
    key::NodeName,
    lead::Leadership,
    object::Object,
    observation::Seen,
    store::{Node, wire::NodeObject},
    tell::{About, Notice, Teller},
    trouble::{NodeTrouble, Trouble},
    watch::{Standing, Watch},
};

mod metrics;

pub use metrics::Metrics;

/// What was being done, in events.
const ACTION: &str = "AssignSubnet";

/// The running role; it ends when this is dropped.
#[derive(Debug)]
pub struct ClusterManager {
    watch: Watch,
    _writing: Writing,
    task: tokio::task::JoinHandle<()>,
}

impl ClusterManager {
    /// Follows all nodes as soon as this process leads, for as long as it does. Returns at once. Needs a tokio runtime.
    pub fn start(
        api: ApiServer,
        assignments: NodeAssignments,
        leadership: Leadership,
        teller: Teller,
        api_metrics: ApiMetrics,
        metrics: Metrics,
    ) -> Self {
        let (observed, observations) = unbounded_channel();
        let (annotations, wishes) = unbounded_channel();
        let tell = move |seen| drop(observed.send(seen));
        let watch = Watch::start_leading::<NodeObject>(api.clone(), leadership.clone(), api_metrics.clone(), tell);
        let writing = Writing::start(api, leadership.clone(), api_metrics, wishes);
        let role = Role { assignments, annotations, teller, metrics };
        let task = tokio::spawn(async move {
            leadership.won().await;
            tokio::select! {
                () = role.run(observations) => {}
                () = leadership.lost() => {}
            }
        });
        Self { watch, _writing: writing, task }
    }

    /// Whether changes of nodes are heard of.
    pub fn standing(&self) -> tokio::sync::watch::Receiver<Standing> {
        self.watch.standing()
    }
}

impl Drop for ClusterManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Role {
    assignments: NodeAssignments,
    annotations: UnboundedSender<NodeAnnotation>,
    teller: Teller,
    metrics: Metrics,
}

impl Role {
    async fn run(mut self, mut observations: UnboundedReceiver<Seen<NodeName, Node>>) {
        while let Some(seen) = observations.recv().await {
            self.assignments.observe(seen);
            // What came meanwhile is decided together.
            while let Ok(seen) = observations.try_recv() {
                self.assignments.observe(seen);
            }
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

fn notice(Trouble { subject, uid, why }: &Trouble<NodeName, NodeTrouble>) -> Notice {
    Notice::new(Object::Node(subject.clone()), uid, About::new(ACTION, why.reason()), why.to_string())
}

#[cfg(test)]
mod tests;
