//! The pods of this node as far as they are known, and their changes. Knows nothing of requests.
//!
//! A source puts what it learns into [`Pods`]. A task that waits for a pod holds a [`PodWatch`] and
//! is woken by each change of that pod.

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

/// The annotation of KubeVirt's pods with a virtual machine that may migrate: the guest configures
/// its addresses itself.
pub const MIGRATABLE: &str = "kubevirt.io/allow-pod-bridge-network-live-migration";
/// The annotations that answers depend on. A source may drop all others: a node's pods can have 256
/// KiB of them each.
pub const KEPT_ANNOTATIONS: [&str; 7] = [
    POD_NETWORKS,
    LEGACY,
    INGRESS_ANNOTATION,
    EGRESS_ANNOTATION,
    MIGRATABLE,
    CONFIG_SOURCE,
    CONFIG_HASH,
];

/// A source of pods: a directory of manifests, or an API server.
pub trait PodSource: Debug + Send + Sync {
    /// Follows a pod from now on, whether it is known or not. Returns at once.
    fn watch(&self, pod: &PodKey) -> PodWatch;

    /// The caller has reason to believe that this source is behind for a pod. A source that can be
    /// behind requests that pod, and puts the answer where a [`PodWatch`] sees it. Returns at once.
    fn look_up(&self, _pod: &PodKey) {}

    /// Every pod that exists, with its UID, read again from the directory or the API server and not
    /// from what is known here.
    ///
    /// # Errors
    ///
    /// The pods cannot be read now, with the reason. Always so for a source that cannot read again:
    /// the caller must not take a missing answer for missing pods.
    fn look_again(&self) -> BoxFuture<'_, Result<HashMap<PodKey, String>, String>> {
        Box::pin(std::future::ready(Err("this source of pods cannot be read again".to_owned())))
    }

    /// Whether the pod is a static one that runs on although its mirror is gone for the moment.
    fn awaits_mirror(&self, _pod: &PodKey) -> bool {
        false
    }

    /// Whether the source is complete: whether a pod that is not known does not exist.
    fn readiness(&self) -> Readiness;

    /// Where an administrator finds the pods of this source, for hints.
    fn source_description(&self) -> SourceDescription;
}

/// Where an administrator finds the pods of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceDescription {
    /// Manifests in this directory.
    Manifests(PathBuf),
    /// The API server: the pods of this node.
    ApiServer { node: String },
}

/// How complete a source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// All pods are known, and every change is reported.
    Synced,
    /// All pods were known before. Changes may be missed now; the text says why.
    Behind(String),
    /// Pods may be missing; the text says why.
    NotSynced(String),
}
