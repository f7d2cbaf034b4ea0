//! Applies watch events to the store: `kinds/<kind>/changes.rs` knows what an object of a kind
//! changes, and `kinds/<kind>/fanout.rs` which keys that concerns:
//!
//! | change | keys |
//! |---|---|
//! | node: what its rows derive from | the node |
//! | node: what the rows of its gateway derive from | its gateway |
//! | node: zone, chassis or subnets | the node and its pods |
//! | node: has a switch in this zone from now on, or no longer | the Services whose load balancers depend on the nodes |
//! | such a node: addresses | the Services with NodePorts; if it has a gateway router, those of which a changed address is an endpoint |
//! | such a node: zone of the data centre | the Services with hints for zones |
//! | the same three, if NodePorts are templates | the Services whose NodePorts are templates only if there are more or fewer addresses |
//! | such a node: chassis or addresses, with templates | the variables of its chassis |
//! | Service: the first with a NodePort that is a template | the variables of each chassis |
//! | Service, slice, such a node's addresses: NodePorts that are templates have, or had, hosts as backends | the variables of each chassis |
//! | the last node whose chassis was not known: known, or gone | the variables of each chassis that no node has any longer |
//! | gateway router of a node: came or went | the node, and the Services whose load balancers depend on the nodes |
//! | Service, slice: came, went, or any field that is kept | the Service; others that serve an address and port of it from now on, or no longer; others of its namespace that fit into the namespace's bounds from now on, or no longer |
//! | node, API server, range of Services: came, went, or addresses | the Services with these in `externalIPs` |
//! | node: what the rows of its gateway derive from, where each pod is translated | the translation of each of its pods' addresses |
//! | pod: has an address on a node, or has it no longer, where each pod is translated | the translation of that address |
//! | pod: came, went, or what its row derives from, its network and its policies included | the pod |
//! | pod: an address came into a set, or left it | that address of the set |
//! | pod: the first or last of its namespace with this number for a named port | policies that name the port, the set |
//! | namespace: labels | policies with such namespaces as peers, the set of it; its pods' addresses in sets by both labels |
//! | namespace: how its policies are logged | the isolation of the namespace, its policies, its EgressFirewall |
//! | policy: came, went, or any field | the policy; the sets that it names from now on; the pods that it isolates from now on, or no longer, or in other directions |
//! | node: came or went, labels, addresses | the sets of such nodes |
//! | policy of the whole cluster: came, went, or any field | the policy; the sets that it names from now on; the pods that it is about from now on, or no longer; those behind it in the last tier, if it needs more or fewer levels |
//! | namespace: labels | also: its pods that such policies are about from now on, or no longer |
//! | EgressFirewall: came, went, or any field but the status | the EgressFirewall |
//! | namespace: has multicast from now on, or no longer | the namespace, the set of it |
//! | namespace: its pods have a group from now on, or no longer, for an EgressFirewall with rules or for multicast | the namespace and its pods |
//! | EgressQoS: came, went, or any field but the status | the EgressQoS |
//! | EgressQoS: names a set from now on, or its pods are others | the set |
//! | node: has a switch from now on, or no longer; can be read again | the EgressQoSes |
//! | EgressFirewall: has a name from now on, or no longer | the addresses of the name |
//! | answer of the DNS: others than the last one | the addresses of the name |
//! | node: came or went, labels, addresses | the EgressFirewalls with rules about such nodes |
//! | policy: the first or last of a namespace | the isolation of the namespace |
//!
//! A change of what no row derives from, such as the arrival of a pod's own annotation, concerns no
//! key.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::{
    ClusterPolicyKey, ClusterPolicyKind, PodKey, PolicyKey, ServiceKey, SliceKey,
};
use ipnet::IpNet;
use kubeapi::services::{Service, Slice};

use crate::{
    custom::{SeenCustom, registry::of_event},
    key::{Dirty, Key, NodeName, Scope},
    kinds::{
        cluster_policy::object::ClusterPolicy, namespace::object::Namespace,
        network_policy::object::Policy, node::object::Node, pod::object::Pod,
        service::ranges::RangeName,
    },
    watch_event::{Kind, Seen, WatchEvent},
    world::{Store, brakes::SafetyBrakes, custom::CustomChanges},
};

