//! The safety brake of the store: a list that lacks many known objects is held back, and the store stays as
//! it is until a second list confirms the first.
//!
//! At the start the known objects are those with rows in the northbound database.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::{PodKey, PolicyKey, ServiceKey, SliceKey};

use super::{Namespace, Node, Pod, Policy, Service, Slice, Store};
use crate::{
    cluster_id::ClusterId,
    doubt::{ClusterIdentity, Doubt, Doubted, Rule},
    key::NodeName,
    observation::Kind,
};

/// Which lists are held back, and the identity of the API server's cluster.
#[derive(Debug)]
pub(super) struct Doubts {
    nodes: Doubt<NodeName>,
    pods: Doubt<PodKey>,
    services: Doubt<ServiceKey>,
    slices: Doubt<SliceKey>,
    namespaces: Doubt<Arc<str>>,
    policies: Doubt<PolicyKey>,
    identity: ClusterIdentity,
    /// Nodes that had a switch at the start, until the first list of nodes is accepted.
    found: BTreeSet<NodeName>,
    /// Services that had load balancers at the start, until the first list of Services is accepted.
    found_services: BTreeSet<ServiceKey>,
    /// Policies that had port groups at the start, until the first list of policies is accepted.
    found_policies: BTreeSet<PolicyKey>,
}

impl Default for Doubts {
    fn default() -> Self {
        Self {
            nodes: Doubt::new(Rule::Nodes),
            pods: Doubt::new(Rule::Pods),
            services: Doubt::new(Rule::Pods),
            slices: Doubt::new(Rule::Pods),
            namespaces: Doubt::new(Rule::Pods),
            policies: Doubt::new(Rule::Pods),
            identity: ClusterIdentity::default(),
            found: BTreeSet::new(),
            found_services: BTreeSet::new(),
            found_policies: BTreeSet::new(),
        }
    }
}

impl Doubts {
    pub(super) fn hold_nodes(&self) -> bool {
        self.nodes.is_held()
    }

    pub(super) fn hold_pods(&self) -> bool {
        self.pods.is_held()
    }

    pub(super) fn hold_services(&self) -> bool {
        self.services.is_held()
    }

    pub(super) fn hold_slices(&self) -> bool {
        self.slices.is_held()
    }

    pub(super) fn hold_namespaces(&self) -> bool {
        self.namespaces.is_held()
    }

    pub(super) fn hold_policies(&self) -> bool {
        self.policies.is_held()
    }

    /// Whether the API server is another cluster's.
    pub(super) fn is_other_cluster(&self) -> bool {
        self.identity.other_cluster().is_some()
    }

    /// Takes the identity of the API server's cluster. It is read before the first lists, and again before
    /// each second look while a list is held back.
    pub(super) fn cluster(&mut self, id: ClusterId) {
        self.identity.see(id);
        if self.identity.other_cluster().is_some() {
            // Lists and events of another cluster are ignored until the right one is back.
            self.nodes.hold();
            self.pods.hold();
            self.services.hold();
            self.slices.hold();
            self.namespaces.hold();
            self.policies.hold();
        } else {
            // The next lists may confirm the ones that are held back.
            self.nodes.time_passed();
            self.pods.time_passed();
            self.services.time_passed();
            self.slices.time_passed();
            self.namespaces.time_passed();
            self.policies.time_passed();
        }
    }
}

impl Store {
    /// What is held back at the moment, if anything is.
    pub fn doubted(&self) -> Option<Doubted> {
        let Doubts { nodes, pods, services, slices, namespaces, policies, identity, found, .. } =
            &self.doubts;
        let is_any = nodes.is_held()
            || pods.is_held()
            || services.is_held()
            || slices.is_held()
            || namespaces.is_held()
            || policies.is_held();
        let example = || self.nodes.iter().map(|node| &node.name).chain(found).next().cloned();
        let other_cluster = || identity.other_cluster();
        is_any.then(|| Doubted {
            nodes: nodes.missing(),
            pods: pods.missing(),
            services: services.missing(),
            slices: slices.missing(),
            namespaces: namespaces.missing(),
            policies: policies.missing(),
            other_cluster: other_cluster(),
            example: example(),
        })
    }

