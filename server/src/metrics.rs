//! The server's Prometheus metrics. Knows nothing of how they are exposed: the owner of the
//! registry does that.
//!
//! Upstream's names keep their labels and buckets, so that dashboards continue to work; new metrics
//! have the same prefix. Label values come from closed sets, never from the name of a pod or the
//! text of a caller: no caller can add series without limit. The names of policies that are dry
//! runs are the exception, with a limit.

use std::{
    collections::BTreeMap,
    io,
    time::{Instant, SystemTime},
};

use contract::{error::Code, ovn::DryRun, wire};
use prometheus::{Gauge, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use self::{
    attachments::Attachments, certificate::Certificate, dry_runs::DryRuns, register::Register,
    reports::Reports, requests::Requests,
};

mod attachments;
mod certificate;
mod dry_runs;
mod register;
mod reports;
mod requests;

pub use requests::{AnnotationWait, InProgress};

/// All metrics of the server.
#[derive(Debug)]
pub struct Metrics {
    reports: Reports,
    requests: Requests,
    attachments: Attachments,
    certificate: Certificate,
    dry_runs: DryRuns,
    reconnects: IntCounterVec,
    degraded: IntGaugeVec,
    node_ports: IntGauge,
    ready_duration: Gauge,
    started: Instant,
}

/// A peer that the server keeps a connection to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    ApiServer,
    OpenVSwitch,
}

impl Peer {
    pub const ALL: [Self; 2] = [Self::ApiServer, Self::OpenVSwitch];

    /// The value of the label.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "api-server",
            Self::OpenVSwitch => "open-vswitch",
        }
    }
}

/// A central component that is unavailable to this node: running pods go on, new ones may have to
/// wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degraded {
    ApiServer,
    SouthboundDatabase,
}

impl Degraded {
    pub const ALL: [Self; 2] = [Self::ApiServer, Self::SouthboundDatabase];

    /// The value of the label.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "api-server",
            Self::SouthboundDatabase => "southbound-database",
        }
    }
}

/// Why an attachment is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// A port without a link.
    LinkGone,
    /// The pod is gone, and no DEL came.
    PodGone,
    /// A link without a port, whose pod has another sandbox.
    Replaced,
}

impl Reason {
    pub(crate) const ALL: [Self; 3] = [Self::LinkGone, Self::PodGone, Self::Replaced];

    /// The name in the log and in the label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LinkGone => "link-gone",
            Self::PodGone => "pod-gone",
            Self::Replaced => "replaced",
        }
    }
}

impl Default for Metrics {
    /// Metrics in a registry of their own, which nothing exposes.
    fn default() -> Self {
        Self::register(&Registry::new())
            .expect("names are valid and differ: each is written down once")
    }
}

impl Metrics {
    /// Registers the metrics, and starts the clock of [`Metrics::became_ready`].
    ///
    /// # Errors
    ///
    /// If the registry has other metrics of the same names.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let register = Register(registry);
        let reconnects = register.counters(
            "ovnkube_node_reconnects_total",
            "Connections that were lost and re-established.",
            &["peer"],
        )?;
        // Every series exists from the start, so that `rate()` sees the first increment.
        Peer::ALL.iter().for_each(|peer| reconnects.with_label_values(&[peer.name()]).inc_by(0));
        let degraded = register.int_gauges(
            "ovnkube_node_degraded",
            "Whether a central component is unavailable to this node: 1 while it is. Running pods go on, \
             new ones may have to wait; STATUS is not affected.",
            &["cause"],
        )?;
        Degraded::ALL.iter().for_each(|cause| degraded.with_label_values(&[cause.name()]).set(0));
        Ok(Self {
            reports: Reports::register(&register)?,
            requests: Requests::register(&register)?,
            attachments: Attachments::register(&register)?,
            certificate: Certificate::register(&register)?,
            dry_runs: DryRuns::register(&register)?,
            reconnects,
            degraded,
            node_ports: register.int_gauge(
                "ovnkube_node_nodeport_enabled",
                "Whether the node's gateway router serves node ports (--nodeport): 1 if it does. The host \
                 serves them otherwise.",
            )?,
            ready_duration: register.gauge(
                "ovnkube_node_ready_duration_seconds",
                "From the start of the server until pods could have their network; 0 until then.",
            )?,
            started: Instant::now(),
        })
    }

    /// Counts a connection to `peer` that was lost and is re-established.
    pub fn reconnected(&self, peer: Peer) {
        self.reconnects.with_label_values(&[peer.name()]).inc();
    }

    /// A central component is unavailable to this node.
    pub fn degraded(&self, cause: Degraded) {
        self.degraded.with_label_values(&[cause.name()]).set(1);
    }

    /// The component is available, or available again.
    pub fn recovered(&self, cause: Degraded) {
        self.degraded.with_label_values(&[cause.name()]).set(0);
    }

    /// The client certificate is valid until then, and is to be renewed at `renewal`.
    pub(crate) fn certificate_valid(&self, until: SystemTime, renewal: SystemTime) {
        self.certificate.valid(until, renewal);
    }

    /// The node's gateway router serves node ports.
    pub(crate) fn serves_node_ports(&self) {
        self.node_ports.set(1);
    }

    /// Counts ports of new pods that were written in one transaction.
    pub(crate) fn written(&self, ports: usize) {
        self.attachments.written(ports);
    }

    /// Counts ports of pods that had vanished and were restored.
    pub(crate) fn put_back(&self, ports: usize) {
        self.attachments.put_back(ports);
    }

    /// Counts a stale attachment that was removed.
    pub(crate) fn removed(&self, reason: Reason) {
        self.attachments.removed(reason);
    }

    /// The packets that policies would drop that are dry runs are read by this, for each page anew.
    /// It may block.
    pub fn count_dry_runs(
        &self,
        read: impl Fn() -> io::Result<BTreeMap<DryRun, u64>> + Send + Sync + 'static,
    ) {
        self.dry_runs.read_by(Box::new(read));
    }

    /// Records how long it took until pods could get their network.
    pub fn became_ready(&self) {
        self.ready_duration.set(self.started.elapsed().as_secs_f64());
    }

    /// Counts a plugin's report on one of its calls.
    pub fn reported(&self, report: &wire::Metrics) {
        self.reports.count(report);
    }

    /// How long the stages of ADDs took since the start: see [`wire::NodeAnswer::stages`].
    pub fn stages(&self) -> BTreeMap<String, Vec<wire::StageCount>> {
        self.reports.stages()
    }

    /// The version of the plugin that called last: see [`wire::NodeAnswer::plugin`].
    pub fn plugin(&self) -> Option<String> {
        self.reports.plugin()
    }

    /// Counts a request as in flight until the guard is dropped. `command` is a verb of CNI, or
    /// `watch`.
    pub fn in_progress(&self, command: Option<&str>) -> InProgress {
        self.requests.in_progress(command)
    }

    /// Counts a plugin's connection as open until the guard is dropped.
    pub fn connected(&self) -> InProgress {
        self.requests.connected()
    }

    /// Counts a request that was answered with an error.
    pub fn refused(&self, code: Code) {
        self.requests.refused(code);
    }

    /// Starts the clock of an ADD that waits for its pod's annotation.
    pub fn annotation_wait(&self) -> AnnotationWait {
        self.requests.annotation_wait()
    }
}

#[cfg(test)]
pub(crate) mod tests;
