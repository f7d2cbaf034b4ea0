//! Who stands for which Lease, and for how long it is held.

use std::{fmt, time::Duration};

use crate::config::Zone;

/// One process in an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// `holderIdentity`: differs between all that may run at once.
    pub identity: String,
    pub namespace: String,
    /// Name of the Lease: [`Candidate::lease_of`].
    pub lease: String,
    pub durations: Durations,
    pub own_lease: OwnLease,
}

/// What a Lease means that bears the candidate's own identity when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnLease {
    /// The process that had it has ended, as its pid file or lock shows: it is taken over at once, as client-go does.
    Resume,
    /// It may live: the Lease has to run out first.
    Wait,
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

impl Candidate {
    /// As upstream names it: one Lease for zone `global`, one for each other zone.
    pub fn lease_of(zone: &Zone) -> String {
        match zone.0.as_str() {
            "global" => "ovn-kubernetes-master".to_owned(),
            zone => format!("ovn-kubernetes-master-{zone}"),
        }
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
