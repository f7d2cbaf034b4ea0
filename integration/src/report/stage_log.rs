//! The stage times of each ADD, from the line `done` of the plugin's log.

use std::collections::BTreeMap;

use contract::stage::Stage;

/// The log shows only this many characters of a sandbox ID.
pub(crate) const SHOWN: usize = 12;

/// Times of one ADD, as measured by the plugin, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StageTimes {
    pub(crate) whole: f64,
    pub(crate) stages: Vec<(Stage, f64)>,
}

impl StageTimes {
    /// The parts of a call that took `duration` milliseconds for its caller: the stages; `between`
    /// them, what none accounts for; `outside`, what the plugin cannot see: exec, the code before
    /// its clock starts, its exit, and the wait for it.
    pub(crate) fn parts(&self, duration: f64) -> BTreeMap<String, f64> {
        let stages = self.stages.iter().map(|(stage, time)| (stage.name(), *time));
        let others = [
            ("between", (self.whole - self.on_the_way()).max(0.0)),
            ("outside", (duration - self.whole).max(0.0)),
        ];
        stages.chain(others).map(|(part, time)| (part.to_owned(), time)).collect()
    }

    /// Time on the critical path of the stages: of concurrent stages, the longer one counts.
    fn on_the_way(&self) -> f64 {
        let of = |wanted: Stage| {
            self.stages.iter().find(|(stage, _)| *stage == wanted).map_or(0.0, |(_, time)| *time)
        };
        let begin = of(Stage::Netns).max(of(Stage::Ovsdb)).max(of(Stage::Annotation));
        let wait = of(Stage::Pod).max(of(Stage::Ofport) + of(Stage::OvnInstalled));
        begin + of(Stage::Veth) + of(Stage::Port) + wait + of(Stage::Result)
    }
}

/// The ADDs in a log, by the shown part of their sandbox IDs.
pub(crate) fn adds(log: &str) -> BTreeMap<String, StageTimes> {
    log.lines().filter_map(add).collect()
}

fn add(line: &str) -> Option<(String, StageTimes)> {
    let (_, rest) = line.split_once("|[ADD ")?;
    let (span, message) = rest.split_once("] done ")?;
    let sandbox = span.split(' ').find_map(|word| word.strip_prefix("sandbox="))?;
    let whole = message.split(' ').find_map(|word| word.strip_prefix("ms="))?.parse().ok()?;
    let (_, text) = message.split_once("stages=\"")?;
    Some((
        sandbox.to_owned(),
        StageTimes { whole, stages: stages(text, |time| time.parse().ok())? },
    ))
}

/// The stages in `ovsdb 1.5, veth 1.0"`, each with what `time` makes of the text behind it.
pub(crate) fn stages<T>(text: &str, time: impl Fn(&str) -> Option<T>) -> Option<Vec<(Stage, T)>> {
    let stage = |text: &str| {
        let (name, text) = text.split_once(' ')?;
        Some((Stage::ALL.into_iter().find(|stage| stage.name() == name)?, time(text)?))
    };
    text.trim_end_matches('"').split(", ").map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-01-01T00:00:00.000Z|00001|run|INFO|[DEL lab/node1-pod3 sandbox=000000000001 eth0] \
done ms=20.5 stages=\"\"
2026-01-01T00:00:00.000Z|00001|run|INFO|[ADD lab/node1-pod3 sandbox=00000000000a eth0] done ms=30.5 \
stages=\"annotation 2.0, ovsdb 1.5, \
veth 1.0, port 0.5, pod 3.0, ofport 18.0, ovn_installed 7.0, result 0.1\"
2026-01-01T00:00:00.000Z|00001|run|ERR|[ADD lab/node1-pod4 sandbox=00000000000b eth0] failed code=11 ms=1.0 \
stages=\"ovsdb 1.0\"";

    #[test]
    fn the_stages_of_an_add_that_is_done_are_read() {
        let adds = adds(LOG);
        assert_eq!(adds.len(), 1);
        let times = &adds["00000000000a"];
        assert_eq!((times.whole, times.stages.len()), (30.5, 8));
        assert_eq!(times.stages[1], (Stage::Ovsdb, 1.5));
    }

    #[test]
    fn what_no_stage_accounts_for_is_between_them_or_outside() {
        let parts = adds(LOG)["00000000000a"].parts(33.0);
        // 30.5 less 2.0 (annotation, concurrent with ovsdb), 1.0, 0.5, 25.0 (ofport and
        // ovn_installed, concurrent with pod), 0.1.
        assert!((parts["between"] - 1.9).abs() < 1e-9, "{parts:?}");
        assert!((parts["outside"] - 2.5).abs() < 1e-9, "{parts:?}");
    }
}
