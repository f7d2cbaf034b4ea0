//! Metrics of requests as the server sees them: in flight, waiting, refused.

use std::time::Instant;

use contract::error::Code;
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{
    register::{FINE, Register},
    reports::command_label,
};

const WATCH: &str = "watch";

#[derive(Debug)]
pub(super) struct Requests {
    in_flight: IntGaugeVec,
    refused: IntCounterVec,
    annotation_wait: HistogramVec,
    connections: IntGauge,
    accepted: IntCounter,
}

/// Counts as one in a gauge until it is dropped.
#[derive(Debug)]
pub struct InProgress(IntGauge);

/// The wait of an ADD for its pod's annotation. If it is dropped before [`Self::ended`], the caller
/// has hung up.
#[derive(Debug)]
pub struct AnnotationWait {
    durations: HistogramVec,
    started: Instant,
    outcome: RequestOutcome,
}

#[derive(Debug, Clone, Copy)]
enum RequestOutcome {
    Answered,
    Refused,
    HungUp,
}

impl Requests {
    pub(super) fn register(register: &Register<'_>) -> prometheus::Result<Self> {
        let requests = Self {
            in_flight: register.int_gauges(
                "ovnkube_node_cni_requests_in_flight",
                "Requests that are being answered; watch: ADDs whose port is not up yet.",
                &["command"],
            )?,
            refused: register.counters(
                "ovnkube_node_cni_requests_refused_total",
                "Requests that were answered with an error, by its code.",
                &["code"],
            )?,
            annotation_wait: register.histograms(
                "ovnkube_node_cni_annotation_wait_seconds",
                "How long ADDs waited for their pods' network annotation; \
                 hung-up: the caller did not wait for the answer.",
                &["outcome"],
                FINE.0,
                FINE.1,
            )?,
            connections: register.int_gauge(
                "ovnkube_node_cni_connections",
                "Connections of plugins that are open.",
            )?,
            accepted: register.int_counter(
                "ovnkube_node_cni_connections_total",
                "Connections of plugins that were accepted.",
            )?,
        };
        // The usual series exist from the start, so that `rate()` sees the first increment.
        for command in ["ADD", WATCH] {
            requests.in_flight.with_label_values(&[command]);
        }
        for outcome in [RequestOutcome::Answered, RequestOutcome::Refused, RequestOutcome::HungUp] {
            requests.annotation_wait.with_label_values(&[outcome.name()]);
        }
        Ok(requests)
    }

    pub(super) fn in_progress(&self, command: Option<&str>) -> InProgress {
        let label = if command == Some(WATCH) { WATCH } else { command_label(command) };
        InProgress::start(self.in_flight.with_label_values(&[label]))
    }

    pub(super) fn connected(&self) -> InProgress {
        self.accepted.inc();
        InProgress::start(self.connections.clone())
    }

    pub(super) fn refused(&self, code: Code) {
        self.refused.with_label_values(&[&code.number().to_string()]).inc();
    }

    pub(super) fn annotation_wait(&self) -> AnnotationWait {
        AnnotationWait {
            durations: self.annotation_wait.clone(),
            started: Instant::now(),
            outcome: RequestOutcome::HungUp,
        }
    }
}

impl InProgress {
    fn start(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl AnnotationWait {
    /// Ends the wait with this outcome.
    pub fn ended<T, E>(mut self, outcome: &Result<T, E>) {
        self.outcome =
            if outcome.is_ok() { RequestOutcome::Answered } else { RequestOutcome::Refused };
    }
}

impl Drop for AnnotationWait {
    fn drop(&mut self) {
        self.durations
            .with_label_values(&[self.outcome.name()])
            .observe(self.started.elapsed().as_secs_f64());
    }
}

impl RequestOutcome {
    fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::HungUp => "hung-up",
        }
    }
}
