//! Which sets of addresses there are, and which pods are in them, as objects come and go.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::{names::PodKey, ovn::HOST_NETWORK_NAMESPACE};
use ipnet::IpNet;

use crate::{
    key::{AnyPolicy, Dirty, Key, Part, PortIn, Scope, SetId},
    select::{
        peer::PodPeer,
        selectors::{Moved, SelectorId},
        sets::PodSet,
    },
    world::Store,
};

impl Store {
    /// Whether a policy names the set, or may do so as far as the database shows.
    pub fn is_set(&self, set: &SetId) -> bool {
        let (policies, sets) = (&self.policies, &self.policies.sets);
        if sets.held.contains_key(set) || self.unread.has_set(set) {
            return true;
        }
        match set {
            SetId::Namespace(name) if **name == *HOST_NETWORK_NAMESPACE => false,
            SetId::Namespace(name) => {
                let is_found = sets.found.contains(name) && self.namespaces.contains(name);
                let ids = self.namespaces.selectors.matched_by(name);
                is_found
                    || self.has_multicast(name)
                    || sets.named.contains_key(name)
                    || ids.iter().any(|id| policies.is_listed(*id))
            }
            SetId::Pods(text) => sets.pods.contains_key(text),
            SetId::Name(name) => self.names.contains(name),
            SetId::Nodes(text) => self.node_addresses.is_named(text),
            SetId::Port(name, protocol, number) => {
                policies.naming(None, name, *protocol).next().is_some()
                    && sets.is_counted(name, *protocol, *number)
            }
            SetId::PortIn(port) => {
                let PortIn { namespace, name, protocol, number: _ } = &**port;
                policies.naming(Some(namespace), name, *protocol).next().is_some()
                    && sets.is_counted_in(port)
            }
        }
    }

    /// All sets.
    pub(crate) fn sets(&self) -> BTreeSet<SetId> {
        let sets = &self.policies.sets;
        let listed = self.policies.listed().flat_map(|id| self.namespaces.selectors.matching(id));
        let found = sets.found.iter().filter(|name| self.namespaces.contains(name));
        let namespaces = listed
            .chain(found)
            .chain(self.with_multicast())
            .chain(sets.named.keys())
            .filter(|name| ***name != *HOST_NETWORK_NAMESPACE);
        let namespaces = namespaces.map(|name| SetId::Namespace(Arc::clone(name)));
        let pods = sets.pods.keys().map(|text| SetId::Pods(Arc::clone(text)));
        let ports = self.policies.scopes().flat_map(|(namespace, name, protocol)| {
            let numbers = self.port_numbers(namespace.as_deref(), name, *protocol).into_iter();
            numbers.map(move |number| SetId::port(namespace.as_deref(), name, *protocol, number))
        });
        let names = self.names.iter().map(|name| SetId::Name(Arc::clone(name)));
        let nodes = self.node_addresses.texts().map(|text| SetId::Nodes(Arc::clone(text)));
        let outside = names.chain(nodes);
        namespaces
            .chain(pods)
            .chain(ports)
            .chain(outside)
            .chain(sets.held.keys().cloned())
            .chain(self.unread.sets())
            .collect()
    }

