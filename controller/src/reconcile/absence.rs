//! How long static pods keep their network after their mirror pods have gone from the API server. Knows no
//! rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contract::names::PodKey;
use tokio::time::Instant;

/// A kubelet that sees the deletion makes another mirror pod at once. One that does not (`kubectl delete
/// --force`) makes it at its next sync of the pod, after 60 to 90 s (its `syncFrequency`, with jitter). With
/// a shorter time a running pod would lose its network; a longer one only keeps the addresses of removed
/// pods.
const PATIENCE: Duration = Duration::from_secs(120);

/// The deadline of each absent pod.
#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<PodKey, Instant>);

impl Absences {
    /// Sets the pods that are absent now. Pods that were absent before keep their deadline.
    pub(super) fn are(&mut self, pods: &BTreeSet<PodKey>, now: Instant) {
        self.0.retain(|pod, _| pods.contains(pod));
        for pod in pods {
            self.0.entry(pod.clone()).or_insert(now + PATIENCE);
        }
    }

    /// Removes and returns the pods whose deadline has passed.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<PodKey> {
        let over: Vec<PodKey> =
            self.0.iter().filter(|(_, until)| **until <= now).map(|(pod, _)| pod.clone()).collect();
        self.0.retain(|_, until| *until > now);
        over
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }
}
