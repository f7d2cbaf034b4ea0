//! Metrics of the control plane: those of the packages that it is made of, and those of the roles
//! themselves.

use std::time::Instant;

use controller::{annotate, cluster_manager, metrics as rows};
use kubeapi::metrics as api_server;
use prometheus::{Gauge, Histogram, HistogramOpts, IntGauge, Registry};

use super::{CONTROLLER, known, prefix};
use crate::roles::Roles;

/// The control plane's metrics.
#[derive(Debug)]
pub struct ControlPlaneMetrics {
    pub(crate) rows: rows::Metrics,
    pub(crate) api_server: api_server::Metrics,
    pub(crate) annotations: annotate::AnnotationMetrics,
    pub(crate) cluster_manager: cluster_manager::ClusterManagerMetrics,
    /// Seconds from a change until all nodes have it, of objects whose owners ask.
    pub(crate) applied: Histogram,
    ready_duration: Gauge,
    cluster_manager_leads: Option<IntGauge>,
    started: Instant,
}

impl ControlPlaneMetrics {
    /// Registers the metrics, and starts the clock of `ovnkube_*_ready_duration_seconds`.
    ///
    /// # Errors
    ///
    /// If the registry has other metrics of these names.
    pub fn register(roles: Roles, registry: &Registry) -> prometheus::Result<Self> {
        let leads = || {
            IntGauge::new(
                "ovnkube_clustermanager_leader",
                "Whether this process is the cluster manager that acts (1) or stands by (0).",
            )
        };
        let ready_duration = Gauge::new(
            format!("{}_ready_duration_seconds", prefix(roles)),
            "From the start of the control plane until it did its work, or stood by for another one; \
             0 until then.",
        );
        let applied = HistogramOpts::new(
            "ovnkube_controller_applied_seconds",
            "From a change of an object until it is in force on all nodes, of objects with the \
             annotation k8s.ovn.org/report-applied.",
        );
        // 1 ms to 33 s.
        let applied = applied.buckets(prometheus::exponential_buckets(0.001, 2.0, 16)?);
        let applied = Histogram::with_opts(applied);
        Ok(Self {
            rows: rows::Metrics::register(registry)?,
            api_server: api_server::Metrics::register(registry, CONTROLLER)?,
            annotations: annotate::AnnotationMetrics::register(registry)?,
            cluster_manager: cluster_manager::ClusterManagerMetrics::register(registry)?,
            applied: known(registry, applied)?,
            ready_duration: known(registry, ready_duration)?,
            cluster_manager_leads: roles
                .has_cluster_manager()
                .then(|| known(registry, leads()))
                .transpose()?,
            started: Instant::now(),
        })
    }

    /// All conditions are met for the first time.
    pub(crate) fn became_ready(&self) {
        self.ready_duration.set(self.started.elapsed().as_secs_f64());
    }

    pub(crate) fn leads(&self, leads: bool) {
        if let Some(gauge) = &self.cluster_manager_leads {
            gauge.set(leads.into());
        }
    }
}
