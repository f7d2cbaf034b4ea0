//! The safety brake of the store: a list that lacks many known objects is held back, and the store
//! stays as it is until a second list confirms the first.
//!
//! At the start the known objects are those with rows in the northbound database.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, ClusterPolicyKind, PodKey, PolicyKey, ServiceKey, SliceKey},
};
use kubeapi::services::{Service, Slice};

use crate::{
    cluster_id::ClusterId,
    custom::{CustomObject as _, registry::of_kind},
    key::{Key, NodeName},
    kinds::{
        cluster_policy::object::ClusterPolicy, namespace::object::Namespace,
        network_policy::object::Policy, node::object::Node, pod::object::Pod,
    },
    safety_brake::{ClusterIdentity, Example, HeldLists, Rule, SafetyBrake},
    watch_event::Kind,
    world::Store,
};

/// Which lists are held back, and the identity of the API server's cluster.
#[derive(Debug)]
pub(crate) struct SafetyBrakes {
    nodes: SafetyBrake<NodeName>,
    pods: SafetyBrake<PodKey>,
    services: SafetyBrake<ServiceKey>,
    slices: SafetyBrake<SliceKey>,
    /// Services with backends that have no slices, at the start.
    backends: SafetyBrake<ServiceKey>,
    namespaces: SafetyBrake<Arc<str>>,
    policies: SafetyBrake<PolicyKey>,
    /// Of each kind, whose lists come one by one.
    cluster_policies: BTreeMap<ClusterPolicyKind, SafetyBrake<ClusterPolicyKey>>,
    custom: BTreeMap<CustomKind, SafetyBrake<Arc<str>>>,
    identity: ClusterIdentity,
    /// Nodes that had a switch at the start, until the first list of nodes is accepted.
    found: BTreeSet<NodeName>,
    /// Services that had load balancers at the start, until the first list of Services is accepted.
    found_services: BTreeSet<ServiceKey>,
    /// Services that had backends at the start, until the first list of slices is accepted.
    found_backends: BTreeSet<ServiceKey>,
    /// Policies that had port groups at the start, until the first list of policies is accepted.
    found_policies: BTreeSet<PolicyKey>,
    /// Policies of the cluster that had rows at the start, until the first list of their kind is
    /// accepted.
    found_cluster_policies: BTreeSet<ClusterPolicyKey>,
    /// The same of the kinds of which a namespace has one object, by namespace.
    found_custom: BTreeSet<(CustomKind, Arc<str>)>,
}

impl Default for SafetyBrakes {
    fn default() -> Self {
        Self {
            nodes: SafetyBrake::new(Rule::Nodes),
            pods: SafetyBrake::new(Rule::Pods),
            services: SafetyBrake::new(Rule::Pods),
            slices: SafetyBrake::new(Rule::Pods),
            backends: SafetyBrake::new(Rule::Pods),
            namespaces: SafetyBrake::new(Rule::Pods),
            policies: SafetyBrake::new(Rule::Pods),
            cluster_policies: ClusterPolicyKind::ALL
                .map(|kind| (kind, SafetyBrake::new(Rule::Nodes)))
                .into(),
            custom: CustomKind::ALL.map(|kind| (kind, SafetyBrake::new(Rule::Nodes))).into(),
            identity: ClusterIdentity::default(),
            found: BTreeSet::new(),
            found_services: BTreeSet::new(),
            found_backends: BTreeSet::new(),
            found_policies: BTreeSet::new(),
            found_cluster_policies: BTreeSet::new(),
            found_custom: BTreeSet::new(),
        }
    }
}

impl SafetyBrakes {
    /// The owners of rows of a kind that an administrator defines, as they were found at the start;
    /// none once a list of the kind is accepted.
    pub(crate) fn found_of(&self, kind: Kind) -> BTreeSet<Key> {
        match kind {
            Kind::ClusterPolicy(of) => {
                let found = self.found_cluster_policies.iter().filter(|key| key.kind == of);
                found.cloned().map(Key::from).collect()
            }
            Kind::Custom(of) => {
                let found = self.found_custom.iter().filter(|(kind, _)| *kind == of);
                found.map(|(kind, namespace)| Key::custom(*kind, Arc::clone(namespace))).collect()
            }
            Kind::Node
            | Kind::Namespace
            | Kind::Pod
            | Kind::Policy
            | Kind::Service
            | Kind::Slice
            | Kind::Range => BTreeSet::new(),
        }
    }

