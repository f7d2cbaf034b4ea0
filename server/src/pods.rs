//! What is known of this node's pods, and every change of it. Knows nothing of requests.
//!
//! A source puts what it learns into [`Pods`]; who waits for a pod holds a [`PodWatch`] and is woken by the change itself.

use std::fmt::Debug;

use contract::names::PodKey;

mod cache;
mod manifests;

pub use cache::{Pod, PodFacts, PodWatch, Pods};
pub use manifests::{Manifests, ManifestsError};

/// Where pods are known from: a directory of manifests, an API server.
pub trait PodSource: Debug + Send + Sync {
    /// Follows a pod from now on, known or not.
    ///
    /// Returns at once. A source whose cache may lag behind takes the first watch of a pod that it does not know as the occasion to
    /// ask for it, and puts the answer where the watch sees it.
    fn watch(&self, pod: &PodKey) -> PodWatch;

    /// Whether a pod that is not known does not exist.
    fn readiness(&self) -> Readiness;
}

/// How far a source can be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// Everything that was there at the start is known.
    Synced,
    /// Not yet, or no longer; and why.
    NotSynced(String),
}
