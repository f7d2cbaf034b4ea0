//! Rows that somebody else changes back again and again. Knows only how often keys were repaired.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{commit::backlog::pause, key::Key};

/// So many repairs of one key are no fight yet.
const PATIENCE: u32 = 5;
/// A key that was left alone for so long, and for as long again as it had to rest, starts anew.
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

/// What to do about rows that somebody changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Repair,
    /// Not before this time has passed. `first`: the key has not had to rest before.
    Rest {
        pause: Duration,
        first: bool,
    },
}

impl Flaps {
    /// The rows of a key are to be repaired.
    pub(super) fn repair(&mut self, key: &Key, now: Instant) -> Answer {
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
        let Answer::Rest { first: true, pause: short } = flaps.repair(&Key::Cluster, now) else { panic!("no patience is left") };
        let rests = (0..6).map(|_| flaps.repair(&Key::Cluster, now));
        let Some(Answer::Rest { first: false, pause: long }) = rests.last() else { panic!("still none") };
        assert!(long > 4 * short, "{short:?} {long:?}");
        assert_eq!(flaps.repair(&Key::Node("n1".into()), now), Answer::Repair, "others are not concerned");
        assert_eq!(flaps.repair(&Key::Cluster, now + 3 * long + QUIET), Answer::Repair, "after a quiet time all is well");
    }
}
