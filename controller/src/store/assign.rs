//! Pods get addresses, keep them, wait for them, and give them back.
//!
//! A pod's annotation is the record. An address is free again when its pod is gone or has ended *and* the pod's port has left the
//! northbound database. Two pods never have the same one: whoever comes second waits, and is woken by what it waits for.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::{annotation::PodNetwork, names::PodKey, ovn};
use ipnet::IpNet;

use super::{Annotated, Pod, Store};
use crate::{
    allocate::{
        addresses::{Exhausted, Taken},
        pod_network::pod_network,
    },
    key::{Change, Key, NodeName},
    trouble::PodTrouble,
};

/// Addresses that pods no longer use, by pod.
pub(super) type Leaving = HashMap<PodKey, Vec<IpAddr>>;

/// Pods without addresses, and what each waits for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pods: HashMap<PodKey, PodTrouble>,
    for_address: HashMap<IpAddr, BTreeSet<PodKey>>,
    for_node: HashMap<NodeName, BTreeSet<PodKey>>,
    for_subnets: HashMap<NodeName, BTreeSet<PodKey>>,
}

/// What there is of a pod at the start, in the order in which pods come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Record {
    /// An annotation and a port with its addresses.
    WithPort,
    /// An annotation.
    Alone,
    None,
}

impl Store {
    /// The northbound database has exactly the rows that `key` should have now: what its rows stopped using is free.
    ///
    /// To be called only if nothing dirtied the key since its rows were computed. The changes are of pods that waited for what is free now.
    pub fn settled(&mut self, key: &Key) -> Vec<Change> {
        let Key::Pod(key) = key else { return Vec::new() };
        let left = self.leaving.remove(key).unwrap_or_default();
        let kept = self.assigned(key).map(|network| network.addresses.iter().map(IpNet::addr).collect::<Vec<_>>()).unwrap_or_default();
        let free: Vec<IpAddr> = left.into_iter().filter(|address| !kept.contains(address)).collect();
        free.iter().for_each(|address| self.addresses.release(key, *address));
        free.into_iter().flat_map(|address| self.wake(address)).collect()
    }

    /// A port of this pod was found in the northbound database with these addresses: nobody else gets them before the key is settled.
    ///
    /// To be called for every port found before the observation that completes the store, so that a pod that went while nobody looked
    /// keeps its addresses until its port has gone too.
    pub fn found_port(&mut self, key: &PodKey, addresses: &[IpAddr]) {
        self.leaving.entry(key.clone()).or_default().extend(addresses);
        if self.is_complete() {
            addresses.iter().for_each(|address| {
                self.addresses.hold(key, *address);
            });
        }
    }

    /// Everything is known for the first time. Pods whose annotations and ports agree come before all others: they run. Then what other
    /// ports have is kept until they are gone, then come the other annotations, and only then is anything given. Among equals the oldest
    /// pod comes first.
    pub(super) fn assign_all(&mut self) -> Vec<Change> {
        let mut pods: Vec<(Record, i64, PodKey)> =
            self.pods.iter().map(|(key, known)| (self.record(key, &known.pod), known.pod.created, key.clone())).collect();
        pods.sort_unstable();
        let mut pods = pods.into_iter().map(|(record, _, key)| (record, key)).peekable();
        let mut assigned = Vec::new();
        let mut assign_next = |store: &mut Self, of: Record| {
            while let Some((_, key)) = pods.next_if(|(record, _)| *record == of) {
                assigned.extend(store.assign(&key).then_some(key));
            }
        };
        assign_next(self, Record::WithPort);
        for (key, addresses) in &self.leaving {
            addresses.iter().for_each(|address| {
                self.addresses.hold(key, *address);
            });
        }
        assign_next(self, Record::Alone);
        self.go_on_behind();
        assign_next(self, Record::None);
        assigned.into_iter().map(Change::Pod).collect()
    }

