//! Ids of nodes. Knows nothing of the addresses that derive from them.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use contract::ovn::HIGHEST_NODE_ID;

use crate::key::NodeName;

/// Ids are offsets in the join and transit subnets: 0 is the network address, 1 the cluster's router on the
/// join switch.
const FIRST: u16 = 2;
/// The highest id that is assigned.
const LAST: u16 = HIGHEST_NODE_ID;
/// How many nodes can be assigned an id.
pub(super) const MOST: u16 = LAST - FIRST + 1;

#[derive(Debug)]
pub(super) struct Ids {
    used: BTreeMap<u16, NodeName>,
    /// Every id from `FIRST` to the one before this is in use.
    search_from: u16,
}

impl Default for Ids {
    fn default() -> Self {
        Self { used: BTreeMap::new(), search_from: FIRST }
    }
}

impl Ids {
    /// Whether a node may have this id.
    pub(super) fn is_for_nodes(id: u16) -> bool {
        id >= FIRST
    }

    /// Takes this id for `node`; the error is the node that has it.
    pub(super) fn claim(&mut self, node: &NodeName, id: u16) -> Result<(), NodeName> {
        match self.used.entry(id) {
            Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(node));
                Ok(())
            }
            Entry::Occupied(occupied) if occupied.get() == node => Ok(()),
            Entry::Occupied(occupied) => Err(Arc::clone(occupied.get())),
        }
    }

    /// Takes the lowest free id; none if all are in use.
    pub(super) fn give(&mut self, node: &NodeName) -> Option<u16> {
        let free = (self.search_from..=LAST).find(|id| !self.used.contains_key(id))?;
        self.search_from = free + 1;
        self.used.insert(free, Arc::clone(node));
        Some(free)
    }

    /// Frees the id if it is this node's.
    pub(super) fn release(&mut self, node: &NodeName, id: u16) {
        if self.used.get(&id) == Some(node) {
            self.used.remove(&id);
            self.search_from = self.search_from.min(id.max(FIRST));
        }
    }
}
