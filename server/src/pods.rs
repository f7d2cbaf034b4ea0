//! What is known of this node's pods, and every change of it. Knows nothing of requests.
//!
//! A source puts what it learns into [`Pods`]; who waits for a pod holds a [`PodWatch`] and is woken by the change itself.

use std::{fmt::Debug, path::PathBuf};

use contract::{
    annotation::{LEGACY, POD_NETWORKS},
    bandwidth::{EGRESS_ANNOTATION, INGRESS_ANNOTATION},
    names::PodKey,
};

mod api;
mod cache;
mod manifests;

pub use api::ApiPods;
pub use cache::{Pod, PodFacts, PodWatch, Pods};
pub use manifests::{Manifests, ManifestsError, manifest};

/// Where a pod came from; `api` or a file on the node (kubernetes, `pkg/kubelet/types`).
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// What the kubelet calls a pod that came from a file: the hash of it, which serves as UID on the node.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
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
    /// It was so a moment ago: changes may be missed now, and why.
    Behind(String),
    /// Not yet, or no longer; and why.
    NotSynced(String),
}
