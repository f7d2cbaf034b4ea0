//! The versioned cache of pods: of two reports of a pod, the newer one counts. No I/O; it only
//! updates its [`Pods`].
//!
//! Reports come in three ways that overtake each other: lists, the watch, and lookups. Each has the
//! version of the cluster that it is as of. For one pod the greater version counts. A lookup counts
//! only if it is newer than the position of the watch: up to there the watch has reported
//! everything, deletions, too. Versions of built-in resources are growing numbers (Kubernetes,
//! "Resource versions"). A version that is no number cannot be compared: list and watch are
//! believed then, a lookup is not.

use std::collections::HashMap;

use contract::names::PodKey;
use serde::Deserialize;

use super::pod_meta::VersionedPod;
use crate::pods::Pods;

/// A `resourceVersion`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Version(String);

/// The known pods with their versions.
#[derive(Debug)]
pub(super) struct VersionedPods {
    pods: Pods,
    versions: HashMap<PodKey, Version>,
    /// List and watch have reported everything up to this version.
    position: Option<Version>,
}

/// The API server's versions went back: it was restored from a backup, so all pods have to be
/// listed again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the versions of the API server went back from {from} to {to}")]
pub(super) struct WentBack {
    from: String,
    to: String,
}

impl Version {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both are numbers, and this one is less.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        let number = |version: &Self| version.0.parse::<u64>().ok();
        number(self).zip(number(other)).is_some_and(|(this, other)| this < other)
    }
}

impl From<String> for Version {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl VersionedPods {
    pub(super) fn new(pods: Pods) -> Self {
        Self { pods, versions: HashMap::new(), position: None }
    }

    #[cfg(test)]
    pub(super) fn position(&self) -> Option<&Version> {
        self.position.as_ref()
    }

    /// Takes a complete list as of `version`: a pod that is not in it is gone.
    pub(super) fn listed(&mut self, version: Version, list: Vec<VersionedPod>) {
        if self.position.as_ref().is_some_and(|position| version.is_older_than(position)) {
            // Versions of before the restoration are greater, and would outdo every pod of this
            // list.
            self.versions.clear();
        }
        let mut gone = self.pods.known();
        list.iter().for_each(|seen| gone.retain(|pod| *pod != seen.pod));
        for pod in gone {
            // A pod that is newer than the list was found by a lookup meanwhile, and stays.
            if !self.versions.get(&pod).is_some_and(|known| version.is_older_than(known)) {
                self.forget(&pod);
            }
        }
        self.position = Some(version);
        list.into_iter().for_each(|seen| self.put(seen));
    }

    /// The watch reports a pod that is new or has changed.
    pub(super) fn changed(&mut self, seen: VersionedPod) -> Result<(), WentBack> {
        self.advance(seen.version.clone())?;
        self.put(seen);
        Ok(())
    }

    /// The watch reports that a pod is gone.
    pub(super) fn deleted(&mut self, pod: &PodKey, version: Version) -> Result<(), WentBack> {
        self.advance(version.clone())?;
        // A lookup may have found its successor already.
        if !self.versions.get(pod).is_some_and(|known| version.is_older_than(known)) {
            self.forget(pod);
        }
        Ok(())
    }

    /// The watch has reported everything up to `version`.
    pub(super) fn advance(&mut self, version: Version) -> Result<(), WentBack> {
        if let Some(position) =
            self.position.as_ref().filter(|position| version.is_older_than(position))
        {
            return Err(WentBack { from: position.0.clone(), to: version.0 });
        }
        self.position = Some(version);
        Ok(())
    }

    /// Takes the answer to a lookup. Returns whether it was newer.
    pub(super) fn looked_up(&mut self, seen: VersionedPod) -> bool {
        // Not newer than the watch: the pod may have been deleted since, and the watch does not
        // report that again.
        let news = self
            .position
            .as_ref()
            .is_none_or(|position| position.is_older_than(&seen.version))
            && self.versions.get(&seen.pod).is_none_or(|known| known.is_older_than(&seen.version));
        if news {
            self.put(seen);
        }
        news
    }

    /// Takes one pod, unless a newer version of it is known.
    fn put(&mut self, seen: VersionedPod) {
        let VersionedPod { pod, version, facts } = seen;
        if self.versions.get(&pod).is_some_and(|known| version.is_older_than(known)) {
            return;
        }
        self.pods.put(&pod, facts);
        self.versions.insert(pod, version);
    }

    fn forget(&mut self, pod: &PodKey) {
        self.versions.remove(pod);
        self.pods.remove(pod);
    }
}

#[cfg(test)]
mod tests;
