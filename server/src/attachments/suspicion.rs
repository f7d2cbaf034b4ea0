//! What should not be there, and since when: nothing is removed that was not found out of place twice, and in between. Pure.

use std::{collections::HashMap, time::Duration};

use podnet::plan::Identity;
use tokio::time::Instant;

use super::plan::{Reason, Suspect, Witnesses};

/// How long a port is suspected whose link is gone and for which ovs-vswitchd has no device. It looks for each of these again whenever anything is
/// changed, so that hundreds of them, as after a reboot, make every ADD slow. Longer than a plugin takes from the link to the port.
const DEVICELESS: Duration = Duration::from_secs(2);

/// The suspects of the last look.
#[derive(Debug, Default)]
pub(super) struct Suspicion(HashMap<Identity, Suspected>);

#[derive(Debug)]
struct Suspected {
    reason: Reason,
    /// The first look in a row at which it was suspected for this reason.
    since: Instant,
    /// When that is long enough.
    due: Instant,
}

impl Suspicion {
    /// Those of `suspects` that have been suspected for `patience`, or for less where ovs-vswitchd says the same. Who is not among them is no longer
    /// suspected, and who is confirmed is suspected anew if it is still there at the next look.
    pub(super) fn confirm(&mut self, suspects: Vec<Suspect>, now: Instant, patience: Duration) -> Vec<Suspect> {
        let before = std::mem::take(&mut self.0);
        let mut confirmed = Vec::new();
        for suspect in suspects {
            let known = before.get(&suspect.identity).filter(|known| known.reason == suspect.reason);
            let since = known.map_or(now, |known| known.since);
            let due = since
                + match suspect.witnesses {
                    Witnesses::Server => patience,
                    Witnesses::Vswitchd => patience.min(DEVICELESS),
                };
            if known.is_some() && now >= due {
                confirmed.push(suspect);
            } else {
                self.0.insert(suspect.identity.clone(), Suspected { reason: suspect.reason, since, due });
            }
        }
        confirmed
    }

    /// When the next of them will have been suspected for long enough, if nobody clears it.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|suspected| suspected.due).min()
    }
}

#[cfg(test)]
mod tests;
