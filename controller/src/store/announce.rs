//! Annotations to write, and troubles to tell: what the API server has to hear. Knows nothing of requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contract::{
    annotation::{LEGACY, POD_NETWORKS},
    names::{Network, PodKey},
};

use super::{Annotated, Known, Spelled, Store, Texts};
use crate::{
    key::NodeName,
    trouble::{NodeTrouble, PodTrouble, SharedAddress, Trouble},
};

/// Annotations that a pod is to have. They go to the pod with this uid or to none: a pod of the same name that came later gets its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAnnotation {
    pub pod: PodKey,
    pub uid: Arc<str>,
    pub annotations: BTreeMap<&'static str, String>,
    /// What it was decided on, and is to be written over.
    pub over: Texts,
}

/// What waits to be taken.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    annotations: BTreeSet<PodKey>,
    troubles: Vec<Trouble<PodKey, PodTrouble>>,
    of_nodes: Vec<Trouble<NodeName, NodeTrouble>>,
    shared: Vec<Trouble<PodKey, SharedAddress>>,
}

/// How far the API server knows of a pod's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Announced {
    #[default]
    No,
    /// It was given out to be written, and has not been seen since.
    Sent,
    /// It was seen on the pod.
    Seen,
}

impl Outbox {
    pub(super) fn tell_node(&mut self, trouble: Trouble<NodeName, NodeTrouble>) {
        self.of_nodes.push(trouble);
    }

    pub(super) fn tell_shared(&mut self, trouble: Trouble<PodKey, SharedAddress>) {
        self.shared.push(trouble);
    }

    pub(super) fn forget(&mut self, key: &PodKey) {
        self.annotations.remove(key);
    }
}

impl Store {
    /// Annotations to be written, each once. The writer repeats what fails until the object is gone or has another uid; the store
    /// gives an annotation out again if it was there once and is there no more, or says something else.
    pub fn take_annotations(&mut self) -> Vec<PodAnnotation> {
        let keys = std::mem::take(&mut self.outbox.annotations);
        keys.into_iter().filter_map(|pod| self.annotation(pod)).collect()
    }

    /// Troubles that arose since the last call, for events.
    ///
    /// That a node has no subnet yet is not among them: it is the node's trouble, and that of all its pods together.
    pub fn take_troubles(&mut self) -> Vec<Trouble<PodKey, PodTrouble>> {
        std::mem::take(&mut self.outbox.troubles)
    }

    /// The same of nodes.
    pub fn take_node_troubles(&mut self) -> Vec<Trouble<NodeName, NodeTrouble>> {
        std::mem::take(&mut self.outbox.of_nodes)
    }

    /// Pods that share an address with a port that is not ours, each as often as it began since the last call.
    pub fn take_shared(&mut self) -> Vec<Trouble<PodKey, SharedAddress>> {
        std::mem::take(&mut self.outbox.shared)
    }

    pub(super) fn tell_trouble(&mut self, key: &PodKey) {
        match (self.pods.get(key), self.trouble(key)) {
            (_, Some(PodTrouble::NodeWithoutSubnet(_)) | None) | (None, _) => {}
            (Some(known), Some(why)) => {
                let trouble = Trouble { subject: key.clone(), uid: Arc::clone(&known.pod.uid), why: why.clone() };
                self.outbox.troubles.push(trouble);
            }
        }
    }

    /// Sees to it that the API server hears of the pod's network.
    pub(super) fn announce(&mut self, key: &PodKey) {
        let legacy = self.config.legacy_annotations;
        let node = self.pods.get(key).and_then(|known| known.pod.node.clone());
        // A pod of another zone is that zone's to write.
        let is_local = node.is_some_and(|node| self.is_local(&node));
        let Some(known) = self.pods.get_mut(key) else { return };
        match (known.is_annotated(legacy), known.announced) {
            (true, _) => {
                known.announced = Announced::Seen;
                known.pod.texts = Texts::Right;
                self.outbox.forget(key);
            }
            // What is on its way is not sent twice: the pod was seen as it was before.
            (false, Announced::Sent) => {}
            (false, Announced::No | Announced::Seen) if is_local => {
                known.announced = Announced::Sent;
                self.outbox.annotations.insert(key.clone());
            }
            (false, Announced::No | Announced::Seen) => {}
        }
    }

    fn annotation(&self, pod: PodKey) -> Option<PodAnnotation> {
        let known = self.pods.get(&pod)?;
        let network = known.network.as_ref()?;
        // Text that cannot be read is overwritten here: the pod has this network, whatever became of the record.
        let text =
            network.write(&Network::Default, known.pod.other_networks.as_deref()).or_else(|_| network.write(&Network::Default, None));
        let legacy = self.config.legacy_annotations.then(|| network.write_legacy()).flatten();
        let annotations =
            [(POD_NETWORKS, text.ok()), (LEGACY, legacy)].into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
        Some(PodAnnotation { uid: Arc::clone(&known.pod.uid), pod, annotations, over: known.pod.texts.clone() })
    }
}

impl Known {
    /// Whether the pod's annotations say what its network is.
    fn is_annotated(&self, with_legacy: bool) -> bool {
        match (&self.pod.annotated, &self.network) {
            (Annotated::Network { network, spelled }, Some(own)) => {
                let complete = match spelled {
                    Spelled::Both => true,
                    Spelled::Current => !with_legacy || own.write_legacy().is_none(),
                    Spelled::Legacy => false,
                };
                complete && network == own
            }
            (Annotated::Network { .. } | Annotated::Nothing | Annotated::Unusable(_), _) => false,
        }
    }
}
