//! Static pods whose mirrors are gone at the API server: for how long they keep their network. Knows no rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contract::names::PodKey;
use tokio::time::Instant;

/// A kubelet that is told of the deletion makes another mirror at once. One that is not (`kubectl delete --force`) does it when it looks at
/// the pod next, after 60 to 90 s (its `syncFrequency`, with jitter).
const PATIENCE: Duration = Duration::from_secs(120);

/// Until when each may come back.
#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<PodKey, Instant>);

impl Absences {
    /// These are absent now.
    pub(super) fn are(&mut self, pods: &BTreeSet<PodKey>, now: Instant) {
        self.0.retain(|pod, _| pods.contains(pod));
        for pod in pods {
            self.0.entry(pod.clone()).or_insert(now + PATIENCE);
        }
    }

    /// Takes those that were absent for too long.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<PodKey> {
        let over: Vec<PodKey> = self.0.iter().filter(|(_, until)| **until <= now).map(|(pod, _)| pod.clone()).collect();
        self.0.retain(|_, until| *until > now);
        over
    }

    /// When the next one will have been.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }
}
