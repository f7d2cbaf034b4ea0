//! Who stands for which Lease, and for how long it is held.

use std::{fmt, time::Duration};

use super::host_lock::{HostLock, Mark};

/// One process in an election.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// `holderIdentity`: differs between all that may run at once.
    pub identity: String,
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    pub durations: Durations,
    pub own_lease: OwnLease,
}

/// The Leases that one process stands for, all with the same durations: it leads while it has all of them.
#[derive(Debug, Clone)]
pub struct Candidates {
    pub first: Candidate,
    /// Taken once the first is had.
    pub second: Option<Candidate>,
}

/// What a Lease means that bears the candidate's own identity when it starts.
#[derive(Debug, Clone)]
pub enum OwnLease {
    /// The process that had it has ended, as its pid file shows: it is taken over at once, as client-go does. Not while a process that stands
    /// for the same Lease in the same name has the lock of this host: it has another pid file.
    Resume(Option<HostLock>),
    /// It may live: the Lease has to run out first.
    Wait,
    /// It has ended if the Lease says that it held a lock that this process holds now.
    Lock(HostLock),
}

/// How long a Lease is held, how long its holder tries to renew it, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durations {
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

/// Durations with which two could lead at once, or nobody for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadDurations {
    #[error("the lease ({lease:?}) must be held for longer than the deadline to renew it ({renew:?}), and for whole seconds")]
    Lease { lease: Duration, renew: Duration },
    #[error("the deadline to renew ({renew:?}) must be longer than 1.2 times the time between attempts ({retry:?}), and that not zero")]
    Renew { renew: Duration, retry: Duration },
}

impl OwnLease {
    /// Whether the process that left this mark in a Lease of the own identity is known to have ended.
    pub(super) fn has_ended(&self, holder: Option<&Mark>) -> bool {
        match self {
            Self::Resume(lock) => lock.as_ref().is_none_or(HostLock::is_held),
            Self::Wait => false,
            Self::Lock(lock) => lock.shows_ended(holder),
        }
    }

    /// What the Lease is to say of its holder.
    pub(super) fn mark(&self) -> Option<&Mark> {
        self.lock().filter(|lock| lock.is_held()).map(|lock| &lock.mark)
    }

    fn lock(&self) -> Option<&HostLock> {
        match self {
            Self::Lock(lock) | Self::Resume(Some(lock)) => Some(lock),
            Self::Resume(None) | Self::Wait => None,
        }
    }

    /// Waits until more is known of the former holder than `mark` said; for ever if that cannot happen.
    pub(super) async fn learns(&self, mark: Option<&Mark>) {
        match self.lock().filter(|_| mark.is_none()) {
            Some(lock) => lock.gained().await,
            None => std::future::pending().await,
        }
    }
}

impl From<Candidate> for Candidates {
    fn from(first: Candidate) -> Self {
        Self { first, second: None }
    }
}

impl Durations {
    /// The conditions are those of client-go.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Result<Self, BadDurations> {
        if lease <= renew || lease.subsec_nanos() != 0 {
            return Err(BadDurations::Lease { lease, renew });
        }
        if retry.is_zero() || renew <= retry.mul_f64(1.2) {
            return Err(BadDurations::Renew { renew, retry });
        }
        Ok(Self { lease, renew, retry })
    }

    /// How long others have to see the Lease unchanged before they may take it.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How long a leader leads after it last asked with success.
    pub fn renew(&self) -> Duration {
        self.renew
    }

    /// The time between attempts.
    pub fn retry(&self) -> Duration {
        self.retry
    }
}

impl Default for Durations {
    /// Upstream's: 137, 107 and 26 seconds.
    fn default() -> Self {
        Self { lease: Duration::from_secs(137), renew: Duration::from_secs(107), retry: Duration::from_secs(26) }
    }
}

impl fmt::Display for Candidate {
    /// The Lease, as kubectl prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.lease)
    }
}
