//! Since when a Lease says what it says, by this process's clock, and whether that lets a candidate take it. Pure.

use tokio::time::Instant;

use super::{Candidate, record::Record};

/// A record and since when it was seen unchanged.
#[derive(Debug)]
pub(super) struct Sight {
    record: Record,
    since: Instant,
}

/// What a candidate may do about a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Take,
    /// Not before this, if nothing changes until then.
    WaitUntil(Instant),
}

impl Sight {
    /// What there is `now`, after what was seen `before`.
    pub(super) fn next(before: Option<Self>, record: Record, now: Instant) -> Self {
        match before {
            Some(before) if before.record == record => before,
            _ => Self { record, since: now },
        }
    }

    pub(super) fn holder(&self) -> Option<&str> {
        self.record.holder.as_deref()
    }

    pub(super) fn verdict(&self, candidate: &Candidate, now: Instant) -> Verdict {
        let free_at = self.since + self.record.duration(candidate.durations.lease());
        match self.holder() {
            None => Verdict::Take,
            Some(holder) if holder == candidate.identity && candidate.own_lease.has_ended(self.record.mark.as_ref()) => Verdict::Take,
            Some(_) if free_at <= now => Verdict::Take,
            Some(_) => Verdict::WaitUntil(free_at),
        }
    }
}