    /// Registers a node that has a switch in the northbound database. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_node(&mut self, name: NodeName) {
        self.doubts.found.insert(name);
    }

    /// Registers a Service that has load balancers in the northbound database. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_service(&mut self, key: ServiceKey) {
        self.doubts.found_services.insert(key);
    }

    /// Registers a policy that has a port group in the northbound database. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_policy(&mut self, key: PolicyKey) {
        self.doubts.found_policies.insert(key);
    }

    /// Registers the cluster that the northbound database was written for. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_cluster(&mut self, id: Arc<str>) {
        self.doubts.identity = ClusterIdentity::of(id);
    }

    /// The cluster that this process works for; none while it is unknown, or while the API server is another
    /// cluster's.
    pub fn cluster_id(&self) -> Option<&Arc<str>> {
        self.doubts.identity.own()
    }

    /// Whether a list of nodes is accepted.
    pub(super) fn believes_nodes(&mut self, list: &[Node]) -> bool {
        let listed = list.iter().map(|node| (&node.name, &node.uid)).collect();
        let Doubts { nodes, found, identity, .. } = &mut self.doubts;
        let known: Vec<_> = match self.listed.contains(Kind::Node) {
            true => {
                self.nodes.iter().map(|node| (Arc::clone(&node.name), Some(Arc::clone(&node.uid)))).collect()
            }
            // The northbound database has the names of nodes, but no UIDs.
            false => found.iter().map(|name| (Arc::clone(name), None)).collect(),
        };
        // A list of another cluster is never accepted, however often it is repeated.
        let believed = identity.other_cluster().is_none() && nodes.believes(known, &listed);
        if believed {
            // What a node of them lacks it had when its rows were written: a new node has none.
            let with_rows = list.iter().map(|node| &node.name).filter(|name| found.contains(*name));
            self.nodes.await_annotations(with_rows.cloned());
            found.clear();
        }
        believed
    }

    /// Whether a list of pods is accepted. Only pods with a network (at the start: with a port) count,
    /// because only these can lose it.
    pub(super) fn believes_pods(&mut self, list: &[(PodKey, Pod)]) -> bool {
        let listed = list.iter().map(|(key, pod)| (key, &pod.uid)).collect();
        let known: Vec<_> = match self.listed.contains(Kind::Pod) {
            true => {
                let with_network = self.pods.iter().filter(|(_, known)| known.network.is_some());
                with_network.map(|(key, known)| (key.clone(), Some(Arc::clone(&known.pod.uid)))).collect()
            }
            false => self.found.iter().map(|(key, port)| (key.clone(), port.uid.clone())).collect(),
        };
        let successors = if self.listed.contains(Kind::Pod) { 0 } else { self.successors(list) };
        self.doubts.identity.other_cluster().is_none()
            && self.doubts.pods.believes_with(successors, known, &listed)
    }

    /// Number of pods in a first list that have no port and need one. Where many pods come and go, they have
    /// taken the places of those that have gone while nobody led. They count only if the identity of the
    /// cluster was read just before the list and is the database's: another cluster's pods are no
    /// successors.
    fn successors(&self, list: &[(PodKey, Pod)]) -> usize {
        if !self.doubts.identity.is_confirmed() {
            return 0;
        }
        let has_port = |key: &PodKey, pod: &Pod| {
            self.found.get(key).is_some_and(|port| port.uid.is_none() || pod.is_of(port.uid.as_ref()))
        };
        let needs_port = |pod: &Pod| pod.needs_network() && pod.node.is_some();
        list.iter().filter(|(key, pod)| needs_port(pod) && !has_port(key, pod)).count()
    }
}

impl Store {
    /// Whether a list of Services is accepted.
    pub(super) fn believes_services(&mut self, list: &[(ServiceKey, Service)]) -> bool {
        let listed = list.iter().map(|(key, service)| (key, &service.uid)).collect();
        let Doubts { services, found_services, identity, .. } = &mut self.doubts;
        let known: Vec<_> = match self.listed.contains(Kind::Service) {
            true => self
                .services
                .iter()
                .map(|(key, service)| (key.clone(), Some(Arc::clone(&service.uid))))
                .collect(),
            false => found_services.iter().map(|key| (key.clone(), None)).collect(),
        };
        let believed = identity.other_cluster().is_none() && services.believes(known, &listed);
        if believed {
            found_services.clear();
        }
        believed
    }

    /// Whether a list of slices is accepted. At the start nothing is known of slices: an API server that has
    /// lost them has lost the Services, too, whose list is then held back until everything is listed again.
    pub(super) fn believes_slices(&mut self, list: &[(SliceKey, Slice)]) -> bool {
        // A slice has no identity beside its name: endpoints are what counts.
        let none = Arc::from("");
        let listed = list.iter().map(|(key, _)| (key, &none)).collect();
        let known: Vec<_> = self.services.slices().map(|key| (key.clone(), None)).collect();
        self.doubts.identity.other_cluster().is_none() && self.doubts.slices.believes(known, &listed)
    }
}

impl Store {
    /// Whether a list of policies is accepted. Without its policies a pod is open.
    pub(super) fn believes_policies(&mut self, list: &[(PolicyKey, Policy)]) -> bool {
        let listed = list.iter().map(|(key, policy)| (key, &policy.uid)).collect();
        let Doubts { policies, found_policies, identity, .. } = &mut self.doubts;
        let known: Vec<_> = match self.listed.contains(Kind::Policy) {
            true => self
                .policies
                .iter()
                .map(|(key, policy)| (key.clone(), Some(Arc::clone(&policy.uid))))
                .collect(),
            false => found_policies.iter().map(|key| (key.clone(), None)).collect(),
        };
        let believed = identity.other_cluster().is_none() && policies.believes(known, &listed);
        if believed {
            found_policies.clear();
        }
        believed
    }

    /// Whether a list of namespaces is accepted. At the start nothing is known of them.
    pub(super) fn believes_namespaces(&mut self, list: &[(Arc<str>, Namespace)]) -> bool {
        let listed = list.iter().map(|(name, namespace)| (name, &namespace.uid)).collect();
        let known = self.namespaces.iter().map(|(name, uid)| (Arc::clone(name), Some(Arc::clone(uid))));
        let known: Vec<_> = known.collect();
        self.doubts.identity.other_cluster().is_none() && self.doubts.namespaces.believes(known, &listed)
    }
}
