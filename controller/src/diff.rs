//! From the rows a key should have and the rows it has to what is to be done. Reads the copy of the database, writes nothing.
//!
//! A desired row is the row of its name, whoever made it; only a row that lives in a foreign row is left to its owner. Rows that the
//! key owns and does not want are taken out of every set of ours that holds them, which ends rows that need a holder; foreign rows are
//! never written, and nothing is deleted that holds them.

use std::collections::{HashMap, HashSet};

use ovsdb::{Datum, Uuid};

pub(crate) mod edit;
pub(crate) mod fit;
mod value;

use self::{
    edit::{Cell, Edit, Existing, Target},
    value::Part,
};
use crate::{
    key::Key,
    northbound::{Northbound, index::Parent},
    rows::{DesiredRow, Membership, RowName, Table, Value},
    store::Kept,
};

/// What is to be done for a key, or the rows that have to be there first.
#[derive(Debug, PartialEq)]
pub(crate) enum Difference {
    Edits(Vec<Edit>),
    Missing(Vec<RowName>),
}

/// Compares the rows of `key` with what is there; rows that are `kept` stay, wanted or not. `inserted` are rows of other keys that the same transaction inserts.
pub(crate) fn diff(key: &Key, rows: &[DesiredRow], kept: Kept, northbound: &Northbound, inserted: &HashSet<RowName>) -> Difference {
    let mut diff = Diff { key, kept, northbound, inserted, rows: HashMap::new(), edits: Vec::new(), missing: Vec::new() };
    diff.match_rows(rows);
    for row in rows {
        match diff.rows.get(&row.id).copied().flatten() {
            Some(uuid) => diff.compare(Existing { table: row.id.table, row: uuid }, row),
            None => diff.insert(row),
        }
    }
    diff.remove_rest();
    if diff.missing.is_empty() { Difference::Edits(diff.edits) } else { Difference::Missing(diff.missing) }
}

struct Diff<'a> {
    key: &'a Key,
    kept: Kept,
    northbound: &'a Northbound,
    inserted: &'a HashSet<RowName>,
    /// The desired rows, and which rows they are; none for those to be inserted.
    rows: HashMap<&'a RowName, Option<Uuid>>,
    edits: Vec<Edit>,
    missing: Vec<RowName>,
}

impl<'a> Diff<'a> {
    /// Finds the row of each desired one.
    fn match_rows(&mut self, rows: &'a [DesiredRow]) {
        for row in rows {
            let found = self.existing(row);
            self.rows.insert(&row.id, found);
        }
        // To replace a row that others live in would end them, so one that only lost its name gets it back.
        let index = &self.northbound.index;
        for row in rows.iter().filter(|row| keeps_others(row.id.table)) {
            if self.rows[&row.id].is_none() {
                let renamed = index.owned(self.key).find(|other| index.table(*other) == Some(row.id.table) && !self.is_matched(*other));
                if let Some(renamed) = renamed {
                    self.rows.insert(&row.id, Some(renamed));
                }
            }
        }
    }

    fn is_matched(&self, row: Uuid) -> bool {
        self.rows.values().any(|matched| *matched == Some(row))
    }

    fn existing(&self, row: &DesiredRow) -> Option<Uuid> {
        let index = &self.northbound.index;
        let wanted = |parent: &Parent| {
            let is = |set: &Membership| set.column == parent.column && set.of.table == parent.table;
            row.member_of.iter().any(|set| is(set) && index.name(parent.row).is_some_and(|name| **name == *set.of.name))
        };
        let free = |other: &Uuid| {
            let foreign = |parent: &&Parent| parent.strong && index.claim(parent.row).owner().is_none() && !wanted(parent);
            index.parents(*other).iter().find(foreign).is_none()
        };
        let rows = index.named(row.id.table, &row.id.name).iter().copied().filter(free);
        rows.min_by_key(|other| (index.claim(*other).owner() != Some(self.key), *other))
    }

    /// The row that a reference means.
    fn resolve(&mut self, id: &RowName) -> Option<Target> {
        let own = self.rows.get(id).copied();
        let found = own.unwrap_or_else(|| self.northbound.index.find(id)).map(Target::Existing);
        let found = found.or_else(|| (own.is_some() || self.inserted.contains(id)).then(|| Target::Inserted(id.clone())));
        if found.is_none() {
            self.missing.push(id.clone());
        }
        found
    }

