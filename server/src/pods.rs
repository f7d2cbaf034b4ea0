//! What is known of this node's pods, and every change of it. Knows nothing of requests.
//!
//! A source puts what it learns into [`Pods`]; who waits for a pod holds a [`PodWatch`] and is woken by the change itself.

use std::{collections::HashMap, fmt::Debug, path::PathBuf};

use contract::{
    annotation::{CONFIG_HASH, CONFIG_SOURCE, LEGACY, POD_NETWORKS},
    bandwidth::{EGRESS_ANNOTATION, INGRESS_ANNOTATION},
    names::PodKey,
};
use futures_util::future::BoxFuture;

mod api;
mod cache;
mod manifests;

pub use api::ApiPods;
pub use cache::{Pod, PodFacts, PodWatch, Pods};
pub use manifests::{Manifests, ManifestsError, manifest};

/// On pods of virtual machines that migrate: the guest keeps its addresses by itself (kubevirt).
pub const MIGRATABLE: &str = "kubevirt.io/allow-pod-bridge-network-live-migration";
/// The annotations that answers depend on. A source may leave out all others.
pub const KEPT_ANNOTATIONS: [&str; 7] =
    [POD_NETWORKS, LEGACY, INGRESS_ANNOTATION, EGRESS_ANNOTATION, MIGRATABLE, CONFIG_SOURCE, CONFIG_HASH];

/// Where pods are known from: a directory of manifests, an API server.
pub trait PodSource: Debug + Send + Sync {
    /// Follows a pod from now on, known or not.
    ///
    /// Returns at once.
    fn watch(&self, pod: &PodKey) -> PodWatch;

    /// Somebody has reason to believe that a pod is otherwise than it is known here. A source that may be behind asks for it, and
    /// puts the answer where a watch sees it. Returns at once.
    fn look_up(&self, _pod: &PodKey) {}

    /// Every pod that exists, with its UID: a second look at the place itself, and not at what is remembered here; or why there is none now.
    /// A source that cannot look again confirms nothing.
    fn look_again(&self) -> BoxFuture<'_, Result<HashMap<PodKey, String>, String>> {
        Box::pin(std::future::ready(Err("this source of pods cannot be looked at again".to_owned())))
    }

    /// Whether the pod is a static one that lives on, though it has no mirror at the moment.
    fn awaits_mirror(&self, _pod: &PodKey) -> bool {
        false
    }

    /// Whether a pod that is not known does not exist.
    fn readiness(&self) -> Readiness;

    /// Where an administrator sees what this source sees.
    fn whereabouts(&self) -> Whereabouts;
}

/// Where pods are for an administrator to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// Manifests in this directory.
    Manifests(PathBuf),
    /// An API server, and the node whose pods count.
    ApiServer { node: String },
}

/// How far a source can be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// Everything that was there at the start is known, and every change since.
    Synced,
    /// It was so before: changes may be missed now, and why.
    Behind(String),
    /// Not yet, or what was known is lost; and why.
    NotSynced(String),
}