/// Which kinds of objects have been listed once.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    kinds: BTreeSet<Kind>,
    /// All kinds have been listed, and all lists are in the store.
    pub(crate) all: bool,
}

impl Listed {
    pub(crate) fn contains(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    pub(crate) fn insert(&mut self, kind: Kind) {
        self.kinds.insert(kind);
    }
}

impl Store {
    /// Applies an observation, and passes the keys that it concerns to `dirty`.
    ///
    /// A complete list replaces the known objects: those that it does not name are gone, unless it
    /// lacks so many that it is held back ([`doubted`](Self::doubted)). No address is assigned
    /// before every kind has been listed once; the observation that completes the lists also
    /// concerns the pods that get addresses then.
    pub fn observe(&mut self, observation: WatchEvent, dirty: &mut Dirty<'_>) {
        let were_held = self.doubts.hold_denials();
        match observation {
            WatchEvent::Cluster(id) => self.doubts.cluster(id),
            WatchEvent::Nodes(seen) => self.see(&NODES, seen, dirty),
            WatchEvent::Namespaces(seen) => self.see(&NAMESPACES, seen, dirty),
            WatchEvent::Pods(seen) => self.see(&PODS, seen, dirty),
            WatchEvent::Policies(seen) => self.see(&POLICIES, seen, dirty),
            WatchEvent::Reread(key, policy) => self.reread_policy(key, *policy, dirty),
            WatchEvent::ClusterPolicies(kind, seen) => self.see_cluster_policies(kind, seen, dirty),
            WatchEvent::Custom(event) => of_event!(event, seen => self.see_custom(seen, dirty)),
            WatchEvent::Name(name, answer) => self.resolved(&name, answer, dirty),
            WatchEvent::Connection(service) => self.need_pods(service),
            WatchEvent::Services(seen) => self.see(&SERVICES, seen, dirty),
            WatchEvent::Slices(seen) => self.see(&SLICES, seen, dirty),
            WatchEvent::Ranges(seen) => self.see(&RANGES, seen, dirty),
        }
        if were_held && !self.doubts.hold_denials() {
            self.pods.iter().for_each(|(pod, _)| dirty(Key::Pod(pod.clone()), Scope::Whole));
        }
        self.complete(dirty);
    }

    /// The first assignment, once all lists are in the store that rows follow from.
    pub(crate) fn complete(&mut self, dirty: &mut Dirty<'_>) {
        let is_known = |kind: &Kind| self.listed.contains(*kind) || self.unread.is_without(*kind);
        if !self.listed.all && Self::KINDS.iter().filter(|kind| kind.justifies_rows()).all(is_known)
        {
            self.listed.all = true;
            self.assign_all(dirty);
        }
    }

    /// As [`see`](Self::see), for a kind that is three.
    fn see_cluster_policies(
        &mut self,
        kind: ClusterPolicyKind,
        seen: Seen<ClusterPolicyKey, (ClusterPolicyKey, ClusterPolicy)>,
        dirty: &mut Dirty<'_>,
    ) {
        match seen {
            Seen::All(list) if !self.believes_cluster_policies(kind, &list) => {}
            Seen::Applied(_) | Seen::Deleted(_) if self.doubts.hold_cluster_policies(kind) => {}
            Seen::All(list) => {
                self.is_read(Kind::ClusterPolicy(kind), dirty);
                self.replace_cluster_policies(kind, list, dirty);
            }
            Seen::Applied((key, policy)) => self.put_cluster_policy(&key, policy, dirty),
            Seen::Deleted(key) => self.remove_cluster_policy(&key, dirty),
            Seen::Unlisted(why) => self.see_unlisted(Kind::ClusterPolicy(kind), why, dirty),
        }
    }

    fn see_custom<K: CustomChanges>(&mut self, seen: SeenCustom<K>, dirty: &mut Dirty<'_>) {
        let handling = Handling {
            kind: Kind::Custom(K::KIND),
            believes: |store, list: &[(Arc<str>, K)]| {
                store.believes_custom(K::KIND, list.iter().map(|(namespace, _)| namespace))
            },
            is_held: |doubts| doubts.hold_custom(K::KIND),
            replace: Store::replace_custom,
            put: |store, (namespace, object), dirty| store.put_custom(&namespace, object, dirty),
            remove: Store::remove_custom::<K>,
        };
        self.see(&handling, seen, dirty);
    }

