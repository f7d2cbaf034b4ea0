//! Since when an attachment is stale: it is removed only if every look during the grace period (at
//! least two) found it stale. Pure.

use std::{collections::HashMap, time::Duration};

use podnet::plan::Identity;
use tokio::time::Instant;

use super::plan::{StaleAttachment, Witnesses};
use crate::metrics::Reason;

/// Grace period of a port whose link is gone, and for which ovs-vswitchd has no device either.
/// ovs-vswitchd looks for each such device again at every change of its configuration, so hundreds
/// of them, as after a reboot, make every ADD slow: a longer period would prolong that. It is
/// longer than a plugin takes from the link to the port, or a port would be removed that is just
/// being attached.
const DEVICELESS: Duration = Duration::from_secs(2);

/// The suspects of the last look.
#[derive(Debug, Default)]
pub(super) struct StaleCandidates(HashMap<Identity, StaleSince>);

#[derive(Debug)]
struct StaleSince {
    reason: Reason,
    /// The first look in a row that found it stale for this reason.
    since: Instant,
    /// The end of the grace period.
    due: Instant,
}

impl StaleCandidates {
    /// Those of `suspects` that have been suspected for `patience`, or for less where ovs-vswitchd
    /// agrees. An attachment that is not among them is cleared; a confirmed one is suspected anew
    /// if it is still there at the next look.
    pub(super) fn confirm(
        &mut self,
        suspects: Vec<StaleAttachment>,
        now: Instant,
        patience: Duration,
    ) -> Vec<StaleAttachment> {
        // Only what is suspected at this look goes on: a single good look clears an attachment.
        let before = std::mem::take(&mut self.0);
        let mut confirmed = Vec::new();
        for suspect in suspects {
            let known =
                before.get(&suspect.identity).filter(|known| known.reason == suspect.reason);
            let since = known.map_or(now, |known| known.since);
            let due = since
                + match suspect.witnesses {
                    Witnesses::Server => patience,
                    Witnesses::Vswitchd => patience.min(DEVICELESS),
                };
            // A first look confirms nothing, even without a grace period.
            if known.is_some() && now >= due {
                confirmed.push(suspect);
            } else {
                self.0.insert(
                    suspect.identity.clone(),
                    StaleSince { reason: suspect.reason, since, due },
                );
            }
        }
        confirmed
    }

    /// The end of the next grace period, unless its attachment is cleared before.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|suspected| suspected.due).min()
    }
}

#[cfg(test)]
mod tests;
