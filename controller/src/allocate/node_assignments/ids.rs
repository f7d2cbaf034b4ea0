//! Numbers of nodes. Knows nothing of what follows from them.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use crate::key::NodeName;

/// 0 is nobody's, as the first address of a subnet; 1 is the cluster's router on the join switch.
const FIRST: u16 = 2;
/// The highest, as upstream has it.
const LAST: u16 = 5000;
/// So many nodes can have one.
pub(super) const MOST: u16 = LAST - FIRST + 1;

#[derive(Debug)]
pub(super) struct Ids {
    used: BTreeMap<u16, NodeName>,
    /// Everything before is in use.
    search_from: u16,
}

impl Default for Ids {
    fn default() -> Self {
        Self { used: BTreeMap::new(), search_from: FIRST }
    }
}

impl Ids {
    /// Whether a node can have this number at all.
    pub(super) fn is_for_nodes(id: u16) -> bool {
        id >= FIRST
    }

    /// Takes this number for `node`, or names the node that has it.
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

    /// Takes the lowest free number.
    pub(super) fn give(&mut self, node: &NodeName) -> Option<u16> {
        let free = (self.search_from..=LAST).find(|id| !self.used.contains_key(id))?;
        self.search_from = free + 1;
        self.used.insert(free, Arc::clone(node));
        Some(free)
    }

    pub(super) fn release(&mut self, node: &NodeName, id: u16) {
        if self.used.get(&id) == Some(node) {
            self.used.remove(&id);
            self.search_from = self.search_from.min(id.max(FIRST));
        }
    }
}
