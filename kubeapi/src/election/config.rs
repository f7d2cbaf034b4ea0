//! A candidate of an election: its identity, its Lease, and how long the Lease is held.

use std::{fmt, time::Duration};

use super::host_lock::{HostLock, Mark};

/// One process in an election.
#[derive(Debug, Clone)]
pub struct ElectionConfig {
    /// `holderIdentity`: unique among all processes that may run at the same time.
    pub identity: String,
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    pub durations: Durations,
    pub own_lease: OwnLease,
}

/// The Leases that one process stands for, all with the same durations. It leads while it holds all
/// of them.
#[derive(Debug, Clone)]
pub struct ElectionConfigs {
    pub first: ElectionConfig,
    /// Acquired once the first is held.
    pub second: Option<ElectionConfig>,
}

/// What to do about a Lease that bears the candidate's own identity when it starts.
#[derive(Debug, Clone)]
pub enum OwnLease {
    /// The process that held it has ended, as its pid file shows: take the Lease over at once, as
    /// client-go does. With a lock: not while another process that stands for the same Lease under
    /// the same name has the lock of this host, for such a process may have another pid file.
    Resume(Option<HostLock>),
    /// Its holder may still be alive: wait until the Lease expires.
    Wait,
    /// Its holder has ended if the Lease names a lock that this process holds now.
    Lock(HostLock),
}

/// How long a Lease is held, how long its holder tries to renew it, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durations {
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

/// Durations with which two processes could lead at once, or none for a long time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadDurations {
    #[error(
        "the lease ({lease:?}) must be held for longer than the deadline to renew it ({renew:?}), \
         and for whole seconds"
    )]
    Lease { lease: Duration, renew: Duration },
    #[error(
        "the deadline to renew ({renew:?}) must be longer than 1.2 times the time between attempts \
         ({retry:?}), and that not zero"
    )]
    Renew { renew: Duration, retry: Duration },
}

impl OwnLease {
    /// Whether the process that left this mark in a Lease of the same identity is known to have
    /// ended.
    pub(super) fn has_ended(&self, holder: Option<&Mark>) -> bool {
        match self {
            Self::Resume(lock) => lock.as_ref().is_none_or(HostLock::is_held),
            Self::Wait => false,
            Self::Lock(lock) => lock.shows_ended(holder),
        }
    }

    /// The lock that the Lease names while this process holds it.
    pub(super) fn mark(&self) -> Option<&Mark> {
        self.lock().filter(|lock| lock.is_held()).map(|lock| &lock.mark)
    }

    fn lock(&self) -> Option<&HostLock> {
        match self {
            Self::Lock(lock) | Self::Resume(Some(lock)) => Some(lock),
            Self::Resume(None) | Self::Wait => None,
        }
    }

    /// Waits until this process gets the host lock, if it did not have it at the time of `mark`;
    /// for ever if it never does. The lock is new evidence about the former holder of the Lease.
    pub(super) async fn learns(&self, mark: Option<&Mark>) {
        match self.lock().filter(|_| mark.is_none()) {
            Some(lock) => lock.gained().await,
            None => std::future::pending().await,
        }
    }
}

impl From<ElectionConfig> for ElectionConfigs {
    fn from(first: ElectionConfig) -> Self {
        Self { first, second: None }
    }
}

impl Durations {
    /// The conditions are those of client-go.
    ///
    /// # Errors
    ///
    /// The Lease is not held for longer than `renew` or not for whole seconds; `retry` is zero, or
    /// `renew` is not longer than 1.2 times `retry`.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Result<Self, BadDurations> {
        // The record in the Lease has whole seconds only (`leaseDurationSeconds`).
        if lease <= renew || lease.subsec_nanos() != 0 {
            return Err(BadDurations::Lease { lease, renew });
        }
        if retry.is_zero() || renew <= retry.mul_f64(1.2) {
            return Err(BadDurations::Renew { renew, retry });
        }
        Ok(Self { lease, renew, retry })
    }

    /// How long other processes must see the Lease unchanged before they may take it.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How long a leader leads after the request of its last successful renewal.
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
        Self {
            lease: Duration::from_secs(137),
            renew: Duration::from_secs(107),
            retry: Duration::from_secs(26),
        }
    }
}

impl fmt::Display for ElectionConfig {
    /// The Lease, as kubectl prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.lease)
    }
}
