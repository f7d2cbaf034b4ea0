//! What is counted of the control plane's dealings with the API server. Names that upstream has keep its meaning.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// The counters; clones are the same ones.
#[derive(Debug, Clone)]
pub struct Metrics {
    patches: IntCounterVec,
    waiting: IntGaugeVec,
    refused: IntGaugeVec,
    watch_restarts: IntCounterVec,
    leader: IntGauge,
}

impl Metrics {
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            patches: IntCounterVec::new(
                Opts::new(
                    "ovnkube_controller_annotation_patches_total",
                    "Attempts to write annotations of nodes and pods, by what came of them.",
                ),
                &["kind", "result"],
            )?,
            waiting: IntGaugeVec::new(
                Opts::new("ovnkube_controller_annotations_waiting", "Objects whose annotations are not written yet."),
                &["kind"],
            )?,
            refused: IntGaugeVec::new(
                Opts::new(
                    "ovnkube_controller_annotations_refused",
                    "Objects whose annotations the API server refused when they were tried last, by reason.",
                ),
                &["kind", "reason"],
            )?,
            watch_restarts: IntCounterVec::new(
                Opts::new("ovnkube_controller_watch_restarts_total", "How often all objects had to be read again."),
                &["kind"],
            )?,
            leader: IntGauge::new("ovnkube_controller_leader", "Whether this process is the leader (1) or waits for its turn (0).")?,
        };
        registry.register(Box::new(metrics.patches.clone()))?;
        registry.register(Box::new(metrics.waiting.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        registry.register(Box::new(metrics.watch_restarts.clone()))?;
        registry.register(Box::new(metrics.leader.clone()))?;
        Ok(metrics)
    }

    pub fn patched(&self, kind: &str, result: &str) {
        self.patches.with_label_values(&[kind, result]).inc();
    }

    pub fn waiting(&self, kind: &str, objects: usize) {
        self.waiting.with_label_values(&[kind]).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// So many more objects of `kind` are refused for this reason; or fewer.
    pub fn refused(&self, kind: &str, reason: &str, more: i64) {
        self.refused.with_label_values(&[kind, reason]).add(more);
    }

    pub(crate) fn watch_restarted(&self, kind: &str) {
        self.watch_restarts.with_label_values(&[kind]).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }
}
