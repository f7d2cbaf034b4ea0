//! Pods get addresses, keep them, wait for them, and give them back.
//!
//! A pod's annotation is the record. An address is free again when its pod is gone or has ended *and* the pod's port has left the
//! northbound database. Two pods never have the same one: whoever comes second waits, and is woken by what it waits for.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::{annotation::PodNetwork, mac::Mac, names::PodKey, ovn};
use ipnet::IpNet;

use super::{Annotated, Kept, Place, Pod, Store};
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

/// Ports of pods that have no addresses here yet.
pub(super) type Found = HashMap<PodKey, FoundPort>;

/// A pod's port in the northbound database, as it was found at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPort {
    /// The pod that it was made for, where the port says it.
    pub uid: Option<Arc<str>>,
    pub mac: Option<Mac>,
    pub addresses: Vec<IpAddr>,
}

/// Pods without addresses, and what each waits for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pods: HashMap<PodKey, PodTrouble>,
    for_address: HashMap<IpAddr, BTreeSet<PodKey>>,
    /// Any address of the subnet does.
    in_subnet: HashMap<IpNet, BTreeSet<PodKey>>,
    /// That the node's subnets change, though the pod need not be this node's.
    for_node: HashMap<NodeName, BTreeSet<PodKey>>,
}

/// What there is of a pod at the start, in the order in which pods come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Record {
    /// An annotation and a port with its addresses; or a port of this very pod, and no annotation that could say otherwise.
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
        // What was not looked at, because it is not known how it should be, stopped using nothing.
        let Key::Pod(key) = key else { return Vec::new() };
        if self.kept(&Key::Pod(key.clone())) == Kept::All {
            return Vec::new();
        }
        self.found.remove(key);
        let left = self.leaving.remove(key).unwrap_or_default();
        let kept = self.assigned(key).map(|network| network.addresses.iter().map(IpNet::addr).collect::<Vec<_>>()).unwrap_or_default();
        let free: Vec<IpAddr> = left.into_iter().filter(|address| !kept.contains(address)).collect();
        free.iter().for_each(|address| self.addresses.release(key, *address));
        free.into_iter().flat_map(|address| self.wake(address)).collect()
    }

    /// This port of the pod was found in the northbound database: nobody else gets its addresses before the key is settled, and the pod
    /// itself has them, if it is the pod that the port was made for and its annotation does not say otherwise.
    ///
    /// To be called for every port found before the observation that completes the store, so that a pod that went while nobody looked
    /// keeps its addresses until its port has gone too.
    pub fn found_port(&mut self, key: &PodKey, port: FoundPort) {
        self.leaving.entry(key.clone()).or_default().extend(&port.addresses);
        if self.is_complete() {
            port.addresses.iter().for_each(|address| {
                self.addresses.hold(key, *address);
            });
        }
        self.found.insert(key.clone(), port);
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
            (Annotated::Nothing | Annotated::Unusable(_), _) if self.network_of_port(key, pod).is_some() => Record::WithPort,
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
                self.found.remove(key);
                let addresses: Vec<IpAddr> = network.addresses.iter().map(IpNet::addr).collect();
                if let Some(known) = self.pods.get_mut(key) {
                    known.network = Some(network);
                }
                addresses.into_iter().for_each(|address| self.tell_shared(key, address));
                self.announce(key);
                true
            }
            Ok(None) => {
                self.waiting.remove(key);
                false
            }
            Err(trouble) => {
                self.wait(key, trouble);
                false
            }
        }
    }

    /// The network of a pod that has none: its annotation's, or a new one; none as long as it has no node, or if its node is another zone's.
    fn find_network(&mut self, key: &PodKey) -> Result<Option<Arc<PodNetwork>>, PodTrouble> {
        let Some(known) = self.pods.get(key) else { return Ok(None) };
        if let Some(network) = self.network_of_port(key, &known.pod)
            && !matches!(known.pod.annotated, Annotated::Network { .. })
            && self.addresses.claim(key, &network.addresses).is_ok()
        {
            return Ok(Some(Arc::new(network)));
        }
        match (&known.pod.annotated, &known.pod.node) {
            (Annotated::Unusable(why), _) => Err(PodTrouble::UnusableAnnotation(why.clone())),
            // Who is nowhere yet may not keep an address from others.
            (Annotated::Network { .. }, None) => Ok(None),
            (Annotated::Network { network, .. }, Some(node)) => {
                let network = Arc::clone(network);
                self.check_reserved(&network)?;
                // What runs already goes on, whatever it has.
                if !self.has_port(key, &known.pod, &network) {
                    self.check_claim(key, node, &network)?;
                    self.check_foreign(key, &network)?;
                }
                let claim = self.addresses.claim(key, &network.addresses);
                claim.map_err(|Taken { address, by }| PodTrouble::AddressTaken { address, by })?;
                Ok(Some(network))
            }
            (Annotated::Nothing, None) => Ok(None),
            (Annotated::Nothing, Some(name)) => {
                let node = self.nodes.get(name);
                if node.is_some_and(|node| self.place(node) != Place::Here) {
                    return Ok(None);
                }
                let Some(node) = node.filter(|node| !node.subnets.is_empty()) else {
                    return Err(PodTrouble::NodeWithoutSubnet(Arc::clone(name)));
                };
                let given = self.addresses.give(key, &node.subnets, |address| self.foreign.is_used(address, &self.nodes));
                let given = given.map_err(|Exhausted { subnet }| PodTrouble::NoFreeAddress { node: Arc::clone(name), subnet })?;
                Ok(pod_network(&self.config, given).map(Arc::new))
            }
        }
    }

    /// The network that the pod's port says it has: the port was made for this very pod, and its addresses are of the node's subnets.
    fn network_of_port(&self, key: &PodKey, pod: &Pod) -> Option<PodNetwork> {
        let FoundPort { uid, mac, addresses } = self.found.get(key)?;
        let (true, Some(mac)) = (pod.is_of(uid.as_ref()), mac) else { return None };
        let node = self.nodes.get(pod.node.as_ref()?).filter(|node| self.place(node) == Place::Here)?;
        let mut nets = Vec::with_capacity(addresses.len());
        for address in addresses {
            let subnet = node.subnets.iter().find(|subnet| subnet.contains(address) && !ovn::reserved(subnet, *address))?;
            nets.push(IpNet::new(*address, subnet.prefix_len()).ok()?);
        }
        let one_of_each =
            nets.iter().filter(|net| net.addr().is_ipv4()).count() <= 1 && nets.iter().filter(|net| net.addr().is_ipv6()).count() <= 1;
        let network = pod_network(&self.config, nets).filter(|_| one_of_each)?;
        Some(PodNetwork { mac: *mac, ..network })
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

    /// Whether the pod's own port has these addresses.
    fn has_port(&self, key: &PodKey, pod: &Pod, network: &PodNetwork) -> bool {
        let has = |port: &&FoundPort| network.addresses.iter().all(|net| port.addresses.contains(&net.addr()));
        self.found.get(key).filter(|port| pod.is_of(port.uid.as_ref())).filter(has).is_some()
    }

    /// Who creates pods may preset their annotations, but neither with addresses of routers and services nor with another port's MAC.
    fn check_claim(&self, key: &PodKey, node: &NodeName, network: &PodNetwork) -> Result<(), PodTrouble> {
        if let Some(address) = network.addresses.iter().map(IpNet::addr).find(|address| self.config.is_infrastructure(*address)) {
            return Err(PodTrouble::AddressNotForPods { address });
        }
        // The MAC that follows from its own address is nobody else's.
        let mac = network.mac;
        if network.addresses.iter().any(|net| Mac::from_ip(net.addr()) == mac) {
            return Ok(());
        }
        let subnets = self.nodes.get(node).map_or(&[][..], |node| &node.subnets);
        let [first, second, a, b, c, d] = mac.octets();
        let of_address = [first, second] == [0x0a, 0x58] && subnets.iter().any(|subnet| subnet.contains(&IpAddr::from([a, b, c, d])));
        let management = self.nodes.get(node).and_then(|node| node.management_mac);
        let managements = ovn::managements(subnets).into_iter().map(|net| Mac::from_ip(net.addr())).chain(management);
        let mut of_node = managements.chain(ovn::port_mac(&ovn::gateways(subnets)));
        let networks = self.pods_of(node).filter(|other| *other != key).filter_map(|other| self.assigned(other));
        if of_address || of_node.any(|other| other == mac) || networks.map(|network| network.mac).any(|other| other == mac) {
            return Err(PodTrouble::MacTaken { mac, node: Arc::clone(node) });
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
        pods.extend(self.waiting.for_node.get(node).into_iter().flatten().cloned());
        pods.into_iter().filter(|key| self.assign(key)).map(Change::Pod).collect()
    }

    /// The node's subnet that an address is in.
    fn node_at(&self, address: IpAddr) -> Option<&(IpNet, NodeName)> {
        self.subnets.range(..=address).next_back().map(|(_, subnet)| subnet).filter(|(subnet, _)| subnet.contains(&address))
    }

    /// The nodes' subnets that overlap this one; those of nodes do not overlap one another.
    pub(super) fn overlapping(&self, subnet: &IpNet) -> impl Iterator<Item = &(IpNet, NodeName)> {
        let (first, last) = (subnet.network(), subnet.broadcast());
        let around = self.subnets.range(..first).next_back().filter(|(_, (used, _))| used.contains(&first));
        around.into_iter().chain(self.subnets.range(first..=last)).map(|(_, used)| used)
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

    /// An address is free: those who claim it may have it, else one of those who wait for any address of its subnet.
    pub(super) fn wake(&mut self, address: IpAddr) -> Vec<Change> {
        let claimants = self.waiting.for_address.get(&address).cloned().unwrap_or_default();
        let mut woken: Vec<PodKey> = claimants.into_iter().filter(|key| self.assign(key)).collect();
        if woken.is_empty() {
            let next = self.node_at(address).and_then(|(subnet, _)| self.waiting.in_subnet.get(subnet)?.first().cloned());
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
            // A port is in nobody's way on the switch of a node that is gone.
            PodTrouble::AddressOfPort { address, node, .. } => {
                self.for_address.entry(*address).or_default().insert(key.clone());
                self.for_node.entry(Arc::clone(node)).or_default().insert(key.clone());
            }
            PodTrouble::NoFreeAddress { subnet, .. } => {
                self.in_subnet.entry(*subnet).or_default().insert(key.clone());
            }
            PodTrouble::AddressReserved { node, .. } | PodTrouble::MacTaken { node, .. } => {
                self.for_node.entry(Arc::clone(node)).or_default().insert(key.clone());
            }
            // What ends these is a change of the pod or of its own node, and the pod is looked at then.
            PodTrouble::NodeWithoutSubnet(_) | PodTrouble::UnusableAnnotation(_) | PodTrouble::AddressNotForPods { .. } => {}
        }
        self.pods.insert(key.clone(), trouble);
    }

    fn remove(&mut self, key: &PodKey) {
        match self.pods.remove(key) {
            Some(PodTrouble::AddressTaken { address, .. }) => leave(&mut self.for_address, &address, key),
            Some(PodTrouble::AddressOfPort { address, node, .. }) => {
                leave(&mut self.for_address, &address, key);
                leave(&mut self.for_node, &node, key);
            }
            Some(PodTrouble::NoFreeAddress { subnet, .. }) => leave(&mut self.in_subnet, &subnet, key),
            Some(PodTrouble::AddressReserved { node, .. } | PodTrouble::MacTaken { node, .. }) => leave(&mut self.for_node, &node, key),
            Some(PodTrouble::NodeWithoutSubnet(_) | PodTrouble::UnusableAnnotation(_) | PodTrouble::AddressNotForPods { .. }) | None => {}
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
