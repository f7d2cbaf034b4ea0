//! The stages of an ADD, which the plugin reports to the node server: parsed from the server's log, and drawn
//! as bars.

use anyhow::{Context as _, Result, bail};

use super::screen::{Paint, WIDTH};

/// Width of the bars, in columns.
const BAR: usize = 31;
/// First column of the bars.
const BAR_AT: usize = 44;

/// The stages in the order of the output, with their meanings.
const STAGES: &[(&str, &str)] = &[
    ("netns", "enter the pod's namespace"),
    ("ovsdb", "reach Open vSwitch"),
    ("annotation", "ask the node server"),
    ("veth", "create the link"),
    ("port", "add the br-int port"),
    ("pod", "addresses and routes"),
    ("ofport", "the switch has the port"),
    ("ovn_installed", "OVN has its flows in"),
    ("result", "answer the runtime"),
];

/// One ADD.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeline {
    /// Milliseconds that the plugin took.
    pub(crate) total: f64,
    stages: Vec<Stage>,
}

/// A stage, in milliseconds since the start of the plugin.
#[derive(Debug, Clone, PartialEq)]
struct Stage {
    name: String,
    start: f64,
    end: f64,
}

impl Timeline {
    /// The last report in `log` on an ADD of `pod` (`namespace/name`) and `sandbox`.
    pub(crate) fn find(log: &str, pod: &str, sandbox: &str) -> Result<Self> {
        let of_pod = format!("[ADD {pod} ");
        let line = log.lines().rev().find(|line| {
            let sandboxes = line
                .split_once(" sandbox=")
                .map(|(_, rest)| rest.split([' ', ']']).next().unwrap_or_default());
            line.contains(&of_pod)
                && line.contains(" stages=")
                && sandboxes.is_some_and(|id| !id.is_empty() && sandbox.starts_with(id))
        });
        let line = line.with_context(|| format!("the server's log has no report on ADD {pod}"))?;
        Self::parse(line).with_context(|| format!("report in the server's log: {line}"))
    }

    /// `… ms=10.2 stages="ovsdb 0.1-1.3, annotation 0.1-0.9, …"`
    fn parse(line: &str) -> Result<Self> {
        let (_, stages) = line.split_once(" stages=\"").context("no stages")?;
        let (stages, _) = stages.split_once('"').context("the stages do not end")?;
        let mut stages = stages.split(", ").map(Stage::parse).collect::<Result<Vec<_>>>()?;
        // Concurrent stages finish in any order; the output has a fixed one.
        stages.sort_by_key(|stage| {
            STAGES.iter().position(|(name, _)| *name == stage.name).unwrap_or(STAGES.len())
        });
        let (_, total) = line.split_once(" ms=").context("no milliseconds")?;
        let total = total.split(' ').next().unwrap_or_default().parse().context("milliseconds")?;
        Ok(Self { total, stages })
    }

    /// End of the last stage.
    pub(crate) fn end(&self) -> f64 {
        self.stages.iter().map(|stage| stage.end).fold(0.0, f64::max)
    }

    /// A bar for each stage; `scale` milliseconds are the full width.
    pub(crate) fn bars(&self, scale: f64) -> impl Iterator<Item = String> {
        self.stages.iter().map(move |Stage { name, start, end }| {
            let meaning = Paint::FAINT.on(format!("{:<1$}", meaning(name), BAR_AT - 18));
            let (bar, took) = (bar(*start, *end, scale), format!("{:.1}", end - start));
            let bar = Paint::BAR.on(format!("{bar:<BAR$}"));
            format!("    {name:<14}{meaning}{bar}{took:>0$}", WIDTH - BAR_AT - BAR)
        })
    }

    /// The axis under the bars.
    pub(crate) fn axis(scale: f64) -> String {
        let end = format!("{scale:.1} ms");
        let rule = "─".repeat(BAR.saturating_sub(3 + end.len()));
        format!("{}{}", " ".repeat(BAR_AT), Paint::FAINT.on(format!("0 {rule} {end}")))
    }
}

