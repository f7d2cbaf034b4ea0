//! The order of things: which news of a pod is newer than what is known. Pure, but for the [`Pods`] that it keeps.
//!
//! News comes by three ways that overtake each other: lists, the watch, and lookups. Each says as of which version of the cluster it is
//! true. Of one pod the greater version counts; and a lookup counts only beyond the watch's position, because up to there the watch
//! has told everything, deletions too. Versions of built-in resources are numbers that grow (Kubernetes, "Resource versions");
//! one that is no number is taken as it comes.

use std::collections::HashMap;

use contract::names::PodKey;
use serde::Deserialize;

use super::pod_meta::Seen;
use crate::pods::Pods;

/// A `resourceVersion`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Version(String);

/// What is known, and as of when.
#[derive(Debug)]
pub(super) struct Ledger {
    pods: Pods,
    versions: HashMap<PodKey, Version>,
    /// Everything up to here was told by list and watch.
    position: Option<Version>,
}

/// The API server's versions went back: it was restored from a backup, and nothing that is known counts.
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

    /// Surely, not perhaps.
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

impl Ledger {
    pub(super) fn new(pods: Pods) -> Self {
        Self { pods, versions: HashMap::new(), position: None }
    }

    #[cfg(test)]
    pub(super) fn position(&self) -> Option<&Version> {
        self.position.as_ref()
    }

    /// A whole list as of `version`: what is not in it is not there.
    pub(super) fn listed(&mut self, version: Version, list: Vec<Seen>) {
        if self.position.as_ref().is_some_and(|position| version.is_older_than(position)) {
            self.versions.clear();
        }
        let mut gone = self.pods.known();
        list.iter().for_each(|seen| gone.retain(|pod| *pod != seen.pod));
        for pod in gone {
            // A lookup may have found it later than the list was made.
            if !self.versions.get(&pod).is_some_and(|known| version.is_older_than(known)) {
                self.forget(&pod);
            }
        }
        self.position = Some(version);
        list.into_iter().for_each(|seen| self.put(seen));
    }

    /// A pod is new or has changed, says the watch.
    pub(super) fn changed(&mut self, seen: Seen) -> Result<(), WentBack> {
        self.advance(seen.version.clone())?;
        self.put(seen);
        Ok(())
    }

    /// A pod is gone, says the watch.
    pub(super) fn deleted(&mut self, pod: &PodKey, version: Version) -> Result<(), WentBack> {
        self.advance(version.clone())?;
        // Its successor may be known already.
        if !self.versions.get(pod).is_some_and(|known| version.is_older_than(known)) {
            self.forget(pod);
        }
        Ok(())
    }

    /// Everything up to `version` was told.
    pub(super) fn advance(&mut self, version: Version) -> Result<(), WentBack> {
        if let Some(position) = self.position.as_ref().filter(|position| version.is_older_than(position)) {
            return Err(WentBack { from: position.0.clone(), to: version.0 });
        }
        self.position = Some(version);
        Ok(())
    }

    /// What somebody was told who asked for one pod. Returns whether that was news.
    pub(super) fn looked_up(&mut self, seen: Seen) -> bool {
        let news = self.position.as_ref().is_none_or(|position| position.is_older_than(&seen.version))
            && self.versions.get(&seen.pod).is_none_or(|known| known.is_older_than(&seen.version));
        if news {
            self.put(seen);
        }
        news
    }

    fn put(&mut self, seen: Seen) {
        let Seen { pod, version, facts } = seen;
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
