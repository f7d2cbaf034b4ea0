//! What a Lease says, in both directions. Pure: the time comes from outside.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use super::{Candidate, Mark};

/// Annotation of a Lease: the lock of its host that its holder has.
const HOLDER_LOCK: &str = "ovn-kubernetes/holder-lock";

/// What its holder says. Two that are equal say that nothing happened in between.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    /// None: nobody has it.
    pub(super) holder: Option<String>,
    duration: Option<i32>,
    pub(super) acquired: Option<MicroTime>,
    renewed: Option<MicroTime>,
    transitions: i32,
    /// What its holder holds on its host.
    pub(super) mark: Option<Mark>,
}

impl Record {
    pub(super) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: spec.lease_duration_seconds,
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or_default(),
            mark: lease.metadata.annotations.as_ref().and_then(|all| all.get(HOLDER_LOCK)?.parse().ok()),
        }
    }

    /// For how long it is held, by its writer's word; `else_` if that says nothing.
    pub(super) fn duration(&self, else_: Duration) -> Duration {
        self.duration.and_then(|seconds| u64::try_from(seconds).ok()).map_or(else_, Duration::from_secs)
    }

    /// The candidate has it from `now` on; `before` is what it said until then.
    pub(super) fn taken(candidate: &Candidate, before: Option<&Self>, now: Timestamp) -> Self {
        Self {
            holder: Some(candidate.identity.clone()),
            duration: Some(seconds(candidate.durations.lease())),
            acquired: Some(MicroTime(now)),
            renewed: Some(MicroTime(now)),
            transitions: before.map_or(0, |before| before.transitions.saturating_add(1)),
            mark: None,
        }
    }

    pub(super) fn renewed(&self, now: Timestamp) -> Self {
        Self { renewed: Some(MicroTime(now)), ..self.clone() }
    }

    /// Nobody has it, as client-go says that.
    pub(super) fn released(&self, now: Timestamp) -> Self {
        Self {
            holder: None,
            duration: Some(1),
            acquired: Some(MicroTime(now)),
            renewed: Some(MicroTime(now)),
            transitions: self.transitions,
            mark: None,
        }
    }

    /// The same reign of the same holder: a holder takes a Lease at one moment only.
    pub(super) fn is_reign_of(&self, other: &Self) -> bool {
        (&self.holder, &self.acquired) == (&other.holder, &other.acquired)
    }

    /// As an object; `over` is the one that it replaces, and no other.
    pub(super) fn lease(&self, candidate: &Candidate, over: Option<&Lease>) -> Lease {
        let mut metadata = over.map_or_else(
            || ObjectMeta { name: Some(candidate.lease.clone()), namespace: Some(candidate.namespace.clone()), ..ObjectMeta::default() },
            |over| over.metadata.clone(),
        );
        // Said anew each time: the lock may have come later than the Lease.
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.remove(HOLDER_LOCK);
        if let Some(mark) = candidate.own_lease.mark().filter(|_| self.holder.is_some()) {
            annotations.insert(HOLDER_LOCK.to_owned(), mark.to_string());
        }
        metadata.annotations = metadata.annotations.filter(|annotations| !annotations.is_empty());
        let spec = LeaseSpec {
            holder_identity: Some(self.holder.clone().unwrap_or_default()),
            lease_duration_seconds: self.duration,
            acquire_time: self.acquired.clone(),
            renew_time: self.renewed.clone(),
            lease_transitions: Some(self.transitions),
            // What else a newer API may have stays as it is.
            ..over.and_then(|over| over.spec.clone()).unwrap_or_default()
        };
        Lease { metadata, spec: Some(spec) }
    }
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}
