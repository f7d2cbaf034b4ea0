//! Applies observations to the store: `nodes`, `pods` and `services` know what an object of their kind
//! changes.

use std::collections::BTreeSet;

use super::Store;
use crate::{
    key::Dirty,
    observation::{Kind, Observation, Seen},
};

/// Which kinds of objects have been listed once.
#[derive(Debug, Default)]
pub(super) struct Listed {
    kinds: BTreeSet<Kind>,
    /// All kinds have been listed, and all lists are in the store.
    pub(super) all: bool,
}

impl Listed {
    pub(super) fn contains(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }
}

impl Store {
    /// Applies an observation, and passes the keys that it concerns to `dirty`.
    ///
    /// A complete list replaces the known objects: those that it does not name are gone, unless it lacks so
    /// many that it is held back ([`doubted`](Self::doubted)). No address is assigned before every kind has
    /// been listed once; the observation that completes the lists also concerns the pods that get addresses
    /// then.
    pub fn observe(&mut self, observation: Observation, dirty: &mut Dirty<'_>) {
        match observation {
            Observation::Cluster(id) => self.doubts.cluster(id),
            Observation::Nodes(seen) => match seen {
                Seen::All(nodes) if !self.believes_nodes(&nodes) => {}
                // Dropped while a list is held back: the next accepted list contains the object's latest
                // state.
                Seen::Applied(_) | Seen::Deleted(_) if self.doubts.hold_nodes() => {}
                Seen::All(nodes) => {
                    self.listed.kinds.insert(Kind::Node);
                    self.replace_nodes(nodes, dirty);
                }
                Seen::Applied(node) => self.put_node(node, dirty),
                Seen::Deleted(name) => self.remove_node(&name, dirty),
            },
            Observation::Pods(seen) => match seen {
                Seen::All(pods) if !self.believes_pods(&pods) => {}
                Seen::Applied(_) | Seen::Deleted(_) if self.doubts.hold_pods() => {}
                Seen::All(pods) => {
                    self.listed.kinds.insert(Kind::Pod);
                    self.replace_pods(pods, dirty);
                }
                Seen::Applied((key, pod)) => self.put_pod(key, pod, dirty),
                Seen::Deleted(key) => self.remove_pod(&key, dirty),
            },
            Observation::Services(seen) => match seen {
                Seen::All(services) if !self.believes_services(&services) => {}
                Seen::Applied(_) | Seen::Deleted(_) if self.doubts.hold_services() => {}
                Seen::All(services) => {
                    self.listed.kinds.insert(Kind::Service);
                    self.replace_services(services, dirty);
                }
                Seen::Applied((key, service)) => self.put_service(key, service, dirty),
                Seen::Deleted(key) => self.remove_service(&key, dirty),
            },
            Observation::Slices(seen) => match seen {
                Seen::All(slices) if !self.believes_slices(&slices) => {}
                Seen::Applied(_) | Seen::Deleted(_) if self.doubts.hold_slices() => {}
                Seen::All(slices) => {
                    self.listed.kinds.insert(Kind::Slice);
                    self.replace_slices(slices, dirty);
                }
                Seen::Applied((key, slice)) => self.put_slice(key, slice, dirty),
                Seen::Deleted(key) => self.remove_slice(&key, dirty),
            },
        }
        if !self.listed.all && Self::KINDS.iter().all(|kind| self.listed.contains(*kind)) {
            self.listed.all = true;
            self.assign_all(dirty);
        }
    }
}
