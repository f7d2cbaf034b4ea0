//! The plugin's report on its own call: one log line that shows where the time of an ADD went.

use contract::wire::Metrics;

/// Logs `report` in the span that names the pod.
pub(super) fn log(report: &Metrics) {
    let Metrics {
        command: _,
        version: _,
        elapsed_time,
        has_err,
        code,
        message,
        pod: _,
        sandbox: _,
        stages,
        failed_stage: _,
        rollback: _,
    } = report;
    let ms = format!("{:.1}", elapsed_time * 1000.0);
    let stages: Vec<String> = stages
        .iter()
        .map(|time| format!("{} {:.1}-{:.1}", time.stage, time.start, time.end))
        .collect();
    let stages = stages.join(", ");
    if *has_err {
        tracing::info!(ms, code, stages, error = message, "the plugin failed");
    } else {
        tracing::info!(ms, stages, "the plugin succeeded");
    }
}
