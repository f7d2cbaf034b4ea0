//! The stages of an ADD, which the plugin reports to the node server: parsed from the server's log,
//! and drawn as bars.

use anyhow::{Context as _, Result};
use contract::stage::Stage;

use super::screen::{Paint, WIDTH};
use crate::report::stage_log;

/// Width of the bars, and their first column.
const BAR: usize = 31;
const BAR_AT: usize = 44;

/// One ADD, in milliseconds since the start of the plugin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeline {
    /// How long the plugin took.
    pub(crate) total: f64,
    /// Start and end of each stage.
    stages: Vec<(Stage, (f64, f64))>,
}

impl Timeline {
    /// The report in `log` on the ADD of `sandbox`, as `… ms=10.2 stages="ovsdb 0.1-1.3, annotation
    /// 0.1-0.9"`.
    pub(crate) fn find(log: &str, sandbox: &str) -> Result<Self> {
        let span = format!(" sandbox={}]", &sandbox[..stage_log::SHOWN]);
        let line = log.lines().rfind(|line| line.contains(&span) && line.contains(" stages="));
        let line = line.context("the server's log has no report on this ADD")?;
        let parsed = line.split_once(" ms=").and_then(|(_, report)| {
            let (total, stages) = report.split_once(" stages=\"")?;
            let mut stages = stage_log::stages(stages, |span| {
                let (start, end) = span.split_once('-')?;
                Some((start.parse().ok()?, end.parse().ok()?))
            })?;
            // Concurrent stages finish in any order; the output has a fixed one.
            stages.sort_by_key(|(stage, _)| *stage);
            Some(Self { total: total.parse().ok()?, stages })
        });
        parsed.with_context(|| format!("report in the server's log: {line}"))
    }

    /// End of the last stage.
    pub(crate) fn end(&self) -> f64 {
        self.stages.iter().map(|(_, (_, end))| *end).fold(0.0, f64::max)
    }

    /// A bar for each stage; `scale` milliseconds are the full width.
    pub(crate) fn bars(&self, scale: f64) -> impl Iterator<Item = String> {
        self.stages.iter().map(move |&(stage, (start, end))| {
            let (meaning, bar) =
                (Paint::FAINT.on(meaning(stage)), Paint::BAR.on(bar(start, end, scale)));
            let took = format!("{:.1}", end - start);
            let [meant, rest] = [BAR_AT - 18, WIDTH - BAR_AT - BAR];
            format!("    {:<14}{meaning:<meant$}{bar:<BAR$}{took:>rest$}", stage.name())
        })
    }

    /// The axis under the bars.
    pub(crate) fn axis(scale: f64) -> String {
        let end = format!("{scale:.1} ms");
        let rule = "─".repeat(BAR.saturating_sub(3 + end.len()));
        format!("{:BAR_AT$}{}", "", Paint::FAINT.on(format!("0 {rule} {end}")))
    }
}

fn meaning(stage: Stage) -> &'static str {
    match stage {
        Stage::Netns => "enter the pod's namespace",
        Stage::Ovsdb => "reach Open vSwitch",
        Stage::Annotation => "ask the node server",
        Stage::Veth => "create the link",
        Stage::Port => "add the br-int port",
        Stage::Pod => "addresses and routes",
        Stage::Ofport => "the switch has the port",
        Stage::OvnInstalled => "OVN has its flows in",
        Stage::Result => "answer the runtime",
    }
}

/// A bar of whole columns; a stage of zero length still gets one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the bar's width"
)]
fn bar(start: f64, end: f64, scale: f64) -> String {
    let column = |time: f64| ((time / scale).clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let first = column(start).min(BAR - 1);
    " ".repeat(first) + &"█".repeat(column(end).max(first + 1) - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-11-21T01:46:21.478Z|00003|add|INFO|[ADD shop/cart sandbox=010000030000 eth0] answered ms=0.4 mac=0a:58:0a:f4:01:03
2026-11-21T01:46:21.525Z|00004|metrics|INFO|[ADD shop/cart sandbox=010000030000] \
the plugin succeeded ms=10.0 stages=\"annotation 0.2-1.0, ovsdb 0.0-2.0, veth 2.0-5.0, result 5.0-10.0\"
2026-11-21T01:46:22.525Z|00005|metrics|INFO|[ADD shop/cart sandbox=020000030000] the plugin succeeded ms=7.0 stages=\"ovsdb\"
";

    #[test]
    fn the_report_of_a_sandbox_is_found_and_its_bars_begin_and_end_when_its_stages_do() {
        let timeline = Timeline::find(LOG, "010000030000000abc").unwrap();
        let lines: Vec<String> = timeline.bars(10.0).collect();
        assert_eq!((timeline.total, timeline.end(), lines.len()), (10.0, 10.0, 4));
        assert!(
            lines[0].starts_with("    ovsdb         reach Open vSwitch        ██████ "),
            "{lines:?}"
        );
        assert!(
            lines[3].contains(&format!("{}{}  5.0", " ".repeat(16), "█".repeat(15))),
            "{lines:?}"
        );
        assert!(lines.iter().all(|line| line.chars().count() == WIDTH), "{lines:?}");
        assert_eq!(bar(BAR as f64, BAR as f64, BAR as f64).chars().last(), Some('█'));
        assert!(Timeline::find(LOG, "020000030000000abc").is_err(), "a stage without times");
        assert!(Timeline::find(LOG, "030000030000000abc").is_err(), "another sandbox");
    }
}