    fn insert(&mut self, row: &DesiredRow) {
        let mut columns = Vec::with_capacity(row.columns.len() + 1);
        for (column, value) in &row.columns {
            let cell = match value {
                Value::Datum(datum) => Cell::Datum(datum.clone()),
                Value::Pairs(pairs) => Cell::Datum(Datum::map(pairs.with.iter().map(|(key, value)| (*key, value.as_str())))),
                Value::References(rows) | Value::Including(rows) => {
                    Cell::References(rows.iter().filter_map(|row| self.resolve(row)).collect())
                }
                Value::Parts { table, rows } => Cell::Parts { table: *table, kept: Vec::new(), new: rows.clone() },
            };
            columns.push((*column, cell));
        }
        if row.id.table.has_names() && !row.columns.iter().any(|(column, _)| *column == "name") {
            columns.push(("name", Cell::Datum(row.id.name.as_str().into())));
        }
        self.edits.push(Edit::Insert { id: row.id.clone(), columns });
        for set in &row.member_of {
            self.link(set, Target::Inserted(row.id.clone()));
        }
    }

    fn link(&mut self, set: &Membership, element: Target) {
        if let Some(of) = self.resolve(&set.of) {
            self.edits.push(Edit::Link { of, table: set.of.table, column: set.column, element });
        }
    }

    fn compare(&mut self, row: Existing, desired: &DesiredRow) {
        let mut columns = Vec::new();
        if self.northbound.index.name(row.row).is_some_and(|name| **name != *desired.id.name) {
            columns.push(("name", Cell::Datum(desired.id.name.as_str().into())));
        }
        for (column, value) in &desired.columns {
            if let Some(now) = self.northbound.column(row.table, row.row, column) {
                columns.extend(self.compare_column(row, column, value, &now).map(|cell| (*column, cell)));
            }
        }
        if !columns.is_empty() {
            self.edits.push(Edit::Update { row, columns });
        }
        self.compare_holders(row, &desired.member_of);
    }

    /// What to set the column to, if it is to be set. What changes a column relative to what it holds is an edit of its own.
    fn compare_column(&mut self, row: Existing, column: &'static str, value: &Value, now: &Datum) -> Option<Cell> {
        match value {
            Value::Datum(datum) => (!value::same(datum, now)).then(|| Cell::Datum(datum.clone())),
            Value::Pairs(pairs) => {
                let (remove, add) = value::pairs(now, pairs)?;
                self.edits.push(Edit::Pairs { row, column, remove, add });
                None
            }
            Value::References(rows) => {
                let targets: Vec<Target> = rows.iter().filter_map(|row| self.resolve(row)).collect();
                let existing = targets.iter().map(|target| if let Target::Existing(row) = target { Some(*row) } else { None });
                let same = existing.collect::<Option<Vec<Uuid>>>().is_some_and(|rows| value::same(&Datum::set(rows), now));
                (!same).then_some(Cell::References(targets))
            }
            Value::Including(rows) => {
                for id in rows {
                    let held =
                        |target: &Target| now.atoms().iter().any(|atom| Target::Existing(atom.as_uuid().unwrap_or_default()) == *target);
                    if let Some(element) = self.resolve(id).filter(|target| !held(target)) {
                        self.edits.push(Edit::Link { of: Target::Existing(row.row), table: row.table, column, element });
                    }
                }
                None
            }
            Value::Parts { table, rows } => {
                let (kept, new) = value::parts(&self.parts(*table, now, rows), rows)?;
                Some(Cell::Parts { table: *table, kept, new: new.into_iter().cloned().collect() })
            }
        }
    }

    /// The columns of the parts that are there, as far as they are compared.
    fn parts(&self, table: Table, now: &Datum, wanted: &[Part]) -> Vec<(Uuid, Part)> {
        let names: HashSet<&'static str> = wanted.iter().flatten().map(|(column, _)| *column).collect();
        let rows = now.atoms().iter().filter_map(ovsdb::Atom::as_uuid);
        let columns = |row| names.iter().filter_map(|name| Some((*name, self.northbound.column(table, row, name)?))).collect();
        rows.map(|row| (row, columns(row))).collect()
    }

    fn compare_holders(&mut self, row: Existing, desired: &[Membership]) {
        let parents = self.northbound.index.parents(row.row);
        let mut wanted = Vec::with_capacity(desired.len());
        for set in desired {
            let Some(of) = self.resolve(&set.of) else { continue };
            let holds = |parent: &Parent| Target::Existing(parent.row) == of && parent.column == set.column;
            match parents.iter().find(|parent| holds(parent)) {
                Some(parent) => wanted.push(*parent),
                None => self.edits.push(Edit::Link { of, table: set.of.table, column: set.column, element: Target::Existing(row.row) }),
            }
        }
        let extra = parents.iter().filter(|parent| !wanted.contains(parent) && self.may_take_out(parent));
        let unlinks: Vec<Edit> = extra.map(|parent| unlink(parent, row.row)).collect();
        self.edits.extend(unlinks);
    }

