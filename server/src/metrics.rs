//! What is counted and timed for Prometheus. Knows nothing of how it is served.
//!
//! Upstream's names keep their labels and buckets, so that dashboards go on; what is new has the same prefix. However wild the callers,
//! labels come from closed sets: no pod's name, nobody's text.

use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use contract::{error::Code, wire};
use prometheus::{Gauge, IntCounterVec, IntGaugeVec, Registry, TextEncoder, proto::MetricFamily};

use self::{attachments::Attachments, files::LogFiles, process::Process, register::Register, reports::Reports, requests::Requests};
use crate::{
    attachments::Reason,
    conditions::{Conditions, Part},
};

mod attachments;
mod control_plane;
mod files;
mod process;
mod register;
mod reports;
mod requests;

pub use control_plane::{Combined, ControlPlaneMetrics};
pub use requests::{AnnotationWait, InProgress};

/// The media type of [`Metrics::text`] (Prometheus, "Exposition formats").
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All of the server's measurements.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reports: Reports,
    requests: Requests,
    attachments: Attachments,
    reconnects: IntCounterVec,
    conditions: IntGaugeVec,
    degraded: IntGaugeVec,
    ready_duration: Gauge,
    log_files: LogFiles,
    process: Process,
    started: Instant,
    /// Held by whoever brings up to date what is read from elsewhere.
    collecting: Mutex<()>,
}

/// What is shown under `/metrics`.
pub trait Measurements: fmt::Debug + Send + Sync {
    /// Everything as Prometheus' text format; see [`CONTENT_TYPE`]. Reads `/proc` and looks at the logs, so it blocks.
    fn text(&self, conditions: &Conditions) -> Result<String, prometheus::Error>;
}

/// Whom the server talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    ApiServer,
    OpenVSwitch,
}

impl Peer {
    pub const ALL: [Self; 2] = [Self::ApiServer, Self::OpenVSwitch];

    /// As the label says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "api-server",
            Self::OpenVSwitch => "open-vswitch",
        }
    }
}

/// What is away without being this node's: running pods go on, new ones may have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degraded {
    ApiServer,
    SouthboundDatabase,
}

impl Degraded {
    pub const ALL: [Self; 2] = [Self::ApiServer, Self::SouthboundDatabase];

    /// As the label says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "api-server",
            Self::SouthboundDatabase => "southbound-database",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::with_log_files([])
    }
}

impl Metrics {
    /// Starts counting, and the clock of [`Metrics::became_ready`]. The sizes of these files are told.
    pub fn with_log_files(log_files: impl IntoIterator<Item = PathBuf>) -> Self {
        let registry = Registry::new();
        let register = Register(&registry);
        let reconnects = register.counters("ovnkube_node_reconnects_total", "Connections that were lost and are there again.", &["peer"]);
        Peer::ALL.iter().for_each(|peer| reconnects.with_label_values(&[peer.name()]).inc_by(0));
        let degraded = register.int_gauges(
            "ovnkube_node_degraded",
            "What is away that is not this node's: 1 while it is. Running pods go on, new ones may have to wait; STATUS is not affected.",
            &["cause"],
        );
        Degraded::ALL.iter().for_each(|cause| degraded.with_label_values(&[cause.name()]).set(0));
        register.build_info("ovnkube_node_build_info");
        // Services are OVN's load balancers here: upstream's server says 1 where it opens node ports itself.
        register.gauge("ovnkube_node_nodeport_enabled", "Whether this program opens node ports on the node; it never does.");
        Self {
            reports: Reports::register(&register),
            requests: Requests::register(&register),
            attachments: Attachments::register(&register),
            reconnects,
            conditions: register.int_gauges(
                "ovnkube_node_condition_met",
                "What the server needs before a pod can have its network: 1 if it is there, 0 if not (see /readyz for the reason).",
                &["condition"],
            ),
            degraded,
            ready_duration: register.gauge(
                "ovnkube_node_ready_duration_seconds",
                "From the start of the server until pods could have their network; 0 until then.",
            ),
            log_files: LogFiles::register(&register, "ovnkube_node_logfile_size_bytes", log_files),
            process: Process::register(&register),
            started: Instant::now(),
            collecting: Mutex::new(()),
            registry,
        }
    }

    /// A connection to `peer` was lost and is there again.
    pub fn reconnected(&self, peer: Peer) {
        self.reconnects.with_label_values(&[peer.name()]).inc();
    }

    /// Whether something central is away, as this node sees it.
    pub fn degraded(&self, cause: Degraded, is_away: bool) {
        self.degraded.with_label_values(&[cause.name()]).set(is_away.into());
    }

    /// So many ports of new pods were written in a transaction.
    pub(crate) fn written(&self, ports: usize) {
        self.attachments.written(ports);
    }

    /// So many ports of pods had vanished and are there again.
    pub(crate) fn put_back(&self, ports: usize) {
        self.attachments.put_back(ports);
    }

    /// What was left of a pod's network was removed.
    pub(crate) fn removed(&self, reason: Reason) {
        self.attachments.removed(reason);
    }

    /// Everything that a pod needs is there.
    pub fn became_ready(&self) {
        self.ready_duration.set(self.started.elapsed().as_secs_f64());
    }

    /// The plugin tells how one of its calls went.
    pub fn reported(&self, report: &wire::Metrics) {
        self.reports.count(report);
    }

    /// A request is being answered until the guard is dropped. `command` is a verb of CNI, or `watch`.
    pub fn in_progress(&self, command: Option<&str>) -> InProgress {
        self.requests.in_progress(command)
    }

    /// A connection of a plugin is open until the guard is dropped.
    pub fn connected(&self) -> InProgress {
        self.requests.connected()
    }

    /// A request was answered with an error.
    pub fn refused(&self, code: Code) {
        self.requests.refused(code);
    }

    /// An ADD waits for its pod's annotation until it says how that ended.
    pub fn annotation_wait(&self) -> AnnotationWait {
        self.requests.annotation_wait()
    }

    /// Everything as Prometheus' text format; see [`CONTENT_TYPE`]. Reads `/proc` and looks at the logs, so it blocks.
    pub fn text(&self, conditions: &Conditions) -> Result<String, prometheus::Error> {
        let collecting = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        conditions_met(&self.conditions, conditions, &Part::NODE);
        self.log_files.look();
        self.process.look();
        let families = self.registry.gather();
        drop(collecting);
        encoded(&families)
    }
}

impl Measurements for Metrics {
    fn text(&self, conditions: &Conditions) -> Result<String, prometheus::Error> {
        self.text(conditions)
    }
}

/// Sets a gauge for each of these parts that is waited for at all.
fn conditions_met(gauges: &IntGaugeVec, conditions: &Conditions, parts: &[Part]) {
    let missing = conditions.all_missing();
    for part in conditions.parts().iter().filter(|part| parts.contains(part)) {
        gauges.with_label_values(&[part.name()]).set(i64::from(!missing.contains_key(part)));
    }
}

fn encoded(families: &[MetricFamily]) -> Result<String, prometheus::Error> {
    let mut text = String::new();
    TextEncoder::new().encode_utf8(families, &mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
