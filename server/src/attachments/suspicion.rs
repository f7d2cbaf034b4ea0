//! What should not be there, and since when: nothing is removed that was not found out of place twice, and in between. Pure.

use std::{collections::HashMap, time::Duration};

use cni::plan::Identity;
use tokio::time::Instant;

use super::plan::{Reason, Suspect};

/// The suspects of the last look, each with the first one in a row at which it was suspected for this reason.
#[derive(Debug, Default)]
pub(super) struct Suspicion(HashMap<Identity, (Reason, Instant)>);

impl Suspicion {
    /// Those of `suspects` that have been suspected for `patience`. Who is not among them is no longer suspected, and
    /// who is confirmed is suspected anew if it is still there at the next look.
    pub(super) fn confirm(&mut self, suspects: Vec<Suspect>, now: Instant, patience: Duration) -> Vec<Suspect> {
        let before = std::mem::take(&mut self.0);
        let mut confirmed = Vec::new();
        for suspect in suspects {
            let known = before.get(&suspect.identity).filter(|(reason, _)| *reason == suspect.reason);
            let since = known.map_or(now, |(_, since)| *since);
            if known.is_some() && now.duration_since(since) >= patience {
                confirmed.push(suspect);
            } else {
                self.0.insert(suspect.identity.clone(), (suspect.reason, since));
            }
        }
        confirmed
    }

    /// When the next of them will have been suspected for `patience`, if nobody clears it.
    pub(super) fn due(&self, patience: Duration) -> Option<Instant> {
        self.0.values().map(|(_, since)| *since + patience).min()
    }
}

#[cfg(test)]
mod tests;
