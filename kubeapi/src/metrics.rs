//! Metrics of the control plane's watches and of its leader election.

use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

/// The metrics. All clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    watch_restarts: IntCounterVec,
    leader: IntGauge,
}

impl Metrics {
    /// Registers the metrics.
    ///
    /// # Errors
    ///
    /// The registry has a metric of one of these names already.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            watch_restarts: IntCounterVec::new(
                Opts::new(
                    "ovnkube_controller_watch_restarts_total",
                    "How often all objects had to be read again.",
                ),
                &["kind"],
            )?,
            leader: IntGauge::new(
                "ovnkube_controller_leader",
                "Whether this process is the leader (1) or waits for its turn (0).",
            )?,
        };
        registry.register(Box::new(metrics.watch_restarts.clone()))?;
        registry.register(Box::new(metrics.leader.clone()))?;
        Ok(metrics)
    }

    pub(crate) fn watch_restarted(&self, kind: &str) {
        self.watch_restarts.with_label_values(&[kind]).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }
}
