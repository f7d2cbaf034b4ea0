//! What is asked of the copied rows again and again: by name, by holder, by owner. Kept up with each change, so that nothing scans.
//!
//! A changed row costs its own size: of a set of references, the comparison of the two sorted lists.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use ovsdb::{Atom, Change, ChangeKind, Changes, Replica, Uuid};

use super::{
    foreign::{ForeignPort, ForeignPorts, Moves},
    owner::{Claim, Owners, is_of_node},
    tables,
};
use crate::{
    key::Key,
    rows::{RowName, Table},
};

/// Names, holders and owners of all copied rows.
#[derive(Debug, Default)]
pub(crate) struct Index {
    rows: HashMap<Uuid, Entry>,
    names: HashMap<Table, HashMap<Arc<str>, Vec<Uuid>>>,
    /// By the row that holds and its column: what it holds, sorted.
    elements: HashMap<(Uuid, &'static str), Vec<Uuid>>,
    parents: HashMap<Uuid, Vec<Parent>>,
    owned: HashMap<Key, BTreeSet<Uuid>>,
    foreign: ForeignPorts,
    /// By switch: its ports whose names say that it is a node's. Such a switch has two, and may have thousands of others.
    node_ports: HashMap<Uuid, BTreeSet<Uuid>>,
}

#[derive(Debug)]
struct Entry {
    table: Table,
    name: Arc<str>,
    claim: Claim,
}

/// A row that holds another in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) table: Table,
    pub(crate) row: Uuid,
    pub(crate) column: &'static str,
    pub(crate) strong: bool,
}

/// What follows from changed rows.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Whose rows have to be looked at.
    pub(crate) keys: HashSet<Key>,
    /// Names that there were no rows of, in their order of appearance.
    pub(crate) appeared: Vec<(Table, Arc<str>)>,
    /// Addresses of ports on nodes' switches that are not ours.
    pub(crate) addresses: Moves,
}

/// The rows whose owner may be another now.
type Doubtful = BTreeMap<Uuid, Table>;

impl Index {
    pub(crate) fn name(&self, row: Uuid) -> Option<&Arc<str>> {
        self.rows.get(&row).map(|entry| &entry.name)
    }

    pub(crate) fn table(&self, row: Uuid) -> Option<Table> {
        self.rows.get(&row).map(|entry| entry.table)
    }

    pub(crate) fn claim(&self, row: Uuid) -> &Claim {
        self.rows.get(&row).map_or(&Claim::Foreign, |entry| &entry.claim)
    }

    /// All rows of that name, sorted; most tables have one at most.
    pub(crate) fn named(&self, table: Table, name: &str) -> &[Uuid] {
        self.names.get(&table).and_then(|names| names.get(name)).map_or(&[], Vec::as_slice)
    }

    /// The row that counts if there are several of that name: one of ours rather than another.
    pub(crate) fn find(&self, id: &RowName) -> Option<Uuid> {
        self.named(id.table, &id.name).iter().copied().min_by_key(|row| (self.claim(*row).owner().is_none(), *row))
    }

    pub(crate) fn elements(&self, row: Uuid, column: &'static str) -> &[Uuid] {
        self.elements.get(&(row, column)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn parents(&self, row: Uuid) -> &[Parent] {
        self.parents.get(&row).map_or(&[], Vec::as_slice)
    }

    /// Ports of a switch that make it a node's, by their names.
    pub(super) fn node_ports(&self, switch: Uuid) -> impl Iterator<Item = Uuid> + use<'_> {
        self.node_ports.get(&switch).into_iter().flatten().copied()
    }

    pub(crate) fn owned(&self, key: &Key) -> impl Iterator<Item = Uuid> + use<'_> {
        self.owned.get(key).into_iter().flatten().copied()
    }

