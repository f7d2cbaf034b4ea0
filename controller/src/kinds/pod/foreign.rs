//! Addresses of foreign ports (not this controller's) on nodes' switches. No pod is assigned such
//! an address; a pod that already has one keeps it.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use crate::key::NodeName;

/// An address of a foreign port on the switch of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignAddress {
    pub address: IpAddr,
    pub port: Arc<str>,
    pub node: NodeName,
}

/// Foreign ports by address.
#[derive(Debug, Default)]
pub(crate) struct ForeignAddresses(pub(crate) HashMap<IpAddr, BTreeSet<ForeignAddress>>);

impl ForeignAddresses {
    /// Foreign ports with this address on switches of known nodes. Another switch may belong to
    /// another network, where the same address is no conflict.
    pub(crate) fn at<'a>(
        &'a self,
        address: IpAddr,
        is_known: impl Fn(&NodeName) -> bool + 'a,
    ) -> impl Iterator<Item = &'a ForeignAddress> {
        self.0.get(&address).into_iter().flatten().filter(move |port| is_known(&port.node))
    }

    pub(crate) fn is_used(&self, address: IpAddr, is_known: impl Fn(&NodeName) -> bool) -> bool {
        self.at(address, is_known).next().is_some()
    }

    pub(crate) fn take(&mut self, gone: &ForeignAddress) {
        if let Some(ports) = self.0.get_mut(&gone.address) {
            ports.remove(gone);
            if ports.is_empty() {
                self.0.remove(&gone.address);
            }
        }
    }
}
