//! Backoff for rows that another writer changes again and again. Knows only how often keys were repaired.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{commit::work_queue::pause, key::Key};

/// Number of repairs of one key that are made at once. A person who tries out something stays below it; two
/// writers that undo each other reach it within milliseconds.
const PATIENCE: u32 = 5;
/// A key whose rows nobody changes for this long, beyond twice its last pause, starts anew. With a tenth, a
/// script that runs every few seconds would never count as a fight; with ten times as much, unrelated repairs
/// would add up.
const QUIET: Duration = Duration::from_secs(10);

/// Recent repairs of rows that had been right, by key.
#[derive(Debug, Default)]
pub(super) struct Flaps {
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
pub(super) enum Answer {
    Repair,
    /// To be repaired after `pause`. `first`: it is the key's first pause.
    Rest {
        pause: Duration,
        first: bool,
    },
}

impl Flaps {
    /// Counts a repair of the key's rows, and decides when it is made.
    pub(super) fn repair(&mut self, key: &Key, now: Instant) -> Answer {
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
        let pause = pause(beyond - 1);
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
        let (mut flaps, now) = (Flaps::default(), Instant::now());
        for _ in 0..PATIENCE {
            assert_eq!(flaps.repair(&Key::Cluster, now), Answer::Repair);
        }
        let Answer::Rest { first: true, pause: short } = flaps.repair(&Key::Cluster, now) else {
            panic!("no patience is left")
        };
        let rests = (0..6).map(|_| flaps.repair(&Key::Cluster, now));
        let Some(Answer::Rest { first: false, pause: long }) = rests.last() else { panic!("still none") };
        assert!(long > 4 * short, "{short:?} {long:?}");
        assert_eq!(flaps.repair(&Key::Node("n1".into()), now), Answer::Repair, "others are not concerned");
        assert_eq!(
            flaps.repair(&Key::Cluster, now + 3 * long + QUIET),
            Answer::Repair,
            "after a quiet time all is well"
        );
    }
}
