//! Pods without addresses, and what each of them waits for.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::names::PodKey;
use ipnet::IpNet;

use crate::{
    key::NodeName,
    kinds::pod::problem::{ClaimProblem, PodProblem},
};

/// Pods without addresses, and what each waits for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) pods: HashMap<PodKey, PodProblem>,
    for_address: HashMap<IpAddr, BTreeSet<PodKey>>,
    /// Pods that wait for any address of the subnet.
    in_subnet: HashMap<IpNet, BTreeSet<PodKey>>,
    /// Pods that wait for a change of the node's subnets or addresses. They may be pods of other
    /// nodes.
    for_node: HashMap<NodeName, BTreeSet<PodKey>>,
}

impl Waiting {
    pub(crate) fn insert(&mut self, key: &PodKey, trouble: PodProblem) {
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

    pub(crate) fn remove(&mut self, key: &PodKey) {
        let Some(trouble) = self.pods.remove(key) else { return };
        let Awaited { address, subnet, node } = Awaited::of(&trouble);
        address.into_iter().for_each(|address| leave(&mut self.for_address, &address, key));
        subnet.into_iter().for_each(|subnet| leave(&mut self.in_subnet, &subnet, key));
        node.into_iter().for_each(|node| leave(&mut self.for_node, node, key));
    }

    /// Pods that wait for this address.
    pub(crate) fn for_address(&self, address: IpAddr) -> impl Iterator<Item = &PodKey> {
        self.for_address.get(&address).into_iter().flatten()
    }

    /// The first of the pods that wait for any address of the subnet.
    pub(crate) fn first_in(&self, subnet: &IpNet) -> Option<&PodKey> {
        self.in_subnet.get(subnet)?.first()
    }

    /// Pods that wait for a change of the node's subnets or addresses.
    pub(crate) fn for_node(&self, node: &NodeName) -> impl Iterator<Item = &PodKey> {
        self.for_node.get(node).into_iter().flatten()
    }
}

/// The changes that can end a trouble. A change of the pod or of its own node reassigns the pod in
/// any case.
#[derive(Default)]
struct Awaited<'a> {
    address: Option<IpAddr>,
    subnet: Option<IpNet>,
    node: Option<&'a NodeName>,
}

impl<'a> Awaited<'a> {
    fn of(trouble: &'a PodProblem) -> Self {
        let claim = match trouble {
            PodProblem::NoFreeAddress { subnet, .. } => {
                return Self { subnet: Some(*subnet), ..Self::default() };
            }
            PodProblem::NodeWithoutSubnet(_) | PodProblem::PortNumbers { .. } => {
                return Self::default();
            }
            PodProblem::Claim(claim) | PodProblem::IgnoredClaim(claim) => claim,
        };
        match claim {
            ClaimProblem::AddressTaken { address, .. } => {
                Self { address: Some(*address), ..Self::default() }
            }
            // When the node of a foreign port is removed, the port no longer counts.
            ClaimProblem::AddressOfPort { address, node, .. } => {
                Self { address: Some(*address), node: Some(node), subnet: None }
            }
            ClaimProblem::AddressReserved { node, .. }
            | ClaimProblem::AddressOfHost { node, .. }
            | ClaimProblem::AddressElsewhere { node, .. }
            | ClaimProblem::AddressOutside { node, .. }
            | ClaimProblem::MacTaken { node, .. } => Self { node: Some(node), ..Self::default() },
            ClaimProblem::Unusable(_) | ClaimProblem::AddressNotForPods { .. } => Self::default(),
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
