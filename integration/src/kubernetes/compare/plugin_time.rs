//! How long the runtime spent in network plugins, ours and others, from its own metrics; and the
//! stages in our plugin's log.

use std::{collections::BTreeMap, fs, ops::Sub};

use anyhow::{Context as _, Result, ensure};
use contract::paths::PLUGIN_LOG;
use integration::Node;
use serde::Serialize;

use crate::report::{percentiles::median, stage_log};

/// Port of containerd's metrics, on the node (`containerd-1.toml`, `containerd-2.toml`).
const PORT: u16 = 1338;
/// A histogram by `operation_type`. The unit is twice in its name.
const METRIC: &str = "containerd_cri_network_plugin_operations_duration_seconds_seconds";

/// Calls of one kind: their number, and the seconds they took together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Spent {
    pub(super) calls: f64,
    pub(super) seconds: f64,
}

/// Calls of both kinds since the runtime was started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct InPlugin {
    pub(super) add: Spent,
    pub(super) del: Spent,
}

impl Spent {
    /// Mean seconds of a call; 0 without calls.
    pub(super) fn mean(&self) -> f64 {
        if self.calls > 0.0 { self.seconds / self.calls } else { 0.0 }
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, seconds: self.seconds - before.seconds }
    }
}

impl InPlugin {
    pub(super) fn now(node: &Node) -> Result<Self> {
        let request = r"GET /v1/metrics HTTP/1.0\r\nHost: containerd\r\n\r\n";
        // With bash alone, because the metrics are in the network namespace of the node.
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf '{request}' >&3; cat <&3");
        let answer = node.run(["bash", "-c", &script]).context("ask containerd for its metrics")?;
        ensure!(
            answer.split_whitespace().nth(1) == Some("200"),
            "containerd has no metrics: {}",
            answer.lines().next().unwrap_or_default()
        );
        Self::read(&answer)
    }

    /// What was spent since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self { add: self.add - before.add, del: self.del - before.del }
    }

    fn read(metrics: &str) -> Result<Self> {
        let of = |operation: &str, part: &str| {
            let name = format!("{METRIC}_{part}{{operation_type=\"{operation}\"}} ");
            let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
            // An operation that never happened has no line.
            value.map_or(Ok(0.0), |value| {
                value.trim().parse().with_context(|| format!("{name}{value}"))
            })
        };
        let spent = |operation| {
            anyhow::Ok(Spent { calls: of(operation, "count")?, seconds: of(operation, "sum")? })
        };
        Ok(Self { add: spent("set_up_pod")?, del: spent("tear_down_pod")? })
    }
}

/// Length of the plugin's log now, in bytes.
pub(super) fn log_length(node: &Node) -> usize {
    // The file does not exist before the first line.
    fs::read(node.path(PLUGIN_LOG)).map_or(0, |log| log.len())
}

/// Median time of each stage, in ms, of the ADDs in the log after `start`, and of the whole call.
pub(super) fn stages(node: &Node, start: usize) -> Result<BTreeMap<String, f64>> {
    let log =
        fs::read_to_string(node.path(PLUGIN_LOG)).with_context(|| format!("read {PLUGIN_LOG}"))?;
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for add in stage_log::adds(log.get(start..).unwrap_or(&log)).into_values() {
        times.entry("whole".to_owned()).or_default().push(add.whole);
        for (stage, time) in add.stages {
            times.entry(stage.name().to_owned()).or_default().push(time);
        }
    }
    Ok(times.into_iter().map(|(stage, times)| (stage, median(times))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_histogram_is_read_by_operation() {
        let metrics = format!(
            "{METRIC}_bucket{{operation_type=\"set_up_pod\",le=\"0.1\"}} 1\n{METRIC}_sum{{operation_type=\"set_up_pod\"}} 0.5\n\
             {METRIC}_count{{operation_type=\"set_up_pod\"}} 4\n{METRIC}_sum{{operation_type=\"tear_down_pod\"}} 6.6e-02\n\
             {METRIC}_count{{operation_type=\"tear_down_pod\"}} 2\n"
        );
        let spent = InPlugin::read(&metrics).unwrap();
        assert_eq!((spent.add.calls, spent.add.mean()), (4.0, 0.125));
        assert!((spent.del.mean() - 0.033).abs() < 1e-9);
        assert_eq!(spent.since(spent), InPlugin::default());
        assert_eq!(InPlugin::read("").unwrap().add.mean(), 0.0);
    }
}
