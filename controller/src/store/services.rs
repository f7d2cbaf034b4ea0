//! The Services with their EndpointSlices, and those whose load balancers differ from node to node.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use contract::names::{ServiceKey, SliceKey};

use super::{Endpoint, Service, ServicePort, Slice, Store, Traffic, fanout, ranges::Ranges};
use crate::{
    config::ClusterConfig,
    key::Dirty,
    rows::load_balancer::template_affinity,
    trouble::{ServiceTrouble, Trouble},
};

/// A Service and its slices, one of which may come first.
#[derive(Debug, Default)]
pub struct Known {
    service: Option<Service>,
    /// Sorted by name.
    slices: Vec<(SliceKey, Slice)>,
    /// The trouble that was reported last.
    told: Option<ServiceTrouble>,
    /// When the changes happened whose rows are not in the database yet, in microseconds since 1970.
    triggers: Vec<i64>,
}

/// How a Service's load balancers depend on the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByNode {
    No,
    /// Because of NodePorts, which can be templates.
    NodePorts,
    /// They may differ from node to node.
    Differ,
}

/// Backends of a Service over all of its addresses and ports. A hundred thousand are a row of two megabytes,
/// which ovn-northd still turns into flows. Kubernetes supports 250 pods behind a port; with a tenth, a
/// Service of 5,000 ports and a few pods would lose some.
const MOST_BACKENDS: usize = 100_000;

/// More changes than this that wait for one transaction are not measured one by one.
const MOST_TRIGGERS: usize = 64;

/// The known Services.
#[derive(Debug, Default)]
pub(super) struct Services {
    all: HashMap<ServiceKey, Box<Known>>,
    of_slice: HashMap<SliceKey, ServiceKey>,
    /// Services whose load balancers depend on the nodes.
    per_node: BTreeSet<ServiceKey>,
    /// Services whose load balancers depend on the nodes because of their NodePorts alone.
    node_ports: BTreeSet<ServiceKey>,
    /// Number of Services; `all` has those, too, of which only slices are known.
    services: usize,
}

impl Known {
    pub fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }

    pub fn slices(&self) -> impl Iterator<Item = &Slice> + Clone {
        self.slices.iter().map(|(_, slice)| slice)
    }

    /// How many of its ports get load balancers: all, unless it has too many backends.
    pub fn served(&self) -> usize {
        let Some(service) = &self.service else { return 0 };
        let addresses = service.cluster_ips.len() + service.external_ips.len();
        let mut sum = 0;
        let fits = |port: &&ServicePort| {
            let backends: usize =
                self.slices().map(|slice| slice.targets(port).count() * slice.endpoints.len()).sum();
            sum += (addresses + usize::from(port.node_port.is_some())) * (1 + backends);
            sum <= MOST_BACKENDS
        };
        service.ports.iter().take_while(fits).count()
    }

    /// How its load balancers depend on the nodes.
    fn by_node(&self, config: &ClusterConfig) -> ByNode {
        let Some(service) = self.service.as_ref().filter(|service| !service.cluster_ips.is_empty()) else {
            return ByNode::No;
        };
        let has_node_ports = service.ports.iter().any(|port| port.node_port.is_some());
        let by_policy = service.internal == Traffic::Local
            || service.external == Traffic::Local && (has_node_ports || !service.external_ips.is_empty());
        let mut endpoints = self.slices().flat_map(|slice| &slice.endpoints);
        let differs = |endpoint: &Endpoint| endpoint.hints.is_some() || !config.is_of_pods(endpoint.address);
        if by_policy || has_node_ports && !template_affinity(service) || endpoints.any(differs) {
            ByNode::Differ
        } else if has_node_ports {
            ByNode::NodePorts
        } else {
            ByNode::No
        }
    }

    fn is_empty(&self) -> bool {
        self.service.is_none() && self.slices.is_empty()
    }

    fn trouble(&self, ranges: &Ranges) -> Option<ServiceTrouble> {
        let service = self.service.as_ref()?;
        let of_slices = || self.slices().find_map(|slice| slice.unusable.clone());
        let too_many = || {
            let first = service.ports.get(self.served())?.port;
            Some(ServiceTrouble::TooManyBackends { most: MOST_BACKENDS, first })
        };
        let unusable = service.unusable.clone().or_else(of_slices);
        let outside = || {
            let address = *service.cluster_ips.iter().find(|address| ranges.lack(**address))?;
            Some(ServiceTrouble::OutsideOfRanges { address })
        };
        unusable.map(ServiceTrouble::Unusable).or_else(too_many).or_else(outside)
    }
}

impl Services {
    pub(super) fn get(&self, key: &ServiceKey) -> Option<&Known> {
        self.all.get(key).map(|known| &**known)
    }

    /// Services, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ServiceKey, &Service)> {
        self.all.iter().filter_map(|(key, known)| Some((key, known.service()?)))
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = &SliceKey> {
        self.of_slice.keys()
    }

    /// Number of Services.
    pub(super) fn count(&self) -> usize {
        self.services
    }

    /// Services whose load balancers depend on the nodes.
    pub(super) fn per_node(&self) -> impl Iterator<Item = &ServiceKey> {
        self.per_node.iter()
    }

    /// Services whose load balancers depend on the nodes because of their NodePorts alone. With templates,
    /// that is how many addresses nodes have.
    pub(super) fn node_ports(&self) -> impl Iterator<Item = &ServiceKey> {
        self.node_ports.iter()
    }

