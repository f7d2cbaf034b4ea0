//! Metrics of the patcher.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// The counters and gauges; clones share them.
#[derive(Debug, Clone)]
pub struct AnnotationMetrics {
    patches: IntCounterVec,
    waiting: IntGaugeVec,
    refused: IntGaugeVec,
}

impl AnnotationMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    ///
    /// The registry already has a metric of one of these names.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            patches: IntCounterVec::new(
                Opts::new(
                    "ovnkube_controller_annotation_patches_total",
                    "Attempts to write annotations of nodes and pods, and the status of policies, by what \
                     came of them.",
                ),
                &["kind", "result"],
            )?,
            waiting: IntGaugeVec::new(
                Opts::new(
                    "ovnkube_controller_annotations_waiting",
                    "Objects whose annotations or status are not written yet.",
                ),
                &["kind"],
            )?,
            refused: IntGaugeVec::new(
                Opts::new(
                    "ovnkube_controller_annotations_refused",
                    "Objects whose annotations or status the API server refused when they were tried last, \
                     by reason.",
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

    /// Adds `more`, which may be negative, to the objects of `kind` that are refused for `reason`.
    pub(super) fn refused(&self, kind: &str, reason: &str, more: i64) {
        self.refused.with_label_values(&[kind, reason]).add(more);
    }
}