    fn record(&self, key: &PodKey, pod: &Pod) -> Record {
        match (&pod.annotated, self.leaving.get(key)) {
            (Annotated::Nothing, _) => Record::None,
            (Annotated::Network { network, .. }, Some(port)) if network.addresses.iter().all(|net| port.contains(&net.addr())) => {
                Record::WithPort
            }
            (Annotated::Network { .. } | Annotated::Unusable(_), _) => Record::Alone,
        }
    }

    /// Does for a pod what can be done now. Whether its network is another than before.
    pub(super) fn assign(&mut self, key: &PodKey) -> bool {
        if !self.is_complete() {
            return false;
        }
        let Some(known) = self.pods.get(key) else { return false };
        if !known.pod.needs_network() {
            return self.retire(key);
        }
        if known.network.is_some() {
            self.announce(key);
            return false;
        }
        match self.find_network(key) {
            Ok(Some(network)) => {
                self.waiting.remove(key);
                if let Some(known) = self.pods.get_mut(key) {
                    known.network = Some(network);
                }
                self.announce(key);
                true
            }
            Ok(None) => false,
            Err(trouble) => {
                self.wait(key, trouble);
                false
            }
        }
    }

    /// The network of a pod that has none: its annotation's, or a new one; none as long as it has no node, or if its node is another zone's.
    fn find_network(&mut self, key: &PodKey) -> Result<Option<Arc<PodNetwork>>, PodTrouble> {
        let Some(known) = self.pods.get(key) else { return Ok(None) };
        match (&known.pod.annotated, &known.pod.node) {
            (Annotated::Unusable(why), _) => Err(PodTrouble::UnusableAnnotation(why.clone())),
            (Annotated::Network { network, .. }, _) => {
                let network = Arc::clone(network);
                self.check_reserved(&network)?;
                let claim = self.addresses.claim(key, &network.addresses);
                claim.map_err(|Taken { address, by }| PodTrouble::AddressTaken { address, by })?;
                Ok(Some(network))
            }
            (Annotated::Nothing, None) => Ok(None),
            (Annotated::Nothing, Some(name)) => {
                let node = self.nodes.get(name);
                if node.is_some_and(|node| !self.is_of(&node.zone)) {
                    return Ok(None);
                }
                let Some(node) = node.filter(|node| !node.subnets.is_empty()) else {
                    return Err(PodTrouble::NodeWithoutSubnet(Arc::clone(name)));
                };
                let given = self.addresses.give(key, &node.subnets);
                let given = given.map_err(|Exhausted { subnet }| PodTrouble::NoFreeAddress { node: Arc::clone(name), subnet })?;
                Ok(pod_network(&self.config, given).map(Arc::new))
            }
        }
    }

    /// No pod may claim what routers and management ports have.
    fn check_reserved(&self, network: &PodNetwork) -> Result<(), PodTrouble> {
        for address in network.addresses.iter().map(IpNet::addr) {
            if let Some((subnet, node)) = self.node_at(address)
                && ovn::reserved(subnet, address)
            {
                return Err(PodTrouble::AddressReserved { address, node: Arc::clone(node) });
            }
        }
        Ok(())
    }

    /// The pod needs its network no more: its addresses are free as soon as its port is gone. Whether it had any.
    pub(super) fn retire(&mut self, key: &PodKey) -> bool {
        self.waiting.remove(key);
        self.outbox.forget(key);
        let Some(network) = self.pods.get_mut(key).and_then(|known| known.network.take()) else { return false };
        self.leaving.entry(key.clone()).or_default().extend(network.addresses.iter().map(IpNet::addr));
        true
    }

    /// A node has other subnets, or is another zone's: its pods that have no addresses may get some.
    pub(super) fn subnets_changed(&mut self, node: &NodeName, before: &[IpNet]) -> Vec<Change> {
        let now = self.nodes.get(node).map(|node| node.subnets.clone()).unwrap_or_default();
        for subnet in before.iter().filter(|subnet| !now.contains(subnet)) {
            self.addresses.forget(subnet);
            if self.subnets.get(&subnet.network()).is_some_and(|(_, owner)| owner == node) {
                self.subnets.remove(&subnet.network());
            }
        }
        self.subnets.extend(now.into_iter().map(|subnet| (subnet.network(), (subnet, Arc::clone(node)))));
        let mut pods: BTreeSet<PodKey> = self.pods_of(node).cloned().collect();
        pods.extend(self.waiting.for_subnets.get(node).into_iter().flatten().cloned());
        pods.into_iter().filter(|key| self.assign(key)).map(Change::Pod).collect()
    }

