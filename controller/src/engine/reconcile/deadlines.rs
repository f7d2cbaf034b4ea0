//! How long a state lasts before something follows from it: static pods without their mirror pods,
//! Services that are idled no longer, kinds of objects that cannot be read. Knows no rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

/// How long static pods keep their network after their mirror pods have gone from the API server. A
/// kubelet that sees the deletion makes another mirror pod at once. One that does not (`kubectl
/// delete --force`) makes it at its next sync of the pod, after 60 to 90 s (its `syncFrequency`,
/// with jitter). With a shorter time a running pod would lose its network; a longer one only keeps
/// the addresses of removed pods.
pub(crate) const ABSENCE: Duration = Duration::from_secs(120);
/// How long a Service that is idled no longer may be without a pod until it refuses connections
/// again: upstream's time. The annotation goes when its pods are about to start. With a shorter
/// time clients that have waited for them would be refused; a longer one makes clients of a Service
/// whose pods do not start wait for nothing.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// How long everything waits at a start for a kind of objects that cannot be read: because of a
/// definition that is missing, a right, or an answer of 500. An API server that has just started,
/// or a ClusterRole that is applied behind a Deployment, needs some seconds. Ten times shorter, and
/// new pods would be outside of policies that are readable in a moment; much longer, and one object
/// that the API server cannot decode would keep all new pods of the cluster from starting.
pub const UNREAD: Duration = Duration::from_secs(120);

/// The deadline of each object.
#[derive(Debug)]
pub(crate) struct Deadlines<K> {
    patience: Duration,
    of: BTreeMap<K, Instant>,
}

impl<K: Ord + Clone> Deadlines<K> {
    pub(crate) fn after(patience: Duration) -> Self {
        Self { patience, of: BTreeMap::new() }
    }

    /// Sets the objects in the state. Those that were in it before keep their deadline.
    pub(crate) fn set_active(&mut self, objects: &BTreeSet<K>, now: Instant) {
        self.of.retain(|object, _| objects.contains(object));
        for object in objects {
            self.of.entry(object.clone()).or_insert(now + self.patience);
        }
    }

    /// Removes and returns the objects whose deadline has passed.
    pub(crate) fn take_over(&mut self, now: Instant) -> Vec<K> {
        let over = self.of.iter().filter(|(_, until)| **until <= now);
        let over: Vec<K> = over.map(|(object, _)| object.clone()).collect();
        self.of.retain(|_, until| *until > now);
        over
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.of.values().min().copied()
    }
}
