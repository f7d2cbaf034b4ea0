//! What is counted of annotations that are written.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// The counters; clones are the same ones.
#[derive(Debug, Clone)]
pub struct Metrics {
    patches: IntCounterVec,
    waiting: IntGaugeVec,
    refused: IntGaugeVec,
}

impl Metrics {
    /// # Errors
    ///
    /// Something else has these names.
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
        };
        registry.register(Box::new(metrics.patches.clone()))?;
        registry.register(Box::new(metrics.waiting.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        Ok(metrics)
    }

    pub(super) fn patched(&self, kind: &str, result: &str) {
        self.patches.with_label_values(&[kind, result]).inc();
    }

    pub(super) fn waiting(&self, kind: &str, objects: usize) {
        self.waiting.with_label_values(&[kind]).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// So many more objects of `kind` are refused for this reason; or fewer.
    pub(super) fn refused(&self, kind: &str, reason: &str, more: i64) {
        self.refused.with_label_values(&[kind, reason]).add(more);
    }
}