impl Stage {
    /// `ovsdb 0.1-1.3`
    fn parse(text: &str) -> Result<Self> {
        let parsed = || {
            let (name, span) = text.split_once(' ')?;
            let (start, end) = span.split_once('-')?;
            Some(Self { name: name.to_owned(), start: start.parse().ok()?, end: end.parse().ok()? })
        };
        match parsed()
            .filter(|stage: &Self| 0.0 <= stage.start && stage.start <= stage.end && stage.end.is_finite())
        {
            Some(stage) => Ok(stage),
            None => bail!("stage {text:?} is not NAME START-END"),
        }
    }
}

/// The meaning of a stage; empty for a stage that is newer than this table.
fn meaning(stage: &str) -> &'static str {
    STAGES.iter().find(|(name, _)| *name == stage).map_or("", |(_, meaning)| *meaning)
}

/// A bar in steps of half a column. A stage of zero length still gets one step.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the bar's width")]
fn bar(start: f64, end: f64, scale: f64) -> String {
    let halves = 2 * BAR;
    let position = |time: f64| ((time / scale).clamp(0.0, 1.0) * halves as f64).round() as usize;
    let first = position(start).min(halves - 1);
    let last = position(end).max(first + 1);
    let filled = |half: usize| (first..last).contains(&half);
    let cell = |column: usize| match (filled(2 * column), filled(2 * column + 1)) {
        (true, true) => '█',
        (true, false) => '▌',
        (false, true) => '▐',
        (false, false) => ' ',
    };
    (0..BAR).map(cell).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::screen::plain, *};

    const LOG: &str = "\
2026-11-21T01:46:21.478Z|00003|add|INFO|[ADD shop/cart sandbox=010000030000 eth0] \
answered ms=0.4 mac=0a:58:0a:f4:01:03
2026-11-21T01:46:21.525Z|00004|metrics|INFO|[ADD shop/cart sandbox=010000030000] \
the plugin succeeded ms=10.0 stages=\"annotation 0.2-1.0, ovsdb 0.0-2.0, veth 2.0-5.0, later 5.0-10.0\"
2026-11-21T01:46:22.525Z|00005|metrics|INFO|[ADD shop/cart-2 sandbox=020000030000] \
the plugin succeeded ms=7.0 stages=\"ovsdb 0.0-7.0\"
";

    #[test]
    fn the_report_of_a_pod_is_found_and_its_stages_are_in_order() {
        let timeline = Timeline::find(LOG, "shop/cart", "010000030000000abc").unwrap();
        let names: Vec<&str> = timeline.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(
            (timeline.total, timeline.end(), names),
            (10.0, 10.0, vec!["ovsdb", "annotation", "veth", "later"])
        );
        assert!(Timeline::find(LOG, "shop/cart", "020000030000000abc").is_err());
        assert!(Timeline::find(LOG, "shop/ca", "010000030000000abc").is_err());
    }

    #[test]
    fn a_report_that_makes_no_sense_is_an_error() {
        for stages in ["", "ovsdb", "ovsdb 1", "ovsdb 2-1", "ovsdb -1-2", "ovsdb 0-inf", "ovsdb a-b"] {
            assert!(Timeline::parse(&format!("x ms=1.0 stages=\"{stages}\"")).is_err(), "{stages}");
        }
    }

    #[test]
    fn bars_begin_and_end_when_their_stages_do() {
        let full = BAR as f64;
        assert_eq!(bar(0.0, full, full), "█".repeat(BAR));
        assert_eq!(bar(0.0, 1.5, full), "█▌");
        assert_eq!(bar(1.5, 3.0, full), " ▐█");
        assert_eq!(bar(full, full, full).chars().last(), Some('▐'));
        let lines: Vec<String> = Timeline::find(LOG, "shop/cart", "010000030000000abc")
            .unwrap()
            .bars(10.0)
            .map(|line| plain(&line))
            .collect();
        assert_eq!(lines[0], format!("    ovsdb         reach Open vSwitch        {:31}  2.0", "██████"));
        assert!(lines.iter().all(|line| line.chars().count() == WIDTH), "{lines:?}");
        assert_eq!(plain(&Timeline::axis(10.0)).chars().count(), BAR_AT + BAR);
    }
}
