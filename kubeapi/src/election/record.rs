//! The content of a Lease, read and written. Pure: the time is a parameter.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use super::{ElectionConfig, Mark};

/// Annotation of a Lease: the lock that its holder has on its host.
const HOLDER_LOCK: &str = "ovn-kubernetes/holder-lock";

/// What the holder wrote. Two equal records mean that nothing was written in between.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    /// `None`: the Lease is free.
    pub(super) holder: Option<String>,
    duration: Option<i32>,
    pub(super) acquired: Option<MicroTime>,
    renewed: Option<MicroTime>,
    transitions: i32,
    /// The holder's lock on its host.
    pub(super) mark: Option<Mark>,
}

impl Record {
    pub(super) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            // client-go releases a Lease by an empty `holderIdentity`.
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: spec.lease_duration_seconds,
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or_default(),
            mark: lease
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(HOLDER_LOCK)?.parse().ok()),
        }
    }

    /// For how long the Lease is held according to its writer, or `else_` if it does not say.
    pub(super) fn duration(&self, else_: Duration) -> Duration {
        self.duration
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(else_, Duration::from_secs)
    }

    /// The record with which the candidate takes the Lease at `now`; `before` is the record so far.
    pub(super) fn taken(candidate: &ElectionConfig, before: Option<&Self>, now: Timestamp) -> Self {
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

    /// The record of a released Lease, as client-go writes it: no holder, for 1 s.
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

    /// Whether both are of one term of one holder: a holder acquires a Lease at one moment only.
    pub(super) fn is_reign_of(&self, other: &Self) -> bool {
        (&self.holder, &self.acquired) == (&other.holder, &other.acquired)
    }

    /// The record as an object. It replaces `over`, and only that version of it
    /// (`resourceVersion`).
    pub(super) fn lease(&self, candidate: &ElectionConfig, over: Option<&Lease>) -> Lease {
        let mut metadata = over.map_or_else(
            || ObjectMeta {
                name: Some(candidate.lease.clone()),
                namespace: Some(candidate.namespace.clone()),
                ..ObjectMeta::default()
            },
            |over| over.metadata.clone(),
        );
        // Written anew each time: this process may have got the lock after the Lease.
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
            // Fields that a newer API may have stay as they are.
            ..over.and_then(|over| over.spec.clone()).unwrap_or_default()
        };
        Lease { metadata, spec: Some(spec) }
    }
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}
