//! Pods without addresses, and what each of them waits for.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::names::PodKey;
use ipnet::IpNet;

use super::Store;
use crate::{
    key::NodeName,
    trouble::{ClaimTrouble, PodTrouble},
};

/// Pods without addresses, and what each waits for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pods: HashMap<PodKey, PodTrouble>,
    for_address: HashMap<IpAddr, BTreeSet<PodKey>>,
    /// Pods that wait for any address of the subnet.
    in_subnet: HashMap<IpNet, BTreeSet<PodKey>>,
    /// Pods that wait for a change of the node's subnets or addresses. They may be pods of other nodes.
    for_node: HashMap<NodeName, BTreeSet<PodKey>>,
}

impl Store {
    pub(super) fn wait(&mut self, key: &PodKey, trouble: PodTrouble) {
        if self.waiting.pods.get(key) == Some(&trouble) {
            // The event for this reason has been reported already.
            return;
        }
        self.waiting.remove(key);
        self.waiting.insert(key, trouble);
        self.tell_trouble(key);
    }

    pub(super) fn trouble(&self, key: &PodKey) -> Option<&PodTrouble> {
        self.waiting.pods.get(key)
    }

    /// Pods that wait for addresses, and why; for metrics and diagnostics.
    pub fn troubles(&self) -> impl Iterator<Item = (&PodKey, &PodTrouble)> {
        self.waiting.pods.iter()
    }
}

impl Waiting {
    fn insert(&mut self, key: &PodKey, trouble: PodTrouble) {
        let Awaited { address, subnet, node } = Awaited::of(&trouble);
        if let Some(address) = address {
            self.for_address.entry(address).or_default().insert(key.clone());
        }
        if let Some(subnet) = subnet {
            self.in_subnet.entry(subnet).or_default().insert(key.clone());
        }
        if let Some(node) = node {
            self.for_node.entry(Arc::clone(node)).or_default().insert(key.clone());
        }
        self.pods.insert(key.clone(), trouble);
    }

    pub(super) fn remove(&mut self, key: &PodKey) {
        let Some(trouble) = self.pods.remove(key) else { return };
        let Awaited { address, subnet, node } = Awaited::of(&trouble);
        address.into_iter().for_each(|address| leave(&mut self.for_address, &address, key));
        subnet.into_iter().for_each(|subnet| leave(&mut self.in_subnet, &subnet, key));
        node.into_iter().for_each(|node| leave(&mut self.for_node, node, key));
    }

    /// Pods that wait for this address.
    pub(super) fn for_address(&self, address: IpAddr) -> impl Iterator<Item = &PodKey> {
        self.for_address.get(&address).into_iter().flatten()
    }

    /// The first of the pods that wait for any address of the subnet.
    pub(super) fn first_in(&self, subnet: &IpNet) -> Option<&PodKey> {
        self.in_subnet.get(subnet)?.first()
    }

    /// Pods that wait for a change of the node's subnets or addresses.
    pub(super) fn for_node(&self, node: &NodeName) -> impl Iterator<Item = &PodKey> {
        self.for_node.get(node).into_iter().flatten()
    }
}

/// The changes that can end a trouble. A change of the pod or of its own node reassigns the pod in any case.
#[derive(Default)]
struct Awaited<'a> {
    address: Option<IpAddr>,
    subnet: Option<IpNet>,
    node: Option<&'a NodeName>,
}

impl<'a> Awaited<'a> {
    fn of(trouble: &'a PodTrouble) -> Self {
        let claim = match trouble {
            PodTrouble::NoFreeAddress { subnet, .. } => {
                return Self { subnet: Some(*subnet), ..Self::default() };
            }
            PodTrouble::NodeWithoutSubnet(_) | PodTrouble::PortNumbers { .. } => return Self::default(),
            PodTrouble::Claim(claim) | PodTrouble::IgnoredClaim(claim) => claim,
        };
        match claim {
            ClaimTrouble::AddressTaken { address, .. } => Self { address: Some(*address), ..Self::default() },
            // When the node of a foreign port is removed, the port no longer counts.
            ClaimTrouble::AddressOfPort { address, node, .. } => {
                Self { address: Some(*address), node: Some(node), subnet: None }
            }
            ClaimTrouble::AddressReserved { node, .. }
            | ClaimTrouble::AddressOfHost { node, .. }
            | ClaimTrouble::AddressElsewhere { node, .. }
            | ClaimTrouble::AddressOutside { node, .. }
            | ClaimTrouble::MacTaken { node, .. } => Self { node: Some(node), ..Self::default() },
            ClaimTrouble::Unusable(_) | ClaimTrouble::AddressNotForPods { .. } => Self::default(),
        }
    }
}

/// Removes a pod from one of the queues, and the queue with its last pod.
fn leave<N: std::hash::Hash + Eq>(queues: &mut HashMap<N, BTreeSet<PodKey>>, of: &N, key: &PodKey) {
    if let Some(queue) = queues.get_mut(of) {
        queue.remove(key);
        if queue.is_empty() {
            queues.remove(of);
        }
    }
}