    /// Every key that owns a row.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Key> {
        self.owned.keys()
    }

    /// Takes the changes of rows that the replica shows already.
    pub(super) fn apply(&mut self, replica: &Replica, owners: &Owners, changes: &Changes) -> Touched {
        let mut touched = Touched::default();
        let mut doubtful = Doubtful::new();
        // Names and sets first, because owners follow from them and rows come in no order.
        for change in changes {
            if let Some(table) = Table::of_name(change.table) {
                self.take(replica, table, change, &mut doubtful, &mut touched);
            }
        }
        let mut doubtful: Vec<(Uuid, Table)> = doubtful.into_iter().collect();
        // Holders before what they hold.
        doubtful.sort_by_key(|(_, table)| Reverse(table.rank()));
        for (row, table) in doubtful {
            let claim = owners.claim(replica, self, table, row);
            self.set_claim(row, claim, &mut touched.keys);
        }
        for port in self.foreign.take_doubtful() {
            let now = ForeignPort::of(replica, self, port);
            self.foreign.put(port, now, &mut touched.addresses);
        }
        touched
    }

    fn take(&mut self, replica: &Replica, table: Table, change: &Change, doubtful: &mut Doubtful, touched: &mut Touched) {
        let row = change.uuid;
        if change.kind != ChangeKind::Delete {
            self.rename(replica, table, row, doubtful, touched);
        }
        let changed = |column: &str| change.kind != ChangeKind::Modify || change.columns().contains(&column);
        for set in table.sets().iter().filter(|set| changed(set.column)) {
            let now = references(replica, table, row, set.column);
            self.relink(Parent { table, row, column: set.column, strong: set.strong }, set.holds, now, doubtful, &mut touched.keys);
        }
        // Whose elements came or went is told above; what follows is about the row's own columns.
        let is_set = |column: &&str| table.sets().iter().any(|set| set.column == *column);
        if change.kind == ChangeKind::Modify && change.columns().iter().all(is_set) {
            return;
        }
        touched.keys.extend(self.claim(row).key().cloned());
        doubtful.insert(row, table);
        if table == Table::LogicalSwitchPort {
            self.foreign.doubt(row);
        }
        if let Some(entry) = self.rows.get(&row).filter(|_| table == Table::LogicalRouterPort) {
            self.foreign.doubt_leading_to(&entry.name);
        }
        if self.name(row).is_some_and(|name| table == Table::LogicalSwitchPort && is_of_node(name)) {
            doubtful.extend(self.parents(row).iter().map(|parent| (parent.row, parent.table)));
        }
        if change.kind == ChangeKind::Delete {
            self.forget(row, &mut touched.keys);
            doubtful.remove(&row);
        }
    }

    fn rename(&mut self, replica: &Replica, table: Table, row: Uuid, doubtful: &mut Doubtful, touched: &mut Touched) {
        let now = tables::name(replica, table, row).unwrap_or_default();
        let before = self.rows.get(&row).map(|entry| Arc::clone(&entry.name));
        if before.as_deref() == Some(now) {
            return;
        }
        let name: Arc<str> = Arc::from(now);
        let (was_node_port, is_node_port) = (before.as_deref().is_some_and(is_of_node), is_of_node(&name));
        if let Some(before) = before {
            self.unname(table, &before, row);
            if table == Table::LogicalRouterPort {
                self.foreign.doubt_leading_to(&before);
            }
        }
        match self.rows.get_mut(&row) {
            Some(entry) => entry.name = Arc::clone(&name),
            None => drop(self.rows.insert(row, Entry { table, name: Arc::clone(&name), claim: Claim::Foreign })),
        }
        if !name.is_empty() {
            let rows = self.names.entry(table).or_default().entry(Arc::clone(&name)).or_default();
            if rows.is_empty() {
                touched.appeared.push((table, name));
            }
            if let Err(place) = rows.binary_search(&row) {
                rows.insert(place, row);
            }
        }
        if table == Table::LogicalSwitchPort && was_node_port != is_node_port {
            let switches: Vec<Parent> = self.parents(row).iter().filter(|parent| is_switch(parent)).copied().collect();
            for parent in switches {
                self.set_node_port(parent.row, row, is_node_port);
                doubtful.insert(parent.row, parent.table);
            }
        }
        // Rows that are whose their holder is.
        for set in table.sets().iter().filter(|set| follows_holder(set.holds)) {
            doubtful.extend(self.elements(row, set.column).iter().map(|element| (*element, set.holds)));
        }
    }

    fn relink(&mut self, parent: Parent, holds: Table, now: Vec<Uuid>, doubtful: &mut Doubtful, keys: &mut HashSet<Key>) {
        let before = self.elements.remove(&(parent.row, parent.column)).unwrap_or_default();
        for element in difference(&before, &now) {
            if let Some(parents) = self.parents.get_mut(&element) {
                parents.retain(|other| *other != parent);
                if parents.is_empty() {
                    self.parents.remove(&element);
                }
            }
            if is_switch(&parent) && self.set_node_port(parent.row, element, false) {
                doubtful.insert(parent.row, parent.table);
            }
            self.moved(parent, element, holds, doubtful, keys);
        }
        for element in difference(&now, &before) {
            self.parents.entry(element).or_default().push(parent);
            // One whose name is not known yet is looked at when it is.
            if is_switch(&parent) && self.name(element).is_some_and(|name| is_of_node(name)) {
                self.set_node_port(parent.row, element, true);
                doubtful.insert(parent.row, parent.table);
            }
            self.moved(parent, element, holds, doubtful, keys);
        }
        if !now.is_empty() {
            self.elements.insert((parent.row, parent.column), now);
        }
    }

    /// An element came to a set or left it.
    fn moved(&mut self, parent: Parent, element: Uuid, holds: Table, doubtful: &mut Doubtful, keys: &mut HashSet<Key>) {
        keys.extend(self.claim(element).key().cloned());
        if follows_holder(holds) {
            doubtful.insert(element, holds);
        }
        if parent.table == Table::LogicalSwitch && holds == Table::LogicalSwitchPort {
            self.foreign.doubt(element);
        }
    }

    /// Whether it was otherwise before.
    fn set_node_port(&mut self, switch: Uuid, port: Uuid, is_node_port: bool) -> bool {
        if is_node_port {
            return self.node_ports.entry(switch).or_default().insert(port);
        }
        let Some(ports) = self.node_ports.get_mut(&switch) else { return false };
        let was = ports.remove(&port);
        if ports.is_empty() {
            self.node_ports.remove(&switch);
        }
        was
    }

    fn set_claim(&mut self, row: Uuid, claim: Claim, keys: &mut HashSet<Key>) {
        let Some(entry) = self.rows.get_mut(&row) else { return };
        keys.extend(claim.key().cloned());
        if entry.claim == claim {
            return;
        }
        let before = std::mem::replace(&mut entry.claim, claim.clone());
        if entry.table == Table::LogicalSwitch {
            let ports = self.elements.get(&(row, "ports")).into_iter().flatten();
            ports.for_each(|port| self.foreign.doubt(*port));
        }
        keys.extend(before.key().cloned());
        self.disown(row, &before);
        if let Some(owner) = claim.owner() {
            self.owned.entry(owner.clone()).or_default().insert(row);
        }
    }

    fn forget(&mut self, row: Uuid, keys: &mut HashSet<Key>) {
        let Some(Entry { table, name, claim }) = self.rows.remove(&row) else { return };
        keys.extend(claim.key().cloned());
        self.disown(row, &claim);
        self.unname(table, &name, row);
    }

    fn disown(&mut self, row: Uuid, claim: &Claim) {
        let Some(owner) = claim.owner() else { return };
        if let Some(rows) = self.owned.get_mut(owner) {
            rows.remove(&row);
            if rows.is_empty() {
                self.owned.remove(owner);
            }
        }
    }

    fn unname(&mut self, table: Table, name: &str, row: Uuid) {
        let Some(names) = self.names.get_mut(&table) else { return };
        if let Some(rows) = names.get_mut(name) {
            rows.retain(|other| *other != row);
            if rows.is_empty() {
                names.remove(name);
            }
        }
    }
}

/// Whether it is a switch that holds a port.
fn is_switch(parent: &Parent) -> bool {
    parent.table == Table::LogicalSwitch && parent.column == "ports"
}

/// Whether rows of the table are whose the row is that holds them.
fn follows_holder(table: Table) -> bool {
    matches!(table, Table::GatewayChassis | Table::MeterBand)
}

fn references(replica: &Replica, table: Table, row: Uuid, column: &str) -> Vec<Uuid> {
    let datum = tables::row(replica, table, row).and_then(|row| row.column(column));
    let mut rows: Vec<Uuid> = datum.iter().flat_map(|datum| datum.atoms()).filter_map(Atom::as_uuid).collect();
    rows.sort_unstable();
    rows
}

/// What is in the first but not in the second; both are sorted.
fn difference<'a>(first: &'a [Uuid], second: &'a [Uuid]) -> impl Iterator<Item = Uuid> + use<'a> {
    let mut rest = second;
    first.iter().copied().filter(move |row| {
        let smaller = rest.iter().take_while(|other| *other < row).count();
        rest = &rest[smaller..];
        rest.first() != Some(row)
    })
}
