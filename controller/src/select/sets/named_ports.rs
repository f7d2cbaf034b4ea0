//! The names of pods' ports: which numbers a name stands for, and which pods have it. Policies name
//! ports so, and the pods with one number of a name are a set.

use std::{collections::BTreeSet, sync::Arc};

use contract::{limits::PORT_NUMBERS, names::PodKey};
use kubeapi::services::Protocol;

use crate::{
    key::PortIn,
    kinds::pod::object::NamedPort,
    select::{selectors::Moved, sets::Sets},
};

/// A namespace's name of a port.
pub(crate) type NameIn = (Arc<str>, Arc<str>, Protocol);

/// The numbers that pods of a namespace give to a name. The lowest ones count: a rule about all
/// pods has each of them, and one pod may have thousands of containers.
#[derive(Debug, Default)]
pub(crate) struct Numbers(pub(crate) BTreeSet<u16>);

impl Numbers {
    pub(crate) fn counted(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied().take(PORT_NUMBERS.most)
    }
}

impl Sets {
    /// The numbers that a name of a port stands for: of pods in `namespace`, or of all pods.
    pub(crate) fn numbers(
        &self,
        namespace: Option<&str>,
        name: &Arc<str>,
        protocol: Protocol,
    ) -> Vec<u16> {
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
    pub(crate) fn is_counted(&self, name: &Arc<str>, protocol: Protocol, number: u16) -> bool {
        self.counted.contains_key(&(Arc::clone(name), protocol, number))
    }

    /// Whether rules about pods of the namespace that name the port have this number.
    pub(crate) fn is_counted_in(&self, port: &PortIn) -> bool {
        let PortIn { namespace, name, protocol, number } = port;
        let own = self.numbers.get(&(Arc::clone(namespace), Arc::clone(name), *protocol));
        own.is_some_and(|own| own.counted().any(|counted| counted == *number))
    }

    /// The first pod of the namespace has come that gives the name this number, or the last one has
    /// gone. Returns the numbers that count now, or no longer.
    pub(crate) fn number_came(
        &mut self,
        key: &NameIn,
        number: u16,
        moved: Moved,
    ) -> Vec<(u16, Moved)> {
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

    /// The number counts for one namespace more or less. Returns whether it is the first or the
    /// last one.
    pub(crate) fn count(
        &mut self,
        name: &Arc<str>,
        protocol: Protocol,
        number: u16,
        moved: Moved,
    ) -> bool {
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

    /// Takes the name of the port from the pods that have it: thousands of pods have ports of one
    /// name.
    pub(crate) fn share_name(&self, port: &mut NamedPort) {
        let place = (Arc::clone(&port.name), port.protocol, port.number);
        if let Some(((name, ..), _)) = self.ports.get_key_value(&place) {
            port.name = Arc::clone(name);
        }
    }

    /// The pods that have a port of this name.
    pub(crate) fn with_port(
        &self,
        name: &Arc<str>,
        protocol: Protocol,
    ) -> impl Iterator<Item = &PodKey> {
        let all = self
            .ports
            .range((Arc::clone(name), protocol, 0)..=(Arc::clone(name), protocol, u16::MAX));
        all.flat_map(|(_, pods)| pods)
    }
}
