//! Applies observations to the store: `nodes`, `pods`, `policies` and `services` know what an object of their
//! kind changes.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::{ClusterPolicyKey, ClusterPolicyKind, PodKey, PolicyKey, ServiceKey, SliceKey};
use ipnet::IpNet;

use super::{
    ClusterPolicy, EgressFirewall, Namespace, Node, Pod, Policy, RangeName, Service, Slice, Store,
    doubts::Doubts, fanout,
};
use crate::{
    key::{Dirty, NodeName},
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

    pub(super) fn insert(&mut self, kind: Kind) {
        self.kinds.insert(kind);
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
        let were_held = self.doubts.hold_denials();
        match observation {
            Observation::Cluster(id) => self.doubts.cluster(id),
            Observation::Nodes(seen) => self.see(&NODES, seen, dirty),
            Observation::Namespaces(seen) => self.see(&NAMESPACES, seen, dirty),
            Observation::Pods(seen) => self.see(&PODS, seen, dirty),
            Observation::Policies(seen) => self.see(&POLICIES, seen, dirty),
            Observation::Reread(key, policy) => self.reread_policy(key, *policy, dirty),
            Observation::ClusterPolicies(kind, seen) => self.see_cluster_policies(kind, seen, dirty),
            Observation::EgressFirewalls(seen) => self.see(&EGRESS_FIREWALLS, seen, dirty),
            Observation::Name(name, answer) => self.resolved(&name, answer, dirty),
            Observation::Connection(service) => self.need_pods(service),
            Observation::Services(seen) => self.see(&SERVICES, seen, dirty),
            Observation::Slices(seen) => self.see(&SLICES, seen, dirty),
            Observation::Ranges(seen) => self.see(&RANGES, seen, dirty),
        }
        if were_held && !self.doubts.hold_denials() {
            fanout::denials(self.pods.iter().map(|(pod, _)| pod), dirty);
        }
        self.complete(dirty);
    }

    /// The first assignment, once all lists are in the store that rows follow from.
    pub(super) fn complete(&mut self, dirty: &mut Dirty<'_>) {
        let is_known = |kind: &Kind| self.listed.contains(*kind) || self.unread.is_without(*kind);
        if !self.listed.all && Self::KINDS.iter().filter(|kind| kind.justifies_rows()).all(is_known) {
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

    fn see<K, V>(&mut self, handling: &Handling<K, V>, seen: Seen<K, V>, dirty: &mut Dirty<'_>) {
        match seen {
            Seen::All(list) if !(handling.believes)(self, &list) => {}
            // Dropped while a list is held back: the next accepted list contains the object's latest state.
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
    is_held: fn(&Doubts) -> bool,
    replace: fn(&mut Store, Vec<V>, &mut Dirty<'_>),
    put: fn(&mut Store, V, &mut Dirty<'_>),
    remove: fn(&mut Store, &K, &mut Dirty<'_>),
}

const NODES: Handling<NodeName, Node> = Handling {
    kind: Kind::Node,
    believes: Store::believes_nodes,
    is_held: Doubts::hold_nodes,
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
    is_held: Doubts::hold_pods,
    replace: Store::replace_pods,
    put: |store, (key, pod), dirty| store.put_pod(key, pod, dirty),
    remove: Store::remove_pod,
};

const NAMESPACES: Handling<Arc<str>, (Arc<str>, Namespace)> = Handling {
    kind: Kind::Namespace,
    believes: Store::believes_namespaces,
    is_held: Doubts::hold_namespaces,
    replace: Store::replace_namespaces,
    put: |store, (name, namespace), dirty| store.put_namespace(name, namespace, dirty),
    remove: Store::remove_namespace,
};

const POLICIES: Handling<PolicyKey, (PolicyKey, Policy)> = Handling {
    kind: Kind::Policy,
    believes: Store::believes_policies,
    is_held: Doubts::hold_policies,
    replace: Store::replace_policies,
    put: |store, (key, policy), dirty| store.put_policy(key, policy, dirty),
    remove: Store::remove_policy,
};

const EGRESS_FIREWALLS: Handling<Arc<str>, (Arc<str>, EgressFirewall)> = Handling {
    kind: Kind::EgressFirewall,
    believes: |store, list| store.believes_egress_firewalls(list),
    is_held: Doubts::hold_egress_firewalls,
    replace: Store::replace_egress_firewalls,
    put: |store, (namespace, firewall), dirty| store.put_egress_firewall(&namespace, firewall, dirty),
    remove: |store, namespace, dirty| store.remove_egress_firewall(namespace, dirty),
};

const SERVICES: Handling<ServiceKey, (ServiceKey, Service)> = Handling {
    kind: Kind::Service,
    believes: Store::believes_services,
    is_held: Doubts::hold_services,
    replace: Store::replace_services,
    put: |store, (key, service), dirty| store.put_service(key, service, dirty),
    remove: Store::remove_service,
};

const SLICES: Handling<SliceKey, (SliceKey, Slice)> = Handling {
    kind: Kind::Slice,
    believes: Store::believes_slices,
    is_held: Doubts::hold_slices,
    replace: Store::replace_slices,
    put: |store, (key, slice), dirty| store.put_slice(key, slice, dirty),
    remove: Store::remove_slice,
};

const RANGES: Handling<RangeName, (RangeName, Box<[IpNet]>)> = Handling {
    kind: Kind::Range,
    // A list without a range takes nothing away. One of another cluster names Services for nothing.
    believes: |store, _| !store.doubts.is_other_cluster(),
    is_held: Doubts::is_other_cluster,
    replace: |store, ranges, dirty| store.replace_ranges(ranges, dirty),
    put: |store, (name, ranges), dirty| store.put_range(name, ranges, dirty),
    remove: |store, name, dirty| store.remove_range(name, dirty),
};
