//! How long a Lease has been unchanged, by this process's clock, and whether a candidate may take
//! it. Pure: no I/O, and the time is a parameter.

use tokio::time::Instant;

use super::{ElectionConfig, record::Record};

/// A record, and since when it was observed unchanged (client-go's "observed record").
#[derive(Debug)]
pub(super) struct ObservedRecord {
    record: Record,
    since: Instant,
}

/// What a candidate may do about a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Take,
    /// Not before this moment, if the Lease stays unchanged until then.
    WaitUntil(Instant),
}

impl ObservedRecord {
    /// The observation at `now`: any difference to the one `before` restarts the time.
    pub(super) fn next(before: Option<Self>, record: Record, now: Instant) -> Self {
        match before {
            Some(before) if before.record == record => before,
            _ => Self { record, since: now },
        }
    }

    pub(super) fn holder(&self) -> Option<&str> {
        self.record.holder.as_deref()
    }

    pub(super) fn verdict(&self, candidate: &ElectionConfig, now: Instant) -> Verdict {
        let free_at = self.since + self.record.duration(candidate.durations.lease());
        match self.holder() {
            // A released Lease has no holder.
            None => Verdict::Take,
            // A former process of the same identity that is known to have ended.
            Some(holder)
                if holder == candidate.identity
                    && candidate.own_lease.has_ended(self.record.mark.as_ref()) =>
            {
                Verdict::Take
            }
            // The holder has not renewed for a whole Lease, counted from when this process first
            // saw the record: the times in the record are those of another machine's clock.
            Some(_) if free_at <= now => Verdict::Take,
            Some(_) => Verdict::WaitUntil(free_at),
        }
    }
}
