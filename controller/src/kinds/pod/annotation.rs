//! The annotations of a pod: what they should be, and whether they are so.

use std::{collections::BTreeMap, sync::Arc};

use contract::{
    annotation::{LEGACY, POD_NETWORKS},
    names::{Network, PodKey},
};

use crate::{allocate::pod_network::Assigned, config::ClusterConfig, kinds::pod::object::Texts};

/// Annotations to write on a pod. The patch applies only to the pod with this UID; a later pod of
/// the same name gets its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAnnotation {
    pub pod: PodKey,
    pub uid: Arc<str>,
    /// The annotations that the network was decided on. The patch replaces these and no others.
    pub over: Texts,
    pub(crate) network: Arc<Assigned>,
    pub(crate) other_networks: Option<Arc<str>>,
    pub(crate) config: Arc<ClusterConfig>,
}

impl PodAnnotation {
    /// The annotations by name. Thousands of pods may wait for their patch, so the text is built
    /// only when the patch is sent.
    pub fn annotations(&self) -> BTreeMap<&'static str, String> {
        let Some(network) = self.network.network(&self.config) else { return BTreeMap::new() };
        // Unreadable text is overwritten: the assigned network counts, whatever the annotation
        // says.
        let text = network
            .write(&Network::Default, self.other_networks.as_deref())
            .or_else(|_| network.write(&Network::Default, None));
        // For programs that read only the annotation of 2018.
        let legacy = self.config.legacy_annotations.then(|| network.write_legacy()).flatten();
        [(POD_NETWORKS, text.ok()), (LEGACY, legacy)]
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)))
            .collect()
    }
}