    fn see<K, V>(&mut self, handling: &Handling<K, V>, seen: Seen<K, V>, dirty: &mut Dirty<'_>) {
        match seen {
            Seen::All(list) if !(handling.believes)(self, &list) => {}
            // Dropped while a list is held back: the next accepted list contains the object's
            // latest state.
            Seen::Applied(_) | Seen::Deleted(_) if (handling.is_held)(&self.doubts) => {}
            Seen::All(list) => {
                self.is_read(handling.kind, dirty);
                (handling.replace)(self, list, dirty);
            }
            Seen::Applied(object) => (handling.put)(self, object, dirty),
            Seen::Deleted(key) => (handling.remove)(self, &key, dirty),
            Seen::Unlisted(why) => self.see_unlisted(handling.kind, why, dirty),
        }
    }
}

/// What is done with objects of a kind.
struct Handling<K, V> {
    kind: Kind,
    /// Whether a list is accepted.
    believes: fn(&mut Store, &[V]) -> bool,
    /// Whether a list is held back.
    is_held: fn(&SafetyBrakes) -> bool,
    replace: fn(&mut Store, Vec<V>, &mut Dirty<'_>),
    put: fn(&mut Store, V, &mut Dirty<'_>),
    remove: fn(&mut Store, &K, &mut Dirty<'_>),
}

const NODES: Handling<NodeName, Node> = Handling {
    kind: Kind::Node,
    believes: Store::believes_nodes,
    is_held: SafetyBrakes::hold_nodes,
    replace: Store::replace_nodes,
    put: |store, node, dirty| {
        store.put_node(node, dirty);
        store.forget_found_if_all_are_read();
    },
    remove: |store, name, dirty| {
        store.remove_node(name, dirty);
        store.forget_found_if_all_are_read();
    },
};

const PODS: Handling<PodKey, (PodKey, Pod)> = Handling {
    kind: Kind::Pod,
    believes: Store::believes_pods,
    is_held: SafetyBrakes::hold_pods,
    replace: Store::replace_pods,
    put: |store, (key, pod), dirty| store.put_pod(key, pod, dirty),
    remove: Store::remove_pod,
};

const NAMESPACES: Handling<Arc<str>, (Arc<str>, Namespace)> = Handling {
    kind: Kind::Namespace,
    believes: Store::believes_namespaces,
    is_held: SafetyBrakes::hold_namespaces,
    replace: Store::replace_namespaces,
    put: |store, (name, namespace), dirty| store.put_namespace(name, namespace, dirty),
    remove: Store::remove_namespace,
};

const POLICIES: Handling<PolicyKey, (PolicyKey, Policy)> = Handling {
    kind: Kind::Policy,
    believes: Store::believes_policies,
    is_held: SafetyBrakes::hold_policies,
    replace: Store::replace_policies,
    put: |store, (key, policy), dirty| store.put_policy(key, policy, dirty),
    remove: Store::remove_policy,
};

const SERVICES: Handling<ServiceKey, (ServiceKey, Service)> = Handling {
    kind: Kind::Service,
    believes: Store::believes_services,
    is_held: SafetyBrakes::hold_services,
    replace: Store::replace_services,
    put: |store, (key, service), dirty| store.put_service(key, service, dirty),
    remove: Store::remove_service,
};

const SLICES: Handling<SliceKey, (SliceKey, Slice)> = Handling {
    kind: Kind::Slice,
    believes: Store::believes_slices,
    is_held: SafetyBrakes::hold_slices,
    replace: Store::replace_slices,
    put: |store, (key, slice), dirty| store.put_slice(key, slice, dirty),
    remove: Store::remove_slice,
};

const RANGES: Handling<RangeName, (RangeName, Box<[IpNet]>)> = Handling {
    kind: Kind::Range,
    // A list without a range takes nothing away. One of another cluster names Services for nothing.
    believes: |store, _| !store.doubts.is_other_cluster(),
    is_held: SafetyBrakes::is_other_cluster,
    replace: |store, ranges, dirty| store.replace_ranges(ranges, dirty),
    put: |store, (name, ranges), dirty| store.put_range(name, ranges, dirty),
    remove: |store, name, dirty| store.remove_range(name, dirty),
};
