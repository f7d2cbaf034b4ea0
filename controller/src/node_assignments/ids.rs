//! Ids of nodes. Knows nothing of the addresses that derive from them.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    sync::Arc,
};

use contract::ovn::NODE_IDS;

use crate::key::NodeName;

/// Ids are offsets in the join and transit subnets.
const FIRST: u16 = *NODE_IDS.start();
/// The highest id that is assigned.
const LAST: u16 = *NODE_IDS.end();
/// How many nodes can be assigned an id.
pub(super) const MOST: u16 = LAST - FIRST + 1;

#[derive(Debug)]
pub(super) struct Ids {
    used: BTreeMap<u16, NodeName>,
    /// Every id from `FIRST` to the one before this is in use, or is in `released`.
    search_from: u16,
    /// Whether an id that a node has had comes after all others, as between zones: one that lags
    /// behind still has rows of the former node, with the same tunnel key.
    spares_former: bool,
    /// Such ids, the one that is free for the longest time first. This process alone knows them.
    released: VecDeque<u16>,
}

impl Ids {
    pub(super) fn new(spares_former: bool) -> Self {
        Self { used: BTreeMap::new(), search_from: FIRST, spares_former, released: VecDeque::new() }
    }

    /// Whether a node may have this id.
    pub(super) fn is_for_nodes(id: u16) -> bool {
        id >= FIRST
    }

    /// Whether OVN takes this id for a tunnel key, as all that are assigned.
    pub(super) fn is_key(id: u16) -> bool {
        NODE_IDS.contains(&id)
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

    /// Takes the lowest id that no node has had, if there `is_room` for its addresses, or else the
    /// one that is free for the longest time; none if all are in use.
    pub(super) fn give(&mut self, node: &NodeName, is_room: impl Fn(u16) -> bool) -> Option<u16> {
        let is_free = |id: &u16| !self.used.contains_key(id);
        let fresh =
            (self.search_from..=LAST).filter(is_free).find(|id| !self.released.contains(id));
        let former = self.released.iter().position(is_free);
        let free = match (fresh.filter(|id| former.is_none() || is_room(*id)), former) {
            (Some(fresh), _) => {
                self.search_from = fresh + 1;
                fresh
            }
            (None, former) => self.released.remove(former?)?,
        };
        self.used.insert(free, Arc::clone(node));
        Some(free)
    }

    /// Frees the id if it is this node's.
    pub(super) fn release(&mut self, node: &NodeName, id: u16) {
        if self.used.get(&id) == Some(node) {
            self.used.remove(&id);
            self.released.retain(|other| *other != id);
            match (Self::is_key(id), self.spares_former) {
                (true, true) => self.released.push_back(id),
                (true, false) => self.search_from = self.search_from.min(id),
                (false, _) => {}
            }
        }
    }
}
