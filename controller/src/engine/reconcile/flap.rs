//! Backoff for rows that another writer changes again and again. Knows only how often keys were
//! repaired.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{
    engine::commit::work_queue::pause,
    key::Key,
    rows::{DesiredRow, Table},
};

/// Number of repairs of one key that are made at once. A person who tries out something stays below
/// it; two writers that undo each other reach it within milliseconds.
const PATIENCE: u32 = 5;
/// A key whose rows nobody changes for this long, beyond twice its last pause, starts anew. With a
/// tenth, a script that runs every few seconds would never count as a fight; with ten times as
/// much, unrelated repairs would add up.
const QUIET: Duration = Duration::from_secs(10);

/// The longest rest of rows that isolate pods, and of ports of pods that are in port groups.
/// Meanwhile another writer may have opened them. A second is short beside what an attack takes;
/// ten thousand ports that are fought over are then some ten transactions a second.
const LONGEST_OPEN: Duration = Duration::from_secs(1);

/// How long rows may be wrong in a fight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rests {
    /// Longer and longer.
    Long,
    /// While they are wrong, pods may be open that should not be.
    Short,
}

/// Recent repairs of rows that had been right, by key.
#[derive(Debug, Default)]
pub(crate) struct ContestBackoff {
    keys: HashMap<Key, Repairs>,
    cleaned: Option<Instant>,
}

#[derive(Debug)]
struct Repairs {
    times: u32,
    forgotten: Instant,
}

/// What to do about rows that another writer has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Repair,
    /// To be repaired after `pause`. `first`: it is the key's first pause.
    Rest {
        pause: Duration,
        first: bool,
    },
}

impl Rests {
    pub(crate) fn of(key: &Key, rows: &[DesiredRow]) -> Self {
        let in_group =
            |row: &DesiredRow| row.member_of.iter().any(|set| set.of.table == Table::PortGroup);
        match key {
            Key::Isolation(_) | Key::ClusterPolicy(_) | Key::Namespace(_) | Key::Custom(_) => {
                Self::Short
            }
            Key::Pod(_) if rows.iter().any(in_group) => Self::Short,
            Key::Pod(_)
            | Key::Cluster
            | Key::Node(_)
            | Key::Gateway(_)
            | Key::Transit(_)
            | Key::SourceNat(_)
            | Key::Set(_)
            | Key::Policy(_)
            | Key::Service(_)
            | Key::Chassis(_) => Self::Long,
        }
    }
}

impl ContestBackoff {
    /// Counts a repair of the key's rows, and decides when it is made.
    pub(crate) fn repair(&mut self, key: &Key, rests: Rests, now: Instant) -> Answer {
        // Cleaning visits all keys, so not at each repair.
        if self.cleaned.is_none_or(|cleaned| now - cleaned > QUIET) {
            self.keys.retain(|_, repairs| now < repairs.forgotten);
            self.cleaned = Some(now);
        }
        let repairs = self.keys.entry(key.clone()).or_insert(Repairs { times: 0, forgotten: now });
        if now >= repairs.forgotten {
            repairs.times = 0;
        }
        repairs.times = repairs.times.saturating_add(1);
        let beyond = repairs.times.saturating_sub(PATIENCE);
        if beyond == 0 {
            repairs.forgotten = now + QUIET;
            return Answer::Repair;
        }
        let pause = match rests {
            Rests::Long => pause(beyond - 1),
            Rests::Short => pause(beyond - 1).min(LONGEST_OPEN),
        };
        // The time counts from the end of the pause: a fight that goes on then must not start anew.
        repairs.forgotten = now + QUIET + 2 * pause;
        Answer::Rest { pause, first: beyond == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_changed_again_and_again_is_repaired_more_and_more_slowly() {
        let (mut flaps, now) = (ContestBackoff::default(), Instant::now());
        for _ in 0..PATIENCE {
            assert_eq!(flaps.repair(&Key::Cluster, Rests::Long, now), Answer::Repair);
        }
        let Answer::Rest { first: true, pause: short } =
            flaps.repair(&Key::Cluster, Rests::Long, now)
        else {
            panic!("no patience is left")
        };
        let rests = (0..6).map(|_| flaps.repair(&Key::Cluster, Rests::Long, now));
        let Some(Answer::Rest { first: false, pause: long }) = rests.last() else {
            panic!("still none")
        };
        assert!(long > 4 * short, "{short:?} {long:?}");
        assert_eq!(
            flaps.repair(&Key::Node("n1".into()), Rests::Long, now),
            Answer::Repair,
            "others are not concerned"
        );
        assert_eq!(
            flaps.repair(&Key::Cluster, Rests::Long, now + 3 * long + QUIET),
            Answer::Repair,
            "after a quiet time all is well"
        );
    }
    /// Another writer that took ports out of groups won for a minute after some rounds, and their
    /// pods were open.
    #[test]
    fn what_isolates_rests_for_a_second_at_most_however_long_the_fight_lasts() {
        let (mut flaps, now) = (ContestBackoff::default(), Instant::now());
        for _ in 0..100 {
            if let Answer::Rest { pause, .. } = flaps.repair(&Key::Cluster, Rests::Short, now) {
                assert!(pause <= Duration::from_secs(1), "{pause:?}");
            }
        }
    }
}
