//! What NodePorts need to know of all nodes of this zone at once, kept with each change of one: to
//! look at all nodes for each Service and chassis would cost nodes × nodes × Services.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use kubeapi::services::Family;

use crate::kinds::node::object::Node;

/// Counts of what the nodes have.
#[derive(Debug, Default)]
pub(crate) struct NodePortAddresses {
    /// Of each family: how many nodes have so many addresses with NodePorts.
    numbers: [BTreeMap<usize, usize>; 2],
    /// How many nodes have the address.
    hosts: HashMap<IpAddr, usize>,
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl NodePortAddresses {
    pub(crate) fn add(&mut self, node: &Node) {
        for (numbers, family) in self.numbers.iter_mut().zip(FAMILIES) {
            *numbers.entry(node.node_port_addresses(family).len()).or_default() += 1;
        }
        node.host_addresses
            .iter()
            .for_each(|address| *self.hosts.entry(*address).or_default() += 1);
    }

    pub(crate) fn take(&mut self, node: &Node) {
        for (numbers, family) in self.numbers.iter_mut().zip(FAMILIES) {
            let number = node.node_port_addresses(family).len();
            if let Some(nodes) = numbers.get_mut(&number) {
                *nodes -= 1;
                if *nodes == 0 {
                    numbers.remove(&number);
                }
            }
        }
        for address in &node.host_addresses {
            if let Some(nodes) = self.hosts.get_mut(address) {
                *nodes -= 1;
                if *nodes == 0 {
                    self.hosts.remove(address);
                }
            }
        }
    }

    /// How many addresses of each family a node has at most.
    pub(crate) fn most(&self) -> [usize; 2] {
        self.numbers.each_ref().map(|numbers| numbers.last_key_value().map_or(0, |(most, _)| *most))
    }

    /// Whether a node has the address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.hosts.contains_key(&address)
    }
}