    pub(crate) fn hold_nodes(&self) -> bool {
        self.nodes.is_held()
    }

    pub(crate) fn hold_pods(&self) -> bool {
        self.pods.is_held()
    }

    pub(crate) fn hold_services(&self) -> bool {
        self.services.is_held()
    }

    pub(crate) fn hold_slices(&self) -> bool {
        self.slices.is_held() || self.backends.is_held()
    }

    pub(crate) fn hold_namespaces(&self) -> bool {
        self.namespaces.is_held()
    }

    pub(crate) fn hold_policies(&self) -> bool {
        self.policies.is_held()
    }

    pub(crate) fn hold_cluster_policies(&self, kind: ClusterPolicyKind) -> bool {
        self.cluster_policies.get(&kind).is_some_and(SafetyBrake::is_held)
    }

    pub(crate) fn hold_custom(&self, kind: CustomKind) -> bool {
        self.custom.get(&kind).is_some_and(SafetyBrake::is_held)
    }

    /// Whether a list of what denies is held back, and with it all later events: a policy that is
    /// new, or the namespace that it is about, is not known.
    pub(crate) fn hold_denials(&self) -> bool {
        let denies = |kind: &CustomKind| of_kind!(*kind, K => K::DENIES);
        self.namespaces.is_held()
            || self.policies.is_held()
            || self.cluster_policies.values().any(SafetyBrake::is_held)
            || self.custom.iter().any(|(kind, brake)| denies(kind) && brake.is_held())
    }

    /// Whether the API server is another cluster's.
    pub(crate) fn is_other_cluster(&self) -> bool {
        self.identity.other_cluster().is_some()
    }

    /// Takes the identity of the API server's cluster. It is read before the first lists, and again
    /// before each second look while a list is held back.
    pub(crate) fn cluster(&mut self, id: ClusterId) {
        self.identity.see(id);
        if self.identity.other_cluster().is_some() {
            // Lists and events of another cluster are ignored until the right one is back.
            self.nodes.hold();
            self.pods.hold();
            self.services.hold();
            self.slices.hold();
            self.namespaces.hold();
            self.policies.hold();
            self.cluster_policies.values_mut().for_each(SafetyBrake::hold);
            self.custom.values_mut().for_each(SafetyBrake::hold);
        } else {
            // The next lists may confirm the ones that are held back.
            self.nodes.time_passed();
            self.pods.time_passed();
            self.services.time_passed();
            self.slices.time_passed();
            self.backends.time_passed();
            self.namespaces.time_passed();
            self.policies.time_passed();
            self.cluster_policies.values_mut().for_each(SafetyBrake::time_passed);
            self.custom.values_mut().for_each(SafetyBrake::time_passed);
        }
    }
}

impl Store {
    /// Whether a key without any rows may get its first ones. A port that would be made while
    /// policies are held back would be outside of those that are new.
    pub fn may_begin(&self, key: &Key) -> bool {
        !matches!(key, Key::Pod(_)) || !self.doubts.hold_denials()
    }

    /// What is held back at the moment, if anything is.
    pub fn doubted(&self) -> Option<HeldLists> {
        let SafetyBrakes { nodes, pods, services, slices, backends, namespaces, policies, .. } =
            &self.doubts;
        let SafetyBrakes { cluster_policies, custom, identity, found, .. } = &self.doubts;
        let is_any = nodes.is_held()
            || pods.is_held()
            || services.is_held()
            || slices.is_held()
            || backends.is_held()
            || namespaces.is_held()
            || policies.is_held()
            || cluster_policies.values().any(SafetyBrake::is_held)
            || custom.values().any(SafetyBrake::is_held);
        let known = |node: &Node| Example { name: node.name.clone(), uid: Some(node.uid.clone()) };
        let found = || found.iter().map(|name| Example { name: name.clone(), uid: None });
        let example = || self.nodes.iter().map(known).chain(found()).next();
        let other_cluster = || identity.other_cluster();
        is_any.then(|| HeldLists {
            nodes: nodes.missing(),
            pods: pods.missing(),
            services: services.missing(),
            slices: slices.missing() + backends.missing(),
            namespaces: namespaces.missing(),
            policies: policies.missing(),
            cluster_policies: cluster_policies.values().map(SafetyBrake::missing).sum(),
            custom: custom.iter().map(|(kind, brake)| (*kind, brake.missing())).collect(),
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

    /// Registers a Service with backends in the northbound database. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_backends(&mut self, key: ServiceKey) {
        self.doubts.found_backends.insert(key);
    }

    /// Registers a policy that has a port group in the northbound database. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_policy(&mut self, key: PolicyKey) {
        self.doubts.found_policies.insert(key);
    }

    /// Registers a policy of the cluster that has rows in the northbound database. To be called
    /// when [`found_port`](Self::found_port) is.
    pub fn found_cluster_policy(&mut self, key: ClusterPolicyKey) {
        self.doubts.found_cluster_policies.insert(key);
    }

    /// Registers the object of a kind of which a namespace has one, which has rows in the
    /// northbound database. To be called when [`found_port`](Self::found_port) is.
    pub fn found_custom(&mut self, kind: CustomKind, namespace: Arc<str>) {
        self.doubts.found_custom.insert((kind, namespace));
    }

    /// Registers the cluster that the northbound database was written for. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_cluster(&mut self, id: Arc<str>) {
        self.doubts.identity = ClusterIdentity::of(id);
    }