    /// The addresses of a set.
    pub fn set_addresses(&self, set: &SetId) -> impl Iterator<Item = IpAddr> + use<'_> {
        let labels = &self.pods.selectors;
        let mut of_others = BTreeSet::new();
        let pods: Vec<&PodKey> = match set {
            SetId::Name(name) => {
                of_others.extend(self.addresses_of_name(name));
                Vec::new()
            }
            SetId::Nodes(text) => {
                of_others = if self.node_addresses.contains(text) {
                    self.addresses_of_node_set(text)
                } else {
                    self.unread.addresses(set).collect()
                };
                Vec::new()
            }
            SetId::Namespace(name) => labels.labels().namespace(name).collect(),
            SetId::Pods(text) => match self.policies.sets.pod_set(text) {
                Some(PodSet { pods, namespaces: None, .. }) => labels.matching(*pods).collect(),
                // Of thousands of pods that the one selector matches, few may be in the namespaces.
                Some(PodSet { pods, namespaces: Some(namespaces), .. }) => {
                    let namespaces = self.namespaces.selectors.matching(*namespaces);
                    namespaces.flat_map(|name| labels.matching_in(*pods, name)).collect()
                }
                None => {
                    of_others.extend(self.unread.addresses(set));
                    Vec::new()
                }
            },
            SetId::Port(name, protocol, number) => {
                let pods = self.policies.sets.ports.get(&(Arc::clone(name), *protocol, *number));
                pods.into_iter().flatten().collect()
            }
            SetId::PortIn(port) => {
                let PortIn { namespace, name, protocol, number } = &**port;
                let pods = self.policies.sets.ports.get(&(Arc::clone(name), *protocol, *number));
                pods.into_iter().flat_map(|pods| pods_in(pods, namespace)).collect()
            }
        };
        pods.into_iter().flat_map(|pod| self.addresses_of(pod)).chain(of_others)
    }

    /// Whether a set has the address.
    pub fn set_has(&self, set: &SetId, address: IpAddr) -> bool {
        match set {
            SetId::Name(name) => self.addresses_of_name(name).any(|own| own == address),
            SetId::Nodes(text) => self.addresses_of_node_set(text).contains(&address),
            SetId::Pods(text) if self.policies.sets.pod_set(text).is_none() => {
                self.unread.addresses(set).any(|own| own == address)
            }
            SetId::Namespace(_) | SetId::Pods(_) | SetId::Port(..) | SetId::PortIn(..) => {
                let is_own = |pod: &PodKey| self.addresses_of(pod).any(|own| own == address);
                let owner = self.addresses.owner(address);
                owner.is_some_and(|pod| self.is_in(set, pod) && is_own(pod))
            }
        }
    }

    /// The addresses with which a pod is in sets: those that its annotation has, or will have. A
    /// network that is remembered although its annotation was lost, while the pod's node is not
    /// there or in another zone, is none of them: a restart would not find it.
    pub(crate) fn addresses_of(&self, pod: &PodKey) -> impl Iterator<Item = IpAddr> + use<'_> {
        let network =
            self.pods.get(pod).filter(|known| known.is_recorded()).and_then(|_| self.assigned(pod));
        network.into_iter().flat_map(|network| network.addresses.iter().map(IpNet::addr))
    }

    /// Whether a pod is in a set, if it has addresses.
    fn is_in(&self, set: &SetId, pod: &PodKey) -> bool {
        #[cfg(test)]
        self.policies.sets.compared.set(self.policies.sets.compared.get() + 1);
        match set {
            SetId::Namespace(name) => pod.namespace() == &**name,
            SetId::Name(_) | SetId::Nodes(_) => false,
            SetId::Pods(text) => self.policies.sets.pod_set(text).is_some_and(|set| {
                let namespaces = &self.namespaces.selectors;
                let in_namespaces = |id| namespaces.matches(id, pod.namespace());
                self.pods.selectors.matches(set.pods, pod)
                    && set.namespaces.is_none_or(in_namespaces)
            }),
            SetId::Port(name, protocol, number) => {
                let pods = self.policies.sets.ports.get(&(Arc::clone(name), *protocol, *number));
                pods.is_some_and(|pods| pods.contains(pod))
            }
            SetId::PortIn(port) => {
                let PortIn { namespace, name, protocol, number } = &**port;
                let pods = self.policies.sets.ports.get(&(Arc::clone(name), *protocol, *number));
                pod.namespace() == &**namespace && pods.is_some_and(|pods| pods.contains(pod))
            }
        }
    }

    /// The sets of pods by labels that a pod is in if it has addresses and these selectors match
    /// it.
    pub(crate) fn sets_by_labels(
        &self,
        pod: &PodKey,
        selectors: &[SelectorId],
    ) -> impl Iterator<Item = SetId> {
        let sets = &self.policies.sets;
        // Each pair of selectors that matches the pod: one selector of pods may be in hundreds of
        // sets.
        let of_namespace = self.namespaces.selectors.matched_by(pod.namespace()).iter();
        let of_namespace = of_namespace.copied().map(Some).chain([None]);
        let pairs = selectors
            .iter()
            .flat_map(move |id| of_namespace.clone().map(move |other| (*id, other)));
        let texts =
            pairs.filter_map(|pair| sets.by_selectors.get(&pair)).flat_map(|texts| texts.iter());
        texts.map(|text| SetId::Pods(Arc::clone(text)))
    }

    /// The other sets that a pod with addresses is in.
    pub(crate) fn other_sets_of_pod(&self, pod: &PodKey) -> BTreeSet<SetId> {
        let own = self.named_ports(pod).iter();
        let ports = own.flat_map(|port| {
            let scopes = [Some(pod.namespace()), None];
            scopes.map(|scope| SetId::port(scope, &port.name, port.protocol, port.number))
        });
        let namespace = [SetId::Namespace(pod.namespace().into())];
        let known = ports.chain(namespace).filter(|set| self.is_set(set));
        known.chain(self.unread_sets_of(pod)).collect()
    }

    /// A pod has come into a set, or left it.
    pub(crate) fn moved_in_set(
        &mut self,
        set: &SetId,
        pod: &PodKey,
        moved: Moved,
        dirty: &mut Dirty<'_>,
    ) {
        let addresses: Vec<IpAddr> = self.addresses_of(pod).collect();
        for address in addresses {
            self.address_moved(set, pod, address, moved, dirty);
        }
    }

    /// An address of a pod has come into a set, or left it.
    pub(crate) fn address_moved(
        &mut self,
        set: &SetId,
        pod: &PodKey,
        address: IpAddr,
        moved: Moved,
        dirty: &mut Dirty<'_>,
    ) {
        if moved == Moved::Out {
            self.policies.sets.left(pod, set.clone());
            self.unread.leave(set, address);
        }
        dirty(Key::Set(set.clone()), Scope::part(Part::Address(address)));
    }

    /// The user's rule has a set of its own, with these pods from now on.
    pub(crate) fn join_own_set(
        &mut self,
        user: &AnyPolicy,
        peer: &Arc<PodPeer>,
        dirty: &mut Dirty<'_>,
    ) {
        let set = SetId::Pods(Arc::clone(&peer.text));
        let before = self.policies.sets.pod_set(&peer.text).map(|set| set.pods);
        self.join_set_of_pods(user, peer);
        if let Some(before) = before {
            let pods = self.pods.selectors.refer_to(&peer.pods);
            let former: Vec<PodKey> = self.pods.selectors.matching(before).cloned().collect();
            self.policies.sets.reselect(&peer.text, pods);
            for pod in former {
                if !self.pods.selectors.matches(pods, &pod) {
                    self.moved_in_set(&set, &pod, Moved::Out, dirty);
                }
            }
            self.pods.selectors.release(before);
        }
        dirty(Key::Set(set), Scope::Whole);
    }

    /// The rule has none any more. It stays until the user's rows are written.
    pub(crate) fn leave_own_set(&mut self, user: &AnyPolicy, text: &Arc<str>) {
        self.policies.sets.leave(text, user);
        self.policies.sets.hold(user, SetId::Pods(Arc::clone(text)));
    }

    /// The user names the set of all pods of the namespace from now on, or no longer.
    pub(crate) fn name_namespace_set(
        &mut self,
        user: &AnyPolicy,
        namespace: &Arc<str>,
        is_named: bool,
        dirty: &mut Dirty<'_>,
    ) {
        let set = SetId::Namespace(Arc::clone(namespace));
        let named = &mut self.policies.sets.named;
        if is_named {
            named.entry(Arc::clone(namespace)).or_default().insert(user.clone());
        } else {
            drop_from_map(named, namespace, user);
            self.policies.sets.hold(user, set.clone());
        }
        dirty(Key::Set(set), Scope::Whole);
    }

    /// Registers the sets that the northbound database has, with their addresses. No other pod gets
    /// an address of a pod's port before it has left these sets. To be called after
    /// [`found_port`](Self::found_port).
    pub fn found_sets(&mut self, found: impl IntoIterator<Item = (SetId, Vec<IpAddr>)>) {
        let ports = self.leaving.iter();
        let owners: HashMap<IpAddr, PodKey> = ports
            .flat_map(|(pod, all)| all.iter().map(|address| (*address, pod.clone())))
            .collect();
        for (set, addresses) in found {
            for pod in addresses.iter().filter_map(|address| owners.get(address)) {
                self.policies.sets.left(pod, set.clone());
            }
            match set {
                SetId::Namespace(name) => drop(self.policies.sets.found.insert(name)),
                SetId::Nodes(text) => self.found_node_set(text, addresses),
                SetId::Name(name) => self.names.found(name, addresses),
                SetId::Pods(text) if text.ends_with("_LS{}") => {
                    self.policies.sets.found_selectors.insert(text);
                }
                SetId::Pods(_) | SetId::Port(..) | SetId::PortIn(..) => {}
            }
        }
    }

    /// The database shows the set as it should be: addresses that had to leave it have left.
    pub(crate) fn settled_set(&mut self, set: &SetId, dirty: &mut Dirty<'_>) {
        for pod in self.policies.sets.has_left(set) {
            let waits = self.leaving.contains_key(&pod) || self.found.contains_key(&pod);
            if waits && !self.policies.sets.is_pending(&pod) {
                // Its port may have left before: then its addresses are free now.
                dirty(Key::Pod(pod), Scope::Whole);
            }
        }
    }

    /// The database shows the policy's rows: sets that only its former rows named can go.
    pub(crate) fn settled_policy(&mut self, policy: &AnyPolicy, dirty: &mut Dirty<'_>) {
        for set in self.policies.sets.release(policy) {
            if let SetId::Pods(text) = &set
                && let Some(unused) = self.policies.sets.remove_unused(text)
            {
                self.pods.selectors.release(unused.pods);
                unused.namespaces.into_iter().for_each(|id| self.namespaces.selectors.release(id));
            }
            if let SetId::Nodes(text) = &set {
                self.remove_unused_node_set(text);
            }
            if !self.is_set(&set) {
                if let SetId::Name(name) = &set {
                    self.names.forget(name);
                }
                dirty(Key::Set(set), Scope::Whole);
            }
        }
    }
}

/// Whether a pod of this namespace is among the pods.
pub(crate) fn has_pod(pods: &BTreeSet<PodKey>, namespace: &str) -> bool {
    pods_in(pods, namespace).next().is_some()
}

/// Those of the pods that are in this namespace.
fn pods_in<'a, 'b>(
    pods: &'a BTreeSet<PodKey>,
    namespace: &'b str,
) -> impl Iterator<Item = &'a PodKey> + use<'a, 'b> {
    // They are neighbours, and no name is lower than this one.
    let first = PodKey::new(namespace, "0").ok();
    let from = first.into_iter().flat_map(|first| pods.range(first..));
    from.take_while(move |pod| pod.namespace() == namespace)
}

pub(crate) fn drop_from_map<K: Ord, E: Ord>(
    sets: &mut BTreeMap<K, BTreeSet<E>>,
    key: &K,
    element: &E,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(element);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
