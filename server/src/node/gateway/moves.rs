//! How often the server tries to make a NIC the uplink of a bridge.

use std::time::Duration;

use tokio::time::Instant;

/// A move takes the addresses of the node to the bridge, and back if a late step fails. One that
/// fails for a reason that stays takes the node's network away for a moment each time. The first
/// attempts are for a reason that passes.
const AT_ONCE: u32 = 3;
/// The pauses between further attempts: the first one, twice as long each time, and the longest
/// one.
const PAUSE: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(3600);

/// The moves that have failed one after the other.
#[derive(Debug, Default)]
pub(super) struct FailedMoves {
    number: u32,
    /// Why the last one has failed.
    why: String,
    not_before: Option<Instant>,
}

impl FailedMoves {
    /// Why there is no attempt now; `None` if there may be one.
    pub(super) fn pause(&self, interface: &str) -> Option<String> {
        let left = self
            .not_before?
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())?;
        Some(format!(
            "{interface} could not be made the uplink of a bridge, {} times: {}; the next attempt is in {} s, or when \
             the server starts again",
            self.number,
            self.why,
            left.as_secs()
        ))
    }

    pub(super) fn add(&mut self, why: &str) {
        self.number += 1;
        why.clone_into(&mut self.why);
        let pauses = self.number.checked_sub(AT_ONCE);
        self.not_before = pauses.map(|pauses| {
            let pause = PAUSE.saturating_mul(2_u32.saturating_pow(pauses)).min(LONGEST);
            Instant::now() + pause
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// The node's address went to the bridge and back every half minute, for ever.
    #[tokio::test(start_paused = true)]
    async fn a_move_that_fails_each_time_is_tried_seldom_and_says_why() {
        let mut moves = FailedMoves::default();
        for _ in 0..AT_ONCE {
            assert_eq!(moves.pause("eth0"), None);
            moves.add("no route");
        }
        let mut tried = 0;
        for _ in 0..24 * 60 {
            match moves.pause("eth0") {
                Some(why) => assert!(why.contains("eth0") && why.contains("no route"), "{why}"),
                None => {
                    tried += 1;
                    moves.add("no route");
                }
            }
            advance(Duration::from_secs(60)).await;
        }
        assert!((20..=26).contains(&tried), "{tried} times a day");
    }
}
