//! Addresses of ports that are not ours on nodes' switches: no pod gets one, and a pod that has one already keeps it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::{
    annotation::PodNetwork,
    names::{IfaceId, Network, PodKey},
};
use ipnet::IpNet;

use super::{Node, Store};
use crate::{
    key::{Change, NodeName},
    trouble::{PodTrouble, SharedAddress, Trouble},
};

/// An address of a port that is not ours, on the switch of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignAddress {
    pub address: IpAddr,
    pub port: Arc<str>,
    pub node: NodeName,
}

/// Ports by address.
#[derive(Debug, Default)]
pub(super) struct ForeignAddresses(HashMap<IpAddr, BTreeSet<ForeignAddress>>);

impl ForeignAddresses {
    /// Ports on switches of nodes that are known. A switch may have the name of no node, and be another network's.
    fn at<'a>(&'a self, address: IpAddr, nodes: &'a BTreeMap<NodeName, Node>) -> impl Iterator<Item = &'a ForeignAddress> {
        self.0.get(&address).into_iter().flatten().filter(|port| nodes.contains_key(&port.node))
    }

    pub(super) fn is_used(&self, address: IpAddr, nodes: &BTreeMap<NodeName, Node>) -> bool {
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
    /// Ports that are not ours have these addresses no more, and those now. The changes are of pods that waited for what is free.
    pub fn foreign_addresses(&mut self, left: Vec<ForeignAddress>, came: Vec<ForeignAddress>) -> Vec<Change> {
        left.iter().for_each(|gone| self.foreign.take(gone));
        for new in came {
            let address = new.address;
            self.foreign.0.entry(address).or_default().insert(new);
            if let Some(pod) = self.addresses.owner(address).cloned() {
                self.tell_shared(&pod, address);
            }
        }
        left.into_iter().flat_map(|gone| self.wake(gone.address)).collect()
    }

    /// A port that is not ours and has this address. A port with the pod's own name is what becomes the pod's.
    fn foreign_port(&self, pod: &PodKey, address: IpAddr) -> Option<&ForeignAddress> {
        self.foreign.at(address, &self.nodes).find(|port| *port.port != *IfaceId::new(pod, &Network::Default).as_str())
    }

    /// No pod may claim what such a port has.
    pub(super) fn check_foreign(&self, pod: &PodKey, network: &PodNetwork) -> Result<(), PodTrouble> {
        let mut addresses = network.addresses.iter().map(IpNet::addr);
        match addresses.find_map(|address| self.foreign_port(pod, address)).cloned() {
            Some(ForeignAddress { address, port, node }) => Err(PodTrouble::AddressOfPort { address, port, node }),
            None => Ok(()),
        }
    }

    /// The pod's owner has to hear of it, if the pod has this address and such a port has it, too.
    pub(super) fn tell_shared(&mut self, pod: &PodKey, address: IpAddr) {
        let Some(known) = self.pods.get(pod) else { return };
        let has = known.network.as_ref().is_some_and(|network| network.addresses.iter().any(|net| net.addr() == address));
        let Some(ForeignAddress { address, port, node }) = self.foreign_port(pod, address).filter(|_| has).cloned() else { return };
        let trouble = Trouble { subject: pod.clone(), uid: Arc::clone(&known.pod.uid), why: SharedAddress { address, port, node } };
        self.outbox.tell_shared(trouble);
    }
}
