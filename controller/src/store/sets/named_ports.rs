//! The names of pods' ports: which numbers a name stands for, and which pods have it. Policies name ports so, and
//! the pods with one number of a name are a set.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::PodKey;
use kubeapi::services::Protocol;

use super::{Sets, drop_from_map, has_pod};
use crate::{
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    store::{NamedPort, Store, selectors::Moved},
};

impl Sets {
    /// The numbers that pods have for a port of this name; only those of pods in `namespace`, if one is given.
    fn numbers(&self, namespace: Option<&str>, name: &Arc<str>, protocol: Protocol) -> Vec<u16> {
        let all = self.ports.range((Arc::clone(name), protocol, 0)..=(Arc::clone(name), protocol, u16::MAX));
        let is_there = |pods: &BTreeSet<PodKey>| namespace.is_none_or(|namespace| has_pod(pods, namespace));
        all.filter(|(_, pods)| is_there(pods)).map(|((.., number), _)| *number).collect()
    }

    /// Takes the name of the port from the pods that have it: thousands of pods have ports of one name.
    pub(in crate::store) fn share_name(&self, port: &mut NamedPort) {
        let place = (Arc::clone(&port.name), port.protocol, port.number);
        if let Some(((name, ..), _)) = self.ports.get_key_value(&place) {
            port.name = Arc::clone(name);
        }
    }

    /// The pods that have a port of this name.
    pub(in crate::store) fn with_port(
        &self,
        name: &Arc<str>,
        protocol: Protocol,
    ) -> impl Iterator<Item = &PodKey> {
        let all = self.ports.range((Arc::clone(name), protocol, 0)..=(Arc::clone(name), protocol, u16::MAX));
        all.flat_map(|(_, pods)| pods)
    }
}

impl Store {
    /// The ports with names of a pod that needs its network. One that is not scheduled has no address, and may never
    /// have one: its numbers would be in rules of others.
    pub(in crate::store) fn named_ports(&self, pod: &PodKey) -> &[NamedPort] {
        self.pod(pod).filter(|pod| pod.needs_network() && pod.node.is_some()).map_or(&[], |pod| &pod.ports)
    }

    /// The numbers that a name of a port stands for: of pods in `namespace`, or of all pods.
    pub fn port_numbers(&self, namespace: Option<&str>, name: &Arc<str>, protocol: Protocol) -> Vec<u16> {
        self.policies.sets.numbers(namespace, name, protocol)
    }

    /// Follows a pod's ports with names. `before`: those from before the change.
    pub(in crate::store) fn follow_ports(
        &mut self,
        pod: &PodKey,
        before: &[NamedPort],
        dirty: &mut Dirty<'_>,
    ) {
        let now: Box<[NamedPort]> = self.named_ports(pod).into();
        for port in before.iter().filter(|port| !now.contains(port)) {
            let NamedPort { name, protocol, number } = port;
            let place = (Arc::clone(name), *protocol, *number);
            drop_from_map(&mut self.policies.sets.ports, &place, pod);
            let pods = self.policies.sets.ports.get(&place);
            let others = [pods.is_some_and(|pods| has_pod(pods, pod.namespace())), pods.is_some()];
            self.number_moved(pod, port, others, Moved::Out, dirty);
        }
        for port in now.iter().filter(|port| !before.contains(port)) {
            let NamedPort { name, protocol, number } = port;
            let pods = self.policies.sets.ports.entry((Arc::clone(name), *protocol, *number)).or_default();
            let is_known = [has_pod(pods, pod.namespace()), !pods.is_empty()];
            pods.insert(pod.clone());
            self.number_moved(pod, port, is_known, Moved::In, dirty);
        }
    }

    /// A pod has come to give a name a number, or does so no longer. `others`: whether others of its namespace do,
    /// and others of the cluster. If none does, policies that name it may have other rules: of connections to the
    /// namespace's pods, and of connections to any pod.
    fn number_moved(
        &mut self,
        pod: &PodKey,
        port: &NamedPort,
        others: [bool; 2],
        moved: Moved,
        dirty: &mut Dirty<'_>,
    ) {
        let NamedPort { name, protocol, number } = port;
        for (scope, others) in [Some(pod.namespace()), None].into_iter().zip(others) {
            if others {
                continue;
            }
            let set = SetId::port(scope, name, *protocol, *number);
            let policies: Vec<AnyPolicy> = self.policies.naming(scope, name, *protocol).cloned().collect();
            if !policies.is_empty() {
                dirty(Key::Set(set.clone()), Scope::Whole);
            }
            for policy in policies {
                if moved == Moved::Out {
                    self.policies.sets.hold(&policy, set.clone());
                }
                dirty(policy.into(), Scope::Whole);
            }
        }
    }
}