    /// Changes a Service or its slices, and follows the change in the indexes.
    fn change(&mut self, key: &ServiceKey, config: &ClusterConfig, change: impl FnOnce(&mut Known)) {
        let known = self.all.entry(key.clone()).or_default();
        let was_there = known.service.is_some();
        change(known);
        let is_there = known.service.is_some();
        let by_node = known.by_node(config);
        for (index, is_in) in [
            (&mut self.per_node, by_node == ByNode::Differ),
            (&mut self.node_ports, by_node == ByNode::NodePorts),
        ] {
            if is_in {
                index.insert(key.clone());
            } else {
                index.remove(key);
            }
        }
        if known.is_empty() {
            self.all.remove(key);
        }
        self.services = self.services + usize::from(is_there) - usize::from(was_there);
    }
}

impl Store {
    /// A Service with its slices; none if there is no such Service.
    pub fn service(&self, key: &ServiceKey) -> Option<(&Service, &Known)> {
        let known = self.services.get(key)?;
        Some((known.service()?, known))
    }

    /// Number of Services.
    pub fn services(&self) -> usize {
        self.services.count()
    }

    /// When the changes of the Service's endpoints happened that have come since the last call, in
    /// microseconds since 1970.
    pub fn take_triggers(&mut self, key: &ServiceKey) -> Vec<i64> {
        self.services.all.get_mut(key).map(|known| std::mem::take(&mut known.triggers)).unwrap_or_default()
    }

    pub(super) fn replace_services(&mut self, services: Vec<(ServiceKey, Service)>, dirty: &mut Dirty<'_>) {
        let there: HashSet<&ServiceKey> = services.iter().map(|(key, _)| key).collect();
        let gone = self.services.iter().map(|(key, _)| key).filter(|key| !there.contains(key));
        let gone: Vec<ServiceKey> = gone.cloned().collect();
        gone.iter().for_each(|key| self.remove_service(key, dirty));
        services.into_iter().for_each(|(key, service)| self.put_service(key, service, dirty));
    }

    pub(super) fn put_service(&mut self, key: ServiceKey, service: Service, dirty: &mut Dirty<'_>) {
        let before = self.services.get(&key).and_then(Known::service);
        if before == Some(&service) {
            return;
        }
        let config = Arc::clone(&self.config);
        self.services.change(&key, &config, |known| known.service = Some(service));
        self.tell_service(&key);
        fanout::service(&key, dirty);
    }

    pub(super) fn remove_service(&mut self, key: &ServiceKey, dirty: &mut Dirty<'_>) {
        if self.services.get(key).and_then(Known::service).is_none() {
            return;
        }
        let config = Arc::clone(&self.config);
        self.services.change(key, &config, |known| (known.service, known.told) = (None, None));
        fanout::service(key, dirty);
    }

    pub(super) fn replace_slices(&mut self, slices: Vec<(SliceKey, Slice)>, dirty: &mut Dirty<'_>) {
        let there: HashSet<&SliceKey> = slices.iter().map(|(key, _)| key).collect();
        let gone: Vec<SliceKey> =
            self.services.slices().filter(|key| !there.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_slice(key, dirty));
        for (key, slice) in slices {
            // The change that it tells of may be long ago.
            self.put_slice(key, Slice { triggered: None, ..slice }, dirty);
        }
    }

    pub(super) fn put_slice(&mut self, key: SliceKey, mut slice: Slice, dirty: &mut Dirty<'_>) {
        let trigger = slice.triggered.take();
        // The label may have changed.
        if self.services.of_slice.get(&key).is_some_and(|service| Some(service) != slice.service.as_ref()) {
            self.remove_slice(&key, dirty);
        }
        let Some(service) = slice.service.clone() else { return };
        // Equal names share one allocation.
        for endpoint in &mut slice.endpoints {
            if let Some(name) = endpoint.node.as_ref().and_then(|name| self.nodes.name(name)) {
                endpoint.node = Some(Arc::clone(name));
            }
        }
        let before = self.services.get(&service).and_then(|known| known.slice(&key));
        if before == Some(&slice) {
            return;
        }
        let config = Arc::clone(&self.config);
        self.services.change(&service, &config, |known| {
            match known.slices.binary_search_by(|(other, _)| other.cmp(&key)) {
                Ok(place) => known.slices[place].1 = slice,
                Err(place) => {
                    known.slices.reserve_exact(1);
                    known.slices.insert(place, (key.clone(), slice));
                }
            }
            if known.triggers.len() < MOST_TRIGGERS {
                known.triggers.extend(trigger);
            }
        });
        self.services.of_slice.entry(key).or_insert_with(|| service.clone());
        self.tell_service(&service);
        fanout::slice(&service, dirty);
    }

    pub(super) fn remove_slice(&mut self, key: &SliceKey, dirty: &mut Dirty<'_>) {
        let Some(service) = self.services.of_slice.remove(key) else { return };
        let config = Arc::clone(&self.config);
        self.services.change(&service, &config, |known| known.slices.retain(|(other, _)| other != key));
        fanout::slice(&service, dirty);
    }

    /// Queues an event if the Service or its slices have begun to have a value that cannot be used.
    fn tell_service(&mut self, key: &ServiceKey) {
        let Some(known) = self.services.all.get_mut(key) else { return };
        let trouble = known.trouble(&self.ranges);
        if trouble == known.told {
            return;
        }
        known.told.clone_from(&trouble);
        if let (Some(why), Some(service)) = (trouble, &known.service) {
            let uid = Arc::clone(&service.uid);
            self.outbox.tell_service(Trouble { subject: key.clone(), uid, why });
        }
    }
}

impl Store {
    /// The ranges have changed: queues events for Services that are outside of them now.
    pub(super) fn tell_services(&mut self) {
        let keys: Vec<ServiceKey> = self.services.iter().map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.tell_service(key));
    }
}

impl Known {
    fn slice(&self, key: &SliceKey) -> Option<&Slice> {
        let place = self.slices.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        Some(&self.slices[place].1)
    }
}
