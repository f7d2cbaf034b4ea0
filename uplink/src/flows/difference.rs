//! What has to change in a bridge. Pure: must not know how flows are read and written.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    COOKIE,
    flow::{Action, Flow, Flows, OfPort, Slot},
    wire::{Found, RawSlot},
};

/// The flows that a bridge has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Installed {
    /// Ours. Without actions: they are none that are ever written, or the flow has the cookie of a
    /// Service of upstream's.
    ours: BTreeMap<Slot, Option<Vec<Action>>>,
    /// Flows with our cookie and a match that is never written: another version's.
    odd: Vec<RawSlot>,
    foreign: BTreeMap<Slot, Option<Vec<Action>>>,
}

/// A change of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Adds the flow, or replaces that of its slot.
    Add { cookie: u64, flow: Flow },
    /// Removes the flow, if it is ours.
    Delete(RawSlot),
}

/// All changes, in their order, and the flows that cannot be: a foreign one has the slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) changes: Vec<Change>,
    pub(super) conflicts: Vec<Flow>,
}

impl Installed {
    pub(super) fn new(found: Vec<Found>) -> Self {
        let mut installed = Self::default();
        for Found { cookie, at, actions } in found {
            match (at.slot(), cookie) {
                (Some(slot), COOKIE) => drop(installed.ours.insert(slot, actions)),
                (Some(slot), _) if slot.is_of_service() => drop(installed.ours.insert(slot, None)),
                (Some(slot), _) => drop(installed.foreign.insert(slot, actions)),
                (None, COOKIE) => installed.odd.push(at),
                (None, _) => {}
            }
        }
        installed
    }

    /// Whether a change of the flow by another program can matter to us.
    pub(super) fn concerns(&self, cookie: u64, at: &RawSlot) -> bool {
        let matters = |slot: Slot| {
            slot.is_of_service()
                || self.ours.contains_key(&slot)
                || self.foreign.contains_key(&slot)
        };
        cookie == COOKIE || at.slot().is_some_and(matters)
    }

    /// What makes the flows of this bridge the desired ones. Flows in `refused` are left out.
    pub(super) fn difference(&self, desired: &Flows, refused: &BTreeSet<Slot>) -> Difference {
        let mut difference = Difference::default();
        let wanted = || desired.iter().filter(|(slot, _)| !refused.contains(slot));
        for (slot, actions) in wanted() {
            let flow = || Flow { slot: *slot, actions: actions.to_vec() };
            let of_slot = |flows: &BTreeMap<Slot, Option<Vec<Action>>>| {
                flows.get(slot).map(|existing| existing.as_deref() == Some(actions))
            };
            match (of_slot(&self.ours), of_slot(&self.foreign)) {
                (Some(true), _) | (_, Some(true)) => {}
                (_, Some(false)) => difference.conflicts.push(flow()),
                (Some(false), None) | (None, None) => {
                    difference.changes.push(Change::Add { cookie: COOKIE, flow: flow() });
                }
            }
        }
        let is_wanted = |slot: &Slot| desired.actions(slot).is_some() || desired.keeps(slot);
        let is_superfluous = |slot: &&Slot| !is_wanted(slot) || refused.contains(slot);
        let superfluous = self.ours.keys().filter(is_superfluous).map(RawSlot::from);
        difference.changes.extend(self.odd.iter().cloned().chain(superfluous).map(Change::Delete));
        difference
    }

    /// What gives the bridge back: a switch without flows of ours, that never stops to forward.
    pub(super) fn release(&self) -> Difference {
        let slot = Slot { table: 0, priority: 0, matching: Default::default() };
        let mut changes = Vec::new();
        if !self.foreign.contains_key(&slot) {
            let flow = Flow { slot, actions: vec![Action::Output(OfPort::NORMAL)] };
            changes.push(Change::Add { cookie: 0, flow });
        }
        let ours = self.ours.keys().filter(|ours| **ours != slot).map(RawSlot::from);
        changes.extend(self.odd.iter().cloned().chain(ours).map(Change::Delete));
        Difference { changes, conflicts: Vec::new() }
    }

    /// The bridge has done the changes.
    pub(super) fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Add { cookie: COOKIE, flow } => {
                    self.ours.insert(flow.slot, Some(flow.actions));
                }
                Change::Add { cookie: _, flow } => {
                    self.ours.remove(&flow.slot);
                    self.foreign.insert(flow.slot, Some(flow.actions));
                }
                Change::Delete(at) => {
                    self.odd.retain(|odd| *odd != at);
                    if let Some(slot) = at.slot() {
                        self.ours.remove(&slot);
                    }
                }
            }
        }
    }
}
