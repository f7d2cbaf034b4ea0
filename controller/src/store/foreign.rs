//! Addresses of foreign ports (not this controller's) on nodes' switches. No pod is assigned such an address;
//! a pod that already has one keeps it.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::names::{IfaceId, Network, PodKey};
use ipnet::IpNet;

use super::{Store, nodes::Nodes};
use crate::{
    allocate::pod_network::Assigned,
    key::{Dirty, NodeName},
    trouble::{ClaimTrouble, SharedAddress, Trouble},
};

/// An address of a foreign port on the switch of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignAddress {
    pub address: IpAddr,
    pub port: Arc<str>,
    pub node: NodeName,
}

/// Foreign ports by address.
#[derive(Debug, Default)]
pub(super) struct ForeignAddresses(HashMap<IpAddr, BTreeSet<ForeignAddress>>);

impl ForeignAddresses {
    /// Foreign ports with this address on switches of known nodes. Another switch may belong to another
    /// network, where the same address is no conflict.
    fn at<'a>(&'a self, address: IpAddr, nodes: &'a Nodes) -> impl Iterator<Item = &'a ForeignAddress> {
        self.0.get(&address).into_iter().flatten().filter(|port| nodes.contains(&port.node))
    }

    pub(super) fn is_used(&self, address: IpAddr, nodes: &Nodes) -> bool {
        self.at(address, nodes).next().is_some()
    }

    fn take(&mut self, gone: &ForeignAddress) {
        if let Some(ports) = self.0.get_mut(&gone.address) {
            ports.remove(gone);
            if ports.is_empty() {
                self.0.remove(&gone.address);
            }
        }
    }
}

impl Store {
    /// Foreign ports have lost the addresses in `left` and got those in `came`. Pods that waited for an
    /// address that is free now get it.
    pub fn foreign_addresses(
        &mut self,
        left: Vec<ForeignAddress>,
        came: Vec<ForeignAddress>,
        dirty: &mut Dirty<'_>,
    ) {
        left.iter().for_each(|gone| self.foreign.take(gone));
        for new in came {
            let address = new.address;
            self.foreign.0.entry(address).or_default().insert(new);
            // A pod that has the address keeps it, because it runs; its owner gets an event.
            if let Some(pod) = self.addresses.owner(address).cloned() {
                self.tell_shared(&pod, address);
            }
        }
        // Last, because an address that moved from one foreign port to another is not free.
        left.into_iter().for_each(|gone| self.wake(gone.address, dirty));
    }

    /// A foreign port with this address. A port with the pod's own name does not count: the pod takes it
    /// over.
    fn foreign_port(&self, pod: &PodKey, address: IpAddr) -> Option<&ForeignAddress> {
        self.foreign
            .at(address, &self.nodes)
            .find(|port| *port.port != *IfaceId::new(pod, &Network::Default).as_str())
    }

    /// No pod may claim an address of a foreign port.
    pub(super) fn check_foreign(&self, pod: &PodKey, network: &Assigned) -> Result<(), ClaimTrouble> {
        let mut addresses = network.addresses.iter().map(IpNet::addr);
        match addresses.find_map(|address| self.foreign_port(pod, address)).cloned() {
            Some(ForeignAddress { address, port, node }) => {
                Err(ClaimTrouble::AddressOfPort { address, port, node })
            }
            None => Ok(()),
        }
    }

    /// Queues an event on the pod if the pod has this address and a foreign port has it, too.
    pub(super) fn tell_shared(&mut self, pod: &PodKey, address: IpAddr) {
        let Some(known) = self.pods.get(pod) else { return };
        let has = known
            .network
            .as_ref()
            .is_some_and(|network| network.addresses.iter().any(|net| net.addr() == address));
        let Some(ForeignAddress { address, port, node }) =
            self.foreign_port(pod, address).filter(|_| has).cloned()
        else {
            return;
        };
        let trouble = Trouble {
            subject: pod.clone(),
            uid: Arc::clone(&known.pod.uid),
            why: SharedAddress { address, port, node },
        };
        self.outbox.tell_shared(trouble);
    }
}
