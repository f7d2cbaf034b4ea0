//! Metrics of the cluster manager.

use std::collections::BTreeMap;

use prometheus::{IntGaugeVec, Opts, Registry};

use crate::{node_assignments::NodeAssignments, problem::ProblemText as _};

/// The gauges; clones share them.
#[derive(Debug, Clone)]
pub struct ClusterManagerMetrics {
    lacking: IntGaugeVec,
}

impl ClusterManagerMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    ///
    /// The registry already has a metric of one of these names.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let lacking = IntGaugeVec::new(
            Opts::new(
                "ovnkube_clustermanager_nodes_lacking",
                "Nodes that do not get all that they need, by the reason of the event on the node.",
            ),
            &["reason"],
        )?;
        registry.register(Box::new(lacking.clone()))?;
        Ok(Self { lacking })
    }

    pub(super) fn show(&self, assignments: &NodeAssignments) {
        let mut by_reason = BTreeMap::<&str, i64>::new();
        for (_, trouble) in assignments.troubles() {
            *by_reason.entry(trouble.reason()).or_default() += 1;
        }
        // A reason that no node has any more must disappear.
        self.lacking.reset();
        for (reason, nodes) in by_reason {
            self.lacking.with_label_values(&[reason]).set(nodes);
        }
    }
}
