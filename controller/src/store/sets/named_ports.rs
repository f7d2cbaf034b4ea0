//! The names of pods' ports: which numbers a name stands for, and which pods have it. Policies name ports so, and
//! the pods with one number of a name are a set.

use std::{collections::BTreeSet, sync::Arc};

use contract::{limits::PORT_NUMBERS, names::PodKey};
use kubeapi::services::Protocol;

use super::{Sets, drop_from_map, has_pod};
use crate::{
    key::{AnyPolicy, Dirty, Key, PortIn, Scope, SetId},
    store::{NamedPort, Store, selectors::Moved},
    trouble::{PodTrouble, Trouble},
};

/// A namespace's name of a port.
pub(super) type NameIn = (Arc<str>, Arc<str>, Protocol);

/// The numbers that pods of a namespace give to a name. The lowest ones count: a rule about all pods has each of
/// them, and one pod may have thousands of containers.
#[derive(Debug, Default)]
pub(super) struct Numbers(BTreeSet<u16>);

impl Numbers {
    fn counted(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied().take(PORT_NUMBERS.most)
    }
}

impl Sets {
    /// The numbers that a name of a port stands for: of pods in `namespace`, or of all pods.
    fn numbers(&self, namespace: Option<&str>, name: &Arc<str>, protocol: Protocol) -> Vec<u16> {
        match namespace {
            Some(namespace) => {
                let own = self.numbers.get(&(namespace.into(), Arc::clone(name), protocol));
                own.into_iter().flat_map(Numbers::counted).collect()
            }
            None => {
                let first = (Arc::clone(name), protocol, 0);
                let all = self.counted.range(first..=(Arc::clone(name), protocol, u16::MAX));
                all.map(|((.., number), _)| *number).collect()
            }
        }
    }

    /// Whether rules that name the port have this number.
    pub(super) fn is_counted(&self, name: &Arc<str>, protocol: Protocol, number: u16) -> bool {
        self.counted.contains_key(&(Arc::clone(name), protocol, number))
    }

    /// Whether rules about pods of the namespace that name the port have this number.
    pub(super) fn is_counted_in(&self, port: &PortIn) -> bool {
        let PortIn { namespace, name, protocol, number } = port;
        let own = self.numbers.get(&(Arc::clone(namespace), Arc::clone(name), *protocol));
        own.is_some_and(|own| own.counted().any(|counted| counted == *number))
    }

    /// The first pod of the namespace has come that gives the name this number, or the last one has gone. Returns the
    /// numbers that count now, or no longer.
    fn number_came(&mut self, key: &NameIn, number: u16, moved: Moved) -> Vec<(u16, Moved)> {
        let numbers = self.numbers.entry(key.clone()).or_default();
        let before: BTreeSet<u16> = numbers.counted().collect();
        match moved {
            Moved::In => drop(numbers.0.insert(number)),
            Moved::Out => drop(numbers.0.remove(&number)),
        }
        let after: BTreeSet<u16> = numbers.counted().collect();
        if after.is_empty() {
            self.numbers.remove(key);
        }
        let gone = before.difference(&after).map(|number| (*number, Moved::Out));
        gone.chain(after.difference(&before).map(|number| (*number, Moved::In))).collect()
    }

    /// The number counts for one namespace more or less. Returns whether it is the first or the last one.
    fn count(&mut self, name: &Arc<str>, protocol: Protocol, number: u16, moved: Moved) -> bool {
        let place = (Arc::clone(name), protocol, number);
        let namespaces = self.counted.entry(place.clone()).or_default();
        match moved {
            Moved::In => *namespaces += 1,
            Moved::Out => *namespaces -= 1,
        }
        let left = *namespaces;
        if left == 0 {
            self.counted.remove(&place);
        }
        left == usize::from(moved == Moved::In)
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
        for NamedPort { name, protocol, number } in before.iter().filter(|port| !now.contains(port)) {
            let place = (Arc::clone(name), *protocol, *number);
            drop_from_map(&mut self.policies.sets.ports, &place, pod);
            let others = self.policies.sets.ports.get(&place);
            if !others.is_some_and(|pods| has_pod(pods, pod.namespace())) {
                self.number_came(pod, (name, *protocol, *number), Moved::Out, dirty);
            }
        }
        for NamedPort { name, protocol, number } in now.iter().filter(|port| !before.contains(port)) {
            let place = (Arc::clone(name), *protocol, *number);
            let pods = self.policies.sets.ports.entry(place).or_default();
            let is_first = !has_pod(pods, pod.namespace());
            pods.insert(pod.clone());
            if is_first {
                self.number_came(pod, (name, *protocol, *number), Moved::In, dirty);
            }
        }
        self.tell_numbers(pod, before, &now);
    }

    /// A pod is the first of its namespace that gives a name this number, or was the last one. Policies that name it
    /// have other rules if other numbers count now: of connections to the namespace's pods, and of connections to any
    /// pod.
    fn number_came(
        &mut self,
        pod: &PodKey,
        (name, protocol, number): (&Arc<str>, Protocol, u16),
        moved: Moved,
        dirty: &mut Dirty<'_>,
    ) {
        let key = (Arc::from(pod.namespace()), Arc::clone(name), protocol);
        for (number, moved) in self.policies.sets.number_came(&key, number, moved) {
            self.number_moved(Some(pod.namespace()), (name, protocol, number), moved, dirty);
            if self.policies.sets.count(name, protocol, number, moved) {
                self.number_moved(None, (name, protocol, number), moved, dirty);
            }
        }
    }

    /// A name stands for another number, or for one no longer: of pods in `namespace`, or of all pods.
    fn number_moved(
        &mut self,
        namespace: Option<&str>,
        (name, protocol, number): (&Arc<str>, Protocol, u16),
        moved: Moved,
        dirty: &mut Dirty<'_>,
    ) {
        let policies: Vec<AnyPolicy> = self.policies.naming(namespace, name, protocol).cloned().collect();
        if policies.is_empty() {
            return;
        }
        let set = SetId::port(namespace, name, protocol, number);
        dirty(Key::Set(set.clone()), Scope::Whole);
        for policy in policies {
            if moved == Moved::Out {
                self.policies.sets.hold(&policy, set.clone());
            }
            dirty(policy.into(), Scope::Whole);
        }
    }

    /// Queues an event if a pod brings a number that does not count.
    fn tell_numbers(&mut self, pod: &PodKey, before: &[NamedPort], now: &[NamedPort]) {
        let sets = &self.policies.sets;
        let beyond = now.iter().filter(|port| !before.contains(port)).find_map(|port| {
            let key = (Arc::from(pod.namespace()), Arc::clone(&port.name), port.protocol);
            let numbers = sets.numbers.get(&key)?;
            let exceeded = PORT_NUMBERS.check(numbers.0.len()).err()?;
            let counts = numbers.counted().any(|number| number == port.number);
            (!counts).then(|| PodTrouble::PortNumbers { name: Arc::clone(&port.name), exceeded })
        });
        let uid = self.pod(pod).map(|pod| Arc::clone(&pod.uid));
        if let (Some(why), Some(uid)) = (beyond, uid) {
            self.outbox.tell_pod(Trouble { subject: pod.clone(), uid, why });
        }
    }
}
