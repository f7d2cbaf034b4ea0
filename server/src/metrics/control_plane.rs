//! What is counted and timed of the control plane: what the package `controller` has of its own, and of the process what nobody else says.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use controller::{annotate, cluster_manager, metrics as rows};
use kubeapi::metrics as api_server;
use prometheus::{Gauge, IntGauge, IntGaugeVec, Registry};

use super::{Measurements, Metrics, conditions_met, encoded, files::LogFiles, process::Process, register::Register};
use crate::{
    conditions::{Conditions, Part},
    control_plane::Roles,
};

/// The control plane's measurements.
#[derive(Debug)]
pub struct ControlPlaneMetrics {
    registry: Registry,
    pub(crate) rows: rows::Metrics,
    pub(crate) api_server: api_server::Metrics,
    pub(crate) annotations: annotate::Metrics,
    pub(crate) cluster_manager: cluster_manager::Metrics,
    conditions: IntGaugeVec,
    ready_duration: Gauge,
    cluster_manager_leads: Option<IntGauge>,
    /// Where no node's server tells the same of this process.
    alone: Option<(LogFiles, Process)>,
    started: Instant,
    /// Held by whoever brings up to date what is read from elsewhere.
    collecting: Mutex<()>,
}

/// Those of a control plane and of a node's server in one process.
#[derive(Debug)]
pub struct Combined {
    pub node: Arc<Metrics>,
    pub control_plane: Arc<ControlPlaneMetrics>,
}

impl ControlPlaneMetrics {
    /// Of a process that is nothing else. The size of `log_file` is told.
    pub fn alone(roles: Roles, log_file: PathBuf) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let register = Register(&registry);
        let prefix = prefix(roles);
        register.build_info(&format!("{prefix}_build_info"));
        let files = LogFiles::register(&register, &format!("{prefix}_logfile_size_bytes"), [log_file]);
        let process = Process::register(&register);
        Self::register(roles, registry, Some((files, process)))
    }

    /// Of a process that is a node's server, too, and tells all in one page.
    pub fn beside(roles: Roles, node: &Metrics) -> prometheus::Result<Self> {
        Self::register(roles, node.registry.clone(), None)
    }

    fn register(roles: Roles, registry: Registry, alone: Option<(LogFiles, Process)>) -> prometheus::Result<Self> {
        let register = Register(&registry);
        let prefix = prefix(roles);
        Ok(Self {
            rows: rows::Metrics::register(&registry)?,
            api_server: api_server::Metrics::register(&registry)?,
            annotations: annotate::Metrics::register(&registry)?,
            cluster_manager: cluster_manager::Metrics::register(&registry)?,
            conditions: register.int_gauges(
                &format!("{prefix}_condition_met"),
                "What the control plane needs to do its work: 1 if it is there, 0 if not (see /readyz for the reason).",
                &["condition"],
            ),
            ready_duration: register.gauge(
                &format!("{prefix}_ready_duration_seconds"),
                "From the start of the control plane until it did its work, or stood by for another one; 0 until then.",
            ),
            cluster_manager_leads: roles.has_cluster_manager().then(|| {
                register.int_gauge(
                    "ovnkube_clustermanager_leader",
                    "Whether this process is the cluster manager that acts (1) or stands by (0).",
                )
            }),
            alone,
            started: Instant::now(),
            collecting: Mutex::new(()),
            registry,
        })
    }

    /// Everything that is needed was there for the first time.
    pub(crate) fn became_ready(&self) {
        self.ready_duration.set(self.started.elapsed().as_secs_f64());
    }

    pub(crate) fn leads(&self, leads: bool) {
        if let Some(gauge) = &self.cluster_manager_leads {
            gauge.set(leads.into());
        }
    }

    /// Brings up to date what is not counted where it happens.
    fn look(&self, conditions: &Conditions) {
        conditions_met(&self.conditions, conditions, &Part::CONTROL_PLANE);
        if let Some((files, process)) = &self.alone {
            files.look();
            process.look();
        }
    }
}

impl Measurements for ControlPlaneMetrics {
    fn text(&self, conditions: &Conditions) -> prometheus::Result<String> {
        let collecting = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(conditions);
        let families = self.registry.gather();
        drop(collecting);
        encoded(&families)
    }
}

impl Combined {
    /// Adds the control plane's to a node's.
    pub(crate) fn of(roles: Roles, node: &Arc<Metrics>) -> prometheus::Result<Self> {
        let control_plane = Arc::new(ControlPlaneMetrics::beside(roles, node)?);
        Ok(Self { node: Arc::clone(node), control_plane })
    }
}

impl Measurements for Combined {
    fn text(&self, conditions: &Conditions) -> prometheus::Result<String> {
        self.control_plane.look(conditions);
        self.node.text(conditions)
    }
}

/// Upstream's, of a process with this role.
fn prefix(roles: Roles) -> &'static str {
    match roles {
        Roles::ClusterManager => "ovnkube_clustermanager",
        Roles::Controller | Roles::Both => "ovnkube_controller",
    }
}
