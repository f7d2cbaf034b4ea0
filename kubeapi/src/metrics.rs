//! Metrics of watches and of the leader election. Their names begin as the program says that uses
//! them.

use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

/// The metrics. All clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    watch_restarts: IntCounterVec,
    leader: IntGauge,
}

impl Metrics {
    /// Registers the metrics under names that begin with `prefix`, such as `ovnkube_controller`.
    ///
    /// # Errors
    ///
    /// The registry has a metric of one of these names already, or `prefix` cannot begin a name.
    pub fn register(registry: &Registry, prefix: &str) -> prometheus::Result<Self> {
        let metrics = Self {
            watch_restarts: IntCounterVec::new(
                Opts::new(
                    format!("{prefix}_watch_restarts_total"),
                    "How often all objects had to be read again.",
                ),
                &["kind"],
            )?,
            leader: IntGauge::new(
                format!("{prefix}_leader"),
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

    /// This process leads: it has won the election, or there is none.
    pub fn leads(&self) {
        self.leader.set(1);
    }

    pub(crate) fn leads_no_more(&self) {
        self.leader.set(0);
    }
}