    /// The cluster that this process works for; none while it is unknown, or while the API server
    /// is another cluster's.
    pub fn cluster_id(&self) -> Option<&Arc<str>> {
        self.doubts.identity.own()
    }

    /// Whether a list of nodes is accepted.
    pub(crate) fn believes_nodes(&mut self, list: &[Node]) -> bool {
        let listed = list.iter().map(|node| (&node.name, &node.uid)).collect();
        let SafetyBrakes { nodes, found, identity, .. } = &mut self.doubts;
        let known: Vec<_> = match self.listed.contains(Kind::Node) {
            true => self
                .nodes
                .iter()
                .map(|node| (Arc::clone(&node.name), Some(Arc::clone(&node.uid))))
                .collect(),
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

    /// Whether a list of pods is accepted. Only pods with a network (at the start: with a port)
    /// count, because only these can lose it.
    pub(crate) fn believes_pods(&mut self, list: &[(PodKey, Pod)]) -> bool {
        let listed = list.iter().map(|(key, pod)| (key, &pod.uid)).collect();
        let known: Vec<_> = match self.listed.contains(Kind::Pod) {
            true => {
                let with_network = self.pods.iter().filter(|(_, known)| known.network.is_some());
                with_network
                    .map(|(key, known)| (key.clone(), Some(Arc::clone(&known.pod.uid))))
                    .collect()
            }
            false => self.found.iter().map(|(key, port)| (key.clone(), port.uid.clone())).collect(),
        };
        let successors = self.successors(list);
        self.doubts.identity.other_cluster().is_none()
            && self.doubts.pods.believes_with(successors, known, &listed)
    }

    /// Number of pods in a list that have no port and need one. Where many pods come and go, they
    /// have taken the places of those that have gone while nobody led, or while the watch was away.
    /// They count only if the identity of the cluster was read just before the list and is the
    /// database's: another cluster's pods are no successors. That is so of the first list, and of a
    /// second look.
    fn successors(&self, list: &[(PodKey, Pod)]) -> usize {
        let was_listed = self.listed.contains(Kind::Pod);
        if !self.doubts.identity.is_confirmed() || was_listed && !self.doubts.pods.is_second_look()
        {
            return 0;
        }
        let has_port = |key: &PodKey, pod: &Pod| match self.pods.get(key) {
            Some(known) if was_listed => known.network.is_some() && known.pod.uid == pod.uid,
            Some(_) | None => self
                .found
                .get(key)
                .is_some_and(|port| port.uid.is_none() || pod.is_of(port.uid.as_ref())),
        };
        let needs_port = |pod: &Pod| pod.needs_network() && pod.node.is_some();
        list.iter().filter(|(key, pod)| needs_port(pod) && !has_port(key, pod)).count()
    }
}

impl Store {
    /// Whether a list of Services is accepted.
    pub(crate) fn believes_services(&mut self, list: &[(ServiceKey, Service)]) -> bool {
        let listed = list.iter().map(|(key, service)| (key, &service.uid)).collect();
        let SafetyBrakes { services, found_services, identity, .. } = &mut self.doubts;
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

    /// Whether a list of slices is accepted. At the start no slice is known, but the Services that
    /// have backends: a restored API server may have these without any slices.
    pub(crate) fn believes_slices(&mut self, list: &[(SliceKey, Slice)]) -> bool {
        // A slice has no identity beside its name: endpoints are what counts.
        let none = Arc::from("");
        let SafetyBrakes { slices, backends, found_backends, identity, .. } = &mut self.doubts;
        let believed = identity.other_cluster().is_none()
            && if self.listed.contains(Kind::Slice) {
                let listed = list.iter().map(|(key, _)| (key, &none)).collect();
                slices.believes(self.services.slices().map(|key| (key.clone(), None)), &listed)
            } else {
                let of_services = list.iter().filter_map(|(_, slice)| slice.service.as_ref());
                let listed = of_services.map(|service| (service, &none)).collect();
                backends.believes(found_backends.iter().map(|key| (key.clone(), None)), &listed)
            };
        if believed {
            slices.release();
            backends.release();
            found_backends.clear();
        }
        believed
    }
}

impl Store {
    /// Whether a list of policies is accepted. Without its policies a pod is open.
    pub(crate) fn believes_policies(&mut self, list: &[(PolicyKey, Policy)]) -> bool {
        let listed = list.iter().map(|(key, policy)| (key, &policy.uid)).collect();
        let SafetyBrakes { policies, found_policies, identity, .. } = &mut self.doubts;
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

    /// Whether a list of policies of the cluster of this kind is accepted. They deny, so a single
    /// one counts; one that was made anew under its name denies as before.
    pub(crate) fn believes_cluster_policies(
        &mut self,
        kind: ClusterPolicyKind,
        list: &[(ClusterPolicyKey, ClusterPolicy)],
    ) -> bool {
        let none = Arc::from("");
        let listed = list.iter().map(|(key, _)| (key, &none)).collect();
        let SafetyBrakes { cluster_policies, found_cluster_policies, identity, .. } =
            &mut self.doubts;
        let of_kind = |key: &&ClusterPolicyKey| key.kind == kind;
        let known: Vec<_> = match self.listed.contains(Kind::ClusterPolicy(kind)) {
            true => self
                .cluster_policies
                .keys()
                .filter(of_kind)
                .map(|key| (key.clone(), None))
                .collect(),
            false => found_cluster_policies
                .iter()
                .filter(of_kind)
                .map(|key| (key.clone(), None))
                .collect(),
        };
        let doubt = cluster_policies.entry(kind).or_insert_with(|| SafetyBrake::new(Rule::Nodes));
        let believed = identity.other_cluster().is_none() && doubt.believes(known, &listed);
        if believed {
            found_cluster_policies.retain(|key| key.kind != kind);
        }
        believed
    }

    /// Whether a list of a kind of which a namespace has one object is accepted; as for policies of
    /// the cluster.
    pub(crate) fn believes_custom<'a>(
        &mut self,
        kind: CustomKind,
        list: impl Iterator<Item = &'a Arc<str>>,
    ) -> bool {
        let none = Arc::from("");
        let listed = list.map(|namespace| (namespace, &none)).collect();
        let known: Vec<Arc<str>> = match self.listed.contains(Kind::Custom(kind)) {
            true => self.custom_namespaces(kind),
            false => {
                let found = self.doubts.found_custom.iter().filter(|(of, _)| *of == kind);
                found.map(|(_, namespace)| Arc::clone(namespace)).collect()
            }
        };
        let known = known.into_iter().map(|namespace| (namespace, None));
        let SafetyBrakes { custom, found_custom, identity, .. } = &mut self.doubts;
        let brake = custom.entry(kind).or_insert_with(|| SafetyBrake::new(Rule::Nodes));
        let believed = identity.other_cluster().is_none() && brake.believes(known, &listed);
        if believed {
            found_custom.retain(|(of, _)| *of != kind);
        }
        believed
    }

    /// Whether a list of namespaces is accepted. At the start nothing is known of them.
    pub(crate) fn believes_namespaces(&mut self, list: &[(Arc<str>, Namespace)]) -> bool {
        let listed = list.iter().map(|(name, namespace)| (name, &namespace.uid)).collect();
        let known =
            self.namespaces.iter().map(|(name, uid)| (Arc::clone(name), Some(Arc::clone(uid))));
        let known: Vec<_> = known.collect();
        self.doubts.identity.other_cluster().is_none()
            && self.doubts.namespaces.believes(known, &listed)
    }
}
