//! Which pods have a port of a name, as pods come and go.

use std::sync::Arc;

use contract::{limits::PORT_NUMBERS, names::PodKey};
use kubeapi::{object::Object, services::Protocol};

use crate::{
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    kinds::pod::{object::NamedPort, problem::PodProblem},
    problem::Problem,
    select::{
        selectors::Moved,
        set_changes::{drop_from_map, has_pod},
    },
    world::Store,
};

impl Store {
    /// The ports with names of a pod that needs its network. One that is not scheduled has no
    /// address, and may never have one: its numbers would be in rules of others.
    pub(crate) fn named_ports(&self, pod: &PodKey) -> &[NamedPort] {
        self.pod(pod)
            .filter(|pod| pod.needs_network() && pod.node.is_some())
            .map_or(&[], |pod| &pod.ports)
    }

    /// The numbers that a name of a port stands for: of pods in `namespace`, or of all pods.
    pub fn port_numbers(
        &self,
        namespace: Option<&str>,
        name: &Arc<str>,
        protocol: Protocol,
    ) -> Vec<u16> {
        self.policies.sets.numbers(namespace, name, protocol)
    }

    /// Follows a pod's ports with names. `before`: those from before the change.
    pub(crate) fn follow_ports(
        &mut self,
        pod: &PodKey,
        before: &[NamedPort],
        dirty: &mut Dirty<'_>,
    ) {
        let now: Box<[NamedPort]> = self.named_ports(pod).into();
        for NamedPort { name, protocol, number } in before.iter().filter(|port| !now.contains(port))
        {
            let place = (Arc::clone(name), *protocol, *number);
            drop_from_map(&mut self.policies.sets.ports, &place, pod);
            let others = self.policies.sets.ports.get(&place);
            if !others.is_some_and(|pods| has_pod(pods, pod.namespace())) {
                self.number_came(pod, (name, *protocol, *number), Moved::Out, dirty);
            }
        }
        for NamedPort { name, protocol, number } in now.iter().filter(|port| !before.contains(port))
        {
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

    /// A pod is the first of its namespace that gives a name this number, or was the last one.
    /// Policies that name it have other rules if other numbers count now: of connections to the
    /// namespace's pods, and of connections to any pod.
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

    /// A name stands for another number, or for one no longer: of pods in `namespace`, or of all
    /// pods.
    fn number_moved(
        &mut self,
        namespace: Option<&str>,
        (name, protocol, number): (&Arc<str>, Protocol, u16),
        moved: Moved,
        dirty: &mut Dirty<'_>,
    ) {
        let policies: Vec<AnyPolicy> =
            self.policies.naming(namespace, name, protocol).cloned().collect();
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
            (!counts).then(|| PodProblem::PortNumbers { name: Arc::clone(&port.name), exceeded })
        });
        let uid = self.pod(pod).map(|pod| Arc::clone(&pod.uid));
        if let (Some(why), Some(uid)) = (beyond, uid) {
            self.outbox.problems.push(Problem::new(Object::Pod(pod.clone()), &uid, &why));
        }
    }
}