    /// The node's subnet that an address is in.
    fn node_at(&self, address: IpAddr) -> Option<&(IpNet, NodeName)> {
        self.subnets.range(..=address).next_back().map(|(_, subnet)| subnet).filter(|(subnet, _)| subnet.contains(&address))
    }

    /// After a start addresses go on behind the highest of each subnet.
    fn go_on_behind(&mut self) {
        for known in self.pods.values() {
            let node = known.pod.node.as_ref().and_then(|node| self.nodes.get(node));
            let (Some(node), Some(network)) = (node, &known.network) else { continue };
            for subnet in &node.subnets {
                network.addresses.iter().for_each(|net| self.addresses.go_on_behind(subnet, net.addr()));
            }
        }
    }

    /// An address is free: those who claim it may have it, else one of those who wait for any address of its node.
    fn wake(&mut self, address: IpAddr) -> Vec<Change> {
        let claimants = self.waiting.for_address.get(&address).cloned().unwrap_or_default();
        let mut woken: Vec<PodKey> = claimants.into_iter().filter(|key| self.assign(key)).collect();
        if woken.is_empty() {
            let node = self.node_at(address).map(|(_, node)| node);
            let next = node.and_then(|node| self.waiting.for_node.get(node)?.first().cloned());
            woken.extend(next.filter(|key| self.assign(key)));
        }
        woken.into_iter().map(Change::Pod).collect()
    }

    fn wait(&mut self, key: &PodKey, trouble: PodTrouble) {
        if self.waiting.pods.get(key) == Some(&trouble) {
            return;
        }
        self.waiting.remove(key);
        self.waiting.insert(key, trouble);
        self.tell_trouble(key);
    }

    pub(super) fn trouble(&self, key: &PodKey) -> Option<&PodTrouble> {
        self.waiting.pods.get(key)
    }

    /// Pods that wait for addresses and why, for metrics and the curious.
    pub fn troubles(&self) -> impl Iterator<Item = (&PodKey, &PodTrouble)> {
        self.waiting.pods.iter()
    }
}

impl Waiting {
    fn insert(&mut self, key: &PodKey, trouble: PodTrouble) {
        match &trouble {
            PodTrouble::AddressTaken { address, .. } => {
                self.for_address.entry(*address).or_default().insert(key.clone());
            }
            PodTrouble::NoFreeAddress { node, .. } => {
                self.for_node.entry(Arc::clone(node)).or_default().insert(key.clone());
            }
            PodTrouble::AddressReserved { node, .. } => {
                self.for_subnets.entry(Arc::clone(node)).or_default().insert(key.clone());
            }
            // What ends these is a change of the pod or of its own node, and the pod is looked at then.
            PodTrouble::NodeWithoutSubnet(_) | PodTrouble::UnusableAnnotation(_) => {}
        }
        self.pods.insert(key.clone(), trouble);
    }

    fn remove(&mut self, key: &PodKey) {
        match self.pods.remove(key) {
            Some(PodTrouble::AddressTaken { address, .. }) => leave(&mut self.for_address, &address, key),
            Some(PodTrouble::NoFreeAddress { node, .. }) => leave(&mut self.for_node, &node, key),
            Some(PodTrouble::AddressReserved { node, .. }) => leave(&mut self.for_subnets, &node, key),
            Some(PodTrouble::NodeWithoutSubnet(_) | PodTrouble::UnusableAnnotation(_)) | None => {}
        }
    }
}

fn leave<N: std::hash::Hash + Eq>(queues: &mut HashMap<N, BTreeSet<PodKey>>, of: &N, key: &PodKey) {
    if let Some(queue) = queues.get_mut(of) {
        queue.remove(key);
        if queue.is_empty() {
            queues.remove(of);
        }
    }
}
