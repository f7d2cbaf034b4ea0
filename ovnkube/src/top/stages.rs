//! How long the stages of this node's ADDs take, from counts that only grow. Pure.

use std::collections::BTreeMap;

use contract::{stage::Stage, wire::StageCount};

use crate::findings::{Finding, State};

/// What a node's server has counted since its start, by the stage's name.
#[derive(Debug, Default)]
pub(super) struct Stages(pub(super) BTreeMap<String, Vec<StageCount>>);

impl Stages {
    fn all(&self, stage: Stage) -> u64 {
        let counts = self.0.get(stage.name());
        counts.and_then(|counts| counts.last()).map_or(0, |last| last.count)
    }

    /// Whether the server is the one of before: its counts have not become smaller.
    pub(super) fn is_after(&self, before: &Self) -> bool {
        Stage::ALL.into_iter().all(|stage| self.all(stage) >= before.all(stage))
    }

    /// What has come since, in the order of the stages; nothing of a stage that no ADD had.
    pub(super) fn since(&self, before: Option<&Self>) -> Vec<Finding> {
        let nothing = Vec::new();
        let of = |stage: Stage| {
            let counts = self.0.get(stage.name())?;
            let before = before.and_then(|before| before.0.get(stage.name())).unwrap_or(&nothing);
            let new: Vec<StageCount> = counts
                .iter()
                .enumerate()
                .map(|(place, now)| StageCount {
                    seconds: now.seconds,
                    count: now.count.saturating_sub(before.get(place).map_or(0, |was| was.count)),
                })
                .collect();
            let all = new.last().map_or(0, |last| last.count);
            let (median, high) = (within(&new, all, 50)?, within(&new, all, 99)?);
            let said = format!("p50 {}, p99 {}, of {all} ADDs", shown(median), shown(high));
            let finding = Finding::new("stages", stage.name(), State::Ok, &said);
            Some(finding.with("adds", all))
        };
        Stage::ALL.into_iter().filter_map(of).collect()
    }
}

/// The bound within which so many percent are; none if there are none.
fn within(counts: &[StageCount], all: u64, percent: u64) -> Option<f64> {
    let least = (all * percent).div_ceil(100).max(1);
    counts.iter().find(|bucket| bucket.count >= least).map(|bucket| bucket.seconds)
}

fn shown(seconds: f64) -> String {
    let milliseconds = seconds * 1000.0;
    match milliseconds {
        // The last bound has no number.
        _ if seconds == f64::MAX => "above all bounds".to_owned(),
        _ if milliseconds < 10.0 => format!("≤ {milliseconds:.1} ms"),
        _ => format!("≤ {milliseconds:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(counts: [u64; 3]) -> Stages {
        let bounds = [0.002, 0.128, f64::MAX];
        let counts = bounds.into_iter().zip(counts);
        let counts = counts.map(|(seconds, count)| StageCount { seconds, count }).collect();
        Stages([(Stage::Veth.name().to_owned(), counts)].into())
    }

    #[test]
    fn the_time_of_a_stage_is_the_bound_that_holds_for_the_adds_since_the_beginning() {
        let (before, now) = (stages([100, 100, 100]), stages([160, 199, 200]));
        assert!(now.is_after(&before) && !before.is_after(&now));
        let found = now.since(Some(&before));
        assert_eq!(found.len(), 1, "no ADD has the others: {found:?}");
        assert_eq!(found[0].summary, "p50 ≤ 2.0 ms, p99 ≤ 128 ms, of 100 ADDs");
        assert!(before.since(Some(&before)).is_empty());
        let slow = stages([0, 0, 1]).since(None);
        assert_eq!(slow[0].summary, "p50 above all bounds, p99 above all bounds, of 1 ADDs");
    }
}