    /// Of our own rows only; what a shared set of another key refers to is that key's.
    fn may_take_out(&self, parent: &Parent) -> bool {
        let owner = self.northbound.index.claim(parent.row).owner();
        owner.is_some_and(|owner| parent.strong || owner == self.key || *owner == Key::Cluster)
    }

    /// Rows of this key that it does not want.
    fn remove_rest(&mut self) {
        let index = &self.northbound.index;
        for row in index.owned(self.key).filter(|row| !self.is_matched(*row)).collect::<Vec<_>>() {
            let Some(table) = index.table(row).filter(|table| !self.keeps(*table)) else { continue };
            if needs_holder(table) {
                let holders = index.parents(row).iter().filter(|parent| self.may_take_out(parent));
                let unlinks: Vec<Edit> = holders.map(|parent| unlink(parent, row)).collect();
                self.edits.extend(unlinks);
            } else if self.holds_foreign(table, row) {
                tracing::warn!(key = %self.key, table = table.name(), %row, "not deleted, because it holds rows that are not ours");
                self.empty(table, row);
            } else {
                let columns = table.sets().iter().filter(|set| set.strong).map(|set| set.column).chain(table.others_sets().iter().copied());
                let holds = columns.filter_map(|column| Some((column, Cell::Datum(self.northbound.column(table, row, column)?))));
                let holds = holds.filter(|(column, _)| self.northbound.has_column(table, column)).collect();
                self.edits.push(Edit::Delete { row: Existing { table, row }, holds });
            }
        }
    }

    /// Takes out what other keys have in a row that stays only for what is foreign: as if the row were deleted. Later nothing tells any more
    /// that the row was ours (a switch without its port to the router), and those keys leave it alone.
    fn empty(&mut self, table: Table, row: Uuid) {
        let index = &self.northbound.index;
        for set in table.sets().iter().filter(|set| set.strong) {
            let of = Existing { table, row };
            let of_others = |element: &&Uuid| index.claim(**element).owner().is_some_and(|owner| owner != self.key);
            let elements = index.elements(row, set.column).iter().filter(of_others);
            self.edits.extend(elements.map(|element| Edit::Unlink { of, column: set.column, element: *element }));
        }
    }

    fn keeps(&self, table: Table) -> bool {
        match self.kept {
            Kept::Nothing => false,
            Kept::RouterPort => matches!(table, Table::LogicalRouterPort | Table::GatewayChassis),
            Kept::All => true,
        }
    }

    fn holds_foreign(&self, table: Table, row: Uuid) -> bool {
        let index = &self.northbound.index;
        let foreign = |element: &Uuid| index.claim(*element).owner().is_none();
        let others = |column: &&str| self.northbound.column(table, row, column).is_some_and(|datum| !datum.atoms().is_empty());
        table.sets().iter().any(|set| set.strong && index.elements(row, set.column).iter().any(foreign))
            || table.others_sets().iter().any(others)
    }
}

fn unlink(parent: &Parent, element: Uuid) -> Edit {
    Edit::Unlink { of: Existing { table: parent.table, row: parent.row }, column: parent.column, element }
}

/// Whether rows live in a row of the table: with it they would end. Of other tables a row is what its name says, for others name it so.
fn keeps_others(table: Table) -> bool {
    match table {
        Table::LogicalSwitch | Table::LogicalRouter => true,
        Table::MeterBand
        | Table::GatewayChassis
        | Table::Acl
        | Table::LogicalSwitchPort
        | Table::LogicalRouterPort
        | Table::LoadBalancerGroup
        | Table::Copp
        | Table::Meter
        | Table::PortGroup
        | Table::AddressSet => false,
    }
}

/// Whether a row of the table is gone when no set of references holds it any more.
fn needs_holder(table: Table) -> bool {
    match table {
        Table::MeterBand | Table::GatewayChassis | Table::Acl | Table::LogicalSwitchPort | Table::LogicalRouterPort => true,
        Table::LoadBalancerGroup
        | Table::Copp
        | Table::Meter
        | Table::LogicalRouter
        | Table::LogicalSwitch
        | Table::PortGroup
        | Table::AddressSet => false,
    }
}
