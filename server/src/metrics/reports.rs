//! Metrics of the plugin's reports on its own calls: the only view of what comes after the
//! annotation.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use contract::{
    error::Code,
    stage::{Stage, StageTime},
    wire::{self, Rollback, StageCount},
};
use prometheus::{Counter, HistogramVec, IntCounterVec, core::Metric as _};

use super::register::{FINE, Register};

/// The verbs of CNI; any other command is counted as [`OTHER`].
const COMMANDS: [&str; 7] = ["ADD", "DEL", "CHECK", "GC", "STATUS", "UPDATE", "VERSION"];
const OTHER: &str = "other";
/// The label of a failure outside of every stage.
const NO_STAGE: &str = "none";
/// The longest duration that is counted, in seconds: a day. No runtime waits that long, and one
/// wrong number would stay in a sum for ever.
const LONGEST: f64 = 86_400.0;
/// Characters of a plugin's version that are kept.
const LONGEST_VERSION: usize = 64;

#[derive(Debug)]
pub(super) struct Reports {
    requests: HistogramVec,
    calls: HistogramVec,
    stages: HistogramVec,
    interface_up_wait: Counter,
    errors: IntCounterVec,
    rollbacks: IntCounterVec,
    /// The version of the plugin that has reported last.
    plugin: Mutex<Option<String>>,
}

impl Reports {
    pub(super) fn register(register: &Register<'_>) -> prometheus::Result<Self> {
        let reports = Self {
            // Upstream's buckets start at 100 ms, when a call of this plugin has usually ended.
            requests: register.histograms(
                "ovnkube_node_cni_request_duration_seconds",
                "Duration of CNI calls, as the plugin reports it. \
                 See ovnkube_node_cni_call_duration_seconds for less than 100 ms.",
                &["command", "err"],
                0.1,
                15,
            )?,
            calls: register.histograms(
                "ovnkube_node_cni_call_duration_seconds",
                "Duration of CNI calls, as the plugin reports it, from 1 ms.",
                &["command"],
                FINE.0,
                FINE.1,
            )?,
            stages: register.histograms(
                "ovnkube_node_cni_stage_duration_seconds",
                "Duration of the stages of an ADD, as the plugin reports it. Stages overlap.",
                &["stage"],
                FINE.0,
                FINE.1,
            )?,
            interface_up_wait: register.counter(
                "ovs_vswitchd_interface_up_wait_seconds_total",
                "Time that ADDs have waited for ovn-controller to install the flows of their ports.",
            )?,
            errors: register.counters(
                "ovnkube_node_cni_errors_total",
                "CNI calls that failed, by the stage that failed (none: not in a stage of an ADD) \
                 and the code of the CNI error.",
                &["command", "stage", "code"],
            )?,
            rollbacks: register.counters(
                "ovnkube_node_cni_rollbacks_total",
                "ADDs that failed after they had made something; \
                 leftover: not all of it could be removed at once.",
                &["outcome"],
            )?,
            plugin: Mutex::default(),
        };
        // The usual series exist from the start, so that `rate()` sees the first increment.
        for stage in Stage::ALL {
            reports.stages.with_label_values(&[stage.name()]);
        }
        for command in ["ADD", "DEL"] {
            reports.calls.with_label_values(&[command]);
            for err in ["true", "false"] {
                reports.requests.with_label_values(&[command, err]);
            }
        }
        for rollback in [Rollback::Clean, Rollback::Leftover] {
            reports.rollbacks.with_label_values(&[rollback.name()]);
        }
        Ok(reports)
    }

    /// How long the stages of ADDs took. A bound without a number, the last one, has all of them.
    pub(super) fn stages(&self) -> BTreeMap<String, Vec<StageCount>> {
        let of = |stage: Stage| {
            let metric = self.stages.with_label_values(&[stage.name()]).metric();
            let histogram = metric.get_histogram();
            let all = StageCount { seconds: f64::MAX, count: histogram.get_sample_count() };
            let counts = histogram.get_bucket().iter().map(|bucket| StageCount {
                seconds: bucket.upper_bound(),
                count: bucket.cumulative_count(),
            });
            (stage.name().to_owned(), counts.chain([all]).collect())
        };
        Stage::ALL.into_iter().map(of).collect()
    }

    /// See [`wire::NodeAnswer::plugin`].
    pub(super) fn plugin(&self) -> Option<String> {
        self.plugin.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn count(&self, report: &wire::Metrics) {
        let wire::Metrics {
            command,
            elapsed_time,
            has_err,
            code,
            message: _,
            version,
            pod: _,
            sandbox: _,
            stages,
            failed_stage,
            rollback,
        } = report;
        let version = version.chars().take(LONGEST_VERSION).collect();
        *self.plugin.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
        let command = command_label(Some(command));
        if let Some(seconds) = plausible(*elapsed_time) {
            self.requests
                .with_label_values(&[command, if *has_err { "true" } else { "false" }])
                .observe(seconds);
            self.calls.with_label_values(&[command]).observe(seconds);
        }
        // A valid report names each stage once. Times are milliseconds.
        for StageTime { stage, start, end } in stages.iter().take(Stage::ALL.len()) {
            if let Some(seconds) = plausible((end - start) / 1e3) {
                self.stages.with_label_values(&[stage.name()]).observe(seconds);
                if *stage == Stage::OvnInstalled {
                    self.interface_up_wait.inc_by(seconds);
                }
            }
        }
        if *has_err {
            let code = code.map_or(Code::Internal, Code::from_number).number().to_string();
            self.errors
                .with_label_values(&[command, failed_stage.map_or(NO_STAGE, Stage::name), &code])
                .inc();
        }
        if let Some(rollback) = rollback {
            self.rollbacks.with_label_values(&[rollback.name()]).inc();
        }
    }
}

/// The label for a caller's command.
pub(super) fn command_label(command: Option<&str>) -> &'static str {
    COMMANDS.into_iter().find(|known| command == Some(known)).unwrap_or(OTHER)
}

/// Leaves out impossible durations (negative, infinite, no number): one of them would stay in a sum
/// for ever.
fn plausible(seconds: f64) -> Option<f64> {
    (0.0..=LONGEST).contains(&seconds).then_some(seconds)
}
