//! The pods with their networks, by node, and static pods whose mirror is missing.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use contract::names::PodKey;

use crate::{
    allocate::pod_network::Assigned,
    config::ClusterConfig,
    few::{Few, leave},
    key::NodeName,
    kinds::pod::object::{Annotated, Pod, Spelled},
    select::selectors::Selectors,
};

/// A pod, and the network assigned to it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) pod: Pod,
    pub(crate) network: Option<Arc<Assigned>>,
    pub(crate) announced: Announced,
    /// Its port has no `iface-id-ver`, and so its interface has none: the programs of 2018 made
    /// them. With one on the port alone, ovn-controller would unbind it.
    pub(crate) has_unmarked_port: bool,
}

/// The known pods.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    /// Boxed, because a hash table has up to twice as many places as entries, and three times while
    /// it grows.
    pub(crate) all: HashMap<PodKey, Box<Known>>,
    /// Each list is sorted.
    of_node: HashMap<NodeName, Few<PodKey>>,
    /// Static pods whose mirror is missing at the moment.
    pub(crate) absent: BTreeSet<PodKey>,
    pub(crate) selectors: Selectors<PodKey>,
}

impl Pods {
    pub(crate) fn get(&self, key: &PodKey) -> Option<&Known> {
        self.all.get(key).map(|known| &**known)
    }

    /// The name, the UID and the node of a pod do not change: another pod takes its place by
    /// [`insert`](Self::insert).
    pub(crate) fn get_mut(&mut self, key: &PodKey) -> Option<&mut Known> {
        self.all.get_mut(key).map(|known| &mut **known)
    }

    /// In no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PodKey, &Known)> {
        self.all.iter().map(|(key, known)| (key, &**known))
    }

    /// The pods that are scheduled to the node.
    pub(crate) fn of_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        self.of_node.get(node).into_iter().flat_map(|pods| pods.iter())
    }

    pub(crate) fn insert(&mut self, key: PodKey, pod: Pod) {
        if let Some(node) = &pod.node {
            self.of_node.entry(Arc::clone(node)).or_default().insert(key.clone());
        }
        let known =
            Known { pod, network: None, announced: Announced::default(), has_unmarked_port: false };
        self.all.insert(key, Box::new(known));
    }

    pub(crate) fn remove(&mut self, key: &PodKey) {
        self.absent.remove(key);
        let node = self.all.remove(key).and_then(|known| known.pod.node);
        if let Some(node) = node {
            leave(&mut self.of_node, &node, key);
        }
    }
}

impl Known {
    /// Takes a later state of the same pod.
    pub(crate) fn update(&mut self, mut pod: Pod) {
        let same = pod.has_networks_of(&self.pod);
        let is_another_mirror = self.pod.uid != pod.uid;
        if is_another_mirror
            || (!same || self.pod.texts != pod.texts) && self.announced == Announced::Sent
        {
            // The annotation on its way has arrived, or it cannot be applied any more: another
            // program has changed the text that the patch tests, or the mirror has another UID.
            // `assign` tells these cases apart, and queues it again if need be.
            self.announced = Announced::No;
        }
        // Equal values share one allocation.
        pod.node.clone_from(&self.pod.node);
        if pod.ports == self.pod.ports {
            pod.ports = std::mem::take(&mut self.pod.ports);
        }
        if !is_another_mirror {
            pod.uid = Arc::clone(&self.pod.uid);
        }
        if let (Annotated::Network { network, .. }, Some(own)) = (&mut pod.annotated, &self.network)
            && network == own
        {
            *network = Arc::clone(own);
        }
        self.pod = pod;
    }
}

/// Whether the API server has a pod's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Announced {
    #[default]
    No,
    /// The annotation is queued or on its way, and has not been observed on the pod since.
    Sent,
    /// The annotation was observed on the pod.
    Seen,
}

impl Known {
    /// Whether the pod's annotation has its network, or will have it.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.pod.annotated, Annotated::Network { .. }) || self.announced == Announced::Sent
    }

    /// Whether the pod's annotations match its network, in every spelling that is required.
    pub(crate) fn is_annotated(&self, config: &ClusterConfig) -> bool {
        match (&self.pod.annotated, &self.network) {
            (Annotated::Network { network, spelled }, Some(own)) => {
                let complete = match spelled {
                    Spelled::Both => true,
                    // A network without an address or gateway has no legacy spelling.
                    Spelled::Current => {
                        !config.legacy_annotations
                            || own
                                .network(config)
                                .is_none_or(|network| network.write_legacy().is_none())
                    }
                    Spelled::Legacy => false,
                };
                complete && network == own
            }
            (Annotated::Network { .. } | Annotated::Nothing | Annotated::Unusable(_), _) => false,
        }
    }
}
