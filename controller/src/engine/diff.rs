//! The edits that turn the existing rows of a key into the desired ones. Reads the replica, writes
//! nothing.
//!
//! An existing row with the name of a desired one is taken over, whatever program made it, unless
//! it lives in a foreign row or another key wants it: a key that would need the row of another is
//! told so, and has no row that depends on it. Rows that the key owns and does not want are removed
//! from every set of this controller that holds them, which deletes rows that need a holder.
//! Foreign rows are never written, and a row that holds one is never deleted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem::take,
};

use ovsdb::{Datum, Field, Uuid};

use crate::{
    engine::{
        diff::{
            edit::{Cell, Edit, Existing, Target},
            value::Delta,
        },
        northbound::{Northbound, index::Parent},
    },
    key::Key,
    rows::{
        DesiredRow, Joins, Membership, Pairs, RowName, RowSet, Table, Value,
        acl::spelling::spelled,
        table::{Life, Strength},
    },
    world::Kept,
};

pub(crate) mod edit;
pub(crate) mod fit;
pub(crate) mod part;
mod value;

/// What a key needs to have its rows.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Difference {
    pub(crate) edits: Vec<Edit>,
    /// Rows that have to exist first. There are no edits then.
    pub(crate) missing: Vec<RowName>,
    /// Sets that a row joins once they exist. It is written without.
    pub(crate) later: Vec<RowName>,
    /// Rows that other objects have. The edits only remove what depends on them.
    pub(crate) taken: Vec<Taken>,
}

/// A row that the key needs and another object has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) row: RowName,
    pub(crate) need: Need,
    pub(crate) by: Holder,
}

/// Why a key needs a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is one of its own rows.
    Own,
    /// One of its own refers to it.
    Reference,
}

/// The object that has a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    Key(Key),
    /// One that this controller does not know, by the id of the row.
    Unknown(Box<str>),
}

/// The other keys, as far as they want the same rows.
pub(crate) trait Others {
    /// Whether the same transaction inserts the row, for another key.
    fn insert(&self, row: &RowName) -> bool;
    /// Whether it inserts another row that is called the same.
    fn insert_another(&self, row: &RowName) -> bool;
    /// Whether the key, which owns a row that is called so, wants it or has to keep it.
    fn wants(&self, key: &Key, row: &RowName) -> bool;
    /// The existing rows of the key that stay, wanted or not.
    fn kept(&self, key: &Key) -> Kept;
    /// Whether the key's load balancers have to stay on this row of another key: a switch, a router
    /// or a group.
    fn keeps_balancers(&self, key: &Key, of: &Key, on: &str) -> bool;
    /// The key that comes before all others that want a row that is called so, where that is
    /// decided, and its row.
    fn first(&self, row: &RowName) -> Option<(&Key, &RowName)>;
}

/// No other key wants anything. Of the existing rows these stay, whoever has them.
pub(crate) struct NoOthers(pub(crate) Kept);

impl Others for NoOthers {
    fn insert(&self, _: &RowName) -> bool {
        false
    }

    fn insert_another(&self, _: &RowName) -> bool {
        false
    }

    fn wants(&self, _: &Key, _: &RowName) -> bool {
        false
    }

    fn kept(&self, _: &Key) -> Kept {
        self.0
    }

    fn keeps_balancers(&self, _: &Key, _: &Key, _: &str) -> bool {
        self.0 == Kept::ALL
    }

    fn first(&self, _: &RowName) -> Option<(&Key, &RowName)> {
        None
    }
}

/// Compares the desired rows of `key` with the existing ones.
pub(crate) fn diff(
    key: &Key,
    mut rows: RowSet,
    northbound: &Northbound,
    others: &dyn Others,
) -> Difference {
    let (kept, found) = (others.kept(key), Difference::default());
    let mut diff = Diff { key, kept, northbound, others, rows: HashMap::new(), found };
    // All rows are matched first, because they may refer to each other.
    diff.match_rows(&rows);
    if !diff.found.taken.is_empty() {
        diff.remove_dependent(&rows);
        return diff.found;
    }
    for row in &mut rows {
        for id in &row.needs {
            // Notes it as missing; a name in a text is no reference to write.
            diff.resolve(id);
        }
        // The values move into the edits: thousands of rows are never in memory twice.
        let values =
            Values { columns: take(&mut row.columns), or_columns: take(&mut row.or_columns) };
        match diff.rows.get(&row.id).copied().flatten() {
            Some(uuid) => diff.compare(Existing { table: row.id.table, row: uuid }, row, &values),
            None => diff.insert(row, values.columns),
        }
    }
    diff.remove_rest();
    // All or nothing: the key waits until every row that it refers to exists.
    if !diff.found.missing.is_empty() || !diff.found.taken.is_empty() {
        diff.found.edits.clear();
        // Only what depends on rows of others goes at once.
        diff.remove_dependent(&rows);
    }
    diff.found
}

/// The columns of a desired row.
struct Values {
    columns: Vec<(&'static str, Value)>,
    /// As [`DesiredRow::or_columns`].
    or_columns: Vec<(&'static str, Value)>,
}

struct Diff<'a> {
    key: &'a Key,
    kept: Kept,
    northbound: &'a Northbound,
    others: &'a dyn Others,
    /// The desired rows with the existing row of each; none for a row to be inserted.
    rows: HashMap<RowName, Option<Uuid>>,
    found: Difference,
}

impl Diff<'_> {
    /// Finds the existing row of each desired one.
    fn match_rows(&mut self, rows: &[DesiredRow]) {
        for row in rows {
            let found = self.existing(row);
            self.rows.insert(row.id.clone(), found);
            match self.others.first(&row.id).filter(|(first, _)| *first != self.key) {
                Some((first, _)) => self.note_taken(&row.id, Need::Own, first),
                None if found.is_none() => self.note_holder(&row.id, Need::Own),
                None => {}
            }
        }
        // Replacing a row that others live in would delete them, so a row that only lost its name
        // is renamed. This comes second: a row that is the match of another desired one is not
        // free.
        let index = &self.northbound.index;
        for row in rows.iter().filter(|row| row.id.table.life() == Life::Home) {
            if self.rows[&row.id].is_none() {
                let renamed = index.owned(self.key).find(|other| {
                    index.table(*other) == Some(row.id.table) && !self.is_matched(*other)
                });
                if let Some(renamed) = renamed {
                    self.rows.insert(row.id.clone(), Some(renamed));
                }
            }
        }
        for row in rows.iter().filter(|row| row.id.table == Table::LoadBalancer) {
            if self.rows[&row.id].is_none()
                && let Some(renamed) = self.same_backends(row)
            {
                self.rows.insert(row.id.clone(), Some(renamed));
            }
        }
    }

    /// A load balancer of this key with the same protocol and backends as the desired one, and a
    /// name that is not desired. Which node's name is in it depends on the nodes that there are: a
    /// new name is one column, another row would be a link for each node.
    fn same_backends(&self, desired: &DesiredRow) -> Option<Uuid> {
        let is_same = |row: Uuid| {
            desired.columns.iter().all(|(column, value)| {
                let now = self.northbound.column(Table::LoadBalancer, row, column);
                match value {
                    Value::Lists(pairs) | Value::Entries(pairs) => {
                        let same = same_of(value);
                        now.and_then(Field::pairs).is_some_and(|now| {
                            value::entries(now, pairs, same).is_empty() && !pairs.is_empty()
                        })
                    }
                    Value::Datum(datum) => now.is_some_and(|now| now.is(datum)),
                    Value::Pairs(pairs) => now
                        .and_then(Field::pairs)
                        .is_some_and(|now| value::pairs(now, pairs).is_none()),
                    Value::Match(_)
                    | Value::Elements(_)
                    | Value::References(_)
                    | Value::Including(_)
                    | Value::Parts { .. } => false,
                }
            })
        };
        let index = &self.northbound.index;
        let mut free = index
            .owned(self.key)
            .filter(|row| index.table(*row) == Some(Table::LoadBalancer) && !self.is_matched(*row));
        free.find(|row| is_same(*row))
    }

    fn is_matched(&self, row: Uuid) -> bool {
        self.rows.values().any(|matched| *matched == Some(row))
    }

    /// The existing row with this name, if no other key wants it. Of several, one of this key comes
    /// first.
    fn existing(&self, row: &DesiredRow) -> Option<Uuid> {
        let index = &self.northbound.index;
        let wanted = |parent: &Parent| {
            let is =
                |set: &Membership| set.column == parent.set.column && set.of.table == parent.set.of;
            row.member_of.iter().any(|set| {
                is(set) && index.name(parent.row).is_some_and(|name| **name == *set.of.name)
            })
        };
        let free = |other: &Uuid| {
            // A row inside a foreign row belongs to the foreign row's owner. The exception is the
            // row that should hold it, which may be foreign only until its own key takes it over.
            let foreign = |parent: &&Parent| {
                parent.set.strength == Strength::Strong
                    && index.claim(parent.row).owner().is_none()
                    && !wanted(parent)
            };
            index.parents(*other).iter().find(foreign).is_none()
        };
        let rows = index.named(row.id.table, &row.id.path()).iter().copied();
        let is_ours = |other: &Uuid| match index.claim(*other).owner() {
            // Whatever its id says: of rows of one name, a key has one.
            Some(owner) if owner == self.key => true,
            Some(owner) => {
                self.northbound.is_row(*other, &row.id) && !self.others.wants(owner, &row.id)
            }
            None => self.northbound.is_row(*other, &row.id),
        };
        rows.filter(|other| is_ours(other) && free(other))
            .min_by_key(|other| (index.claim(*other).owner() != Some(self.key), *other))
    }

    /// Notes the object that has a row that is called so, if one has. A row that its own key is
    /// about to remove is waited for.
    fn note_holder(&mut self, id: &RowName, need: Need) {
        let index = &self.northbound.index;
        let taken = index.named(id.table, &id.path()).iter().find_map(|row| {
            match index.claim(*row).owner() {
                Some(owner) if owner == self.key => None,
                Some(owner) if self.others.wants(owner, id) => {
                    Some(Some(Holder::Key(owner.clone())))
                }
                Some(_) => Some(None),
                None if self.northbound.is_row(*row, id) => None,
                None => Some(Some(Holder::Unknown(self.northbound.id(id.table, *row)?.into()))),
            }
        });
        match taken {
            Some(Some(by)) => self.found.taken.push(Taken { row: id.clone(), need, by }),
            Some(None) => self.found.missing.push(id.clone()),
            None => {}
        }
    }

    /// The row that a reference means; none, and noted, if it does not exist yet.
    fn resolve(&mut self, id: &RowName) -> Option<Target> {
        let found = self.find(id);
        if found.is_none() {
            let noted = (self.found.missing.len(), self.found.taken.len());
            match self.others.first(id) {
                Some((first, row)) if row != id => self.note_taken(id, Need::Reference, first),
                // What is called so now is about to go.
                Some(_) => {}
                None => self.note_holder(id, Need::Reference),
            }
            if noted == (self.found.missing.len(), self.found.taken.len()) {
                self.found.missing.push(id.clone());
            }
        }
        found
    }

    fn note_taken(&mut self, id: &RowName, need: Need, by: &Key) {
        self.found.taken.push(Taken { row: id.clone(), need, by: Holder::Key(by.clone()) });
    }

    /// The row that a reference means, if it exists or is inserted.
    fn find(&self, id: &RowName) -> Option<Target> {
        if self.others.first(id).is_some_and(|(_, row)| row != id) {
            return None;
        }
        // This key's own rows first: one that is renamed is not found under its new name yet.
        let own = self.rows.get(id).copied();
        let found = own.unwrap_or_else(|| self.northbound.find(id)).map(Target::Existing);
        let is_new = own.is_some() || self.others.insert(id);
        found.or_else(|| is_new.then(|| Target::Inserted(id.clone())))
    }

    /// The row with the set that a row should be in. A set that may come later is noted as such.
    fn holder(&mut self, set: &Membership) -> Option<Target> {
        match set.joins {
            Joins::WithIt => self.resolve(&set.of),
            Joins::OnceThere => {
                let found = self.find(&set.of);
                if found.is_none() {
                    self.found.later.push(set.of.clone());
                }
                found
            }
        }
    }

    fn insert(&mut self, row: &DesiredRow, values: Vec<(&'static str, Value)>) {
        if self.others.insert_another(&row.id) {
            self.found.missing.push(row.id.clone());
            return;
        }
        let mut columns = Vec::with_capacity(values.len() + 1);
        for (column, value) in values {
            let cell = match value {
                Value::Datum(datum) => Cell::Datum(datum),
                Value::Match(words) => Cell::Datum((&*spelled(&words)).into()),
                // A new row has no keys to remove.
                Value::Pairs(pairs) => {
                    let Pairs { with, initially, without: _, alike: _ } = *pairs;
                    Cell::Datum(Datum::map(initially.into_iter().chain(with)))
                }
                Value::Elements(texts) => Cell::Datum(whole_set(&texts)),
                Value::Entries(pairs) | Value::Lists(pairs) => Cell::Datum(whole_map(&pairs)),
                Value::References(rows) | Value::Including(rows) => {
                    Cell::References(rows.iter().filter_map(|row| self.resolve(row)).collect())
                }
                Value::Parts { table, rows } => Cell::Parts { table, kept: Vec::new(), new: rows },
            };
            columns.push((column, cell));
        }
        if let Some(name) = row
            .id
            .table
            .name_column()
            .filter(|name| !columns.iter().any(|(column, _)| column == name))
        {
            columns.push((name, Cell::Datum((&*row.id.name).into())));
        }
        self.found.edits.push(Edit::Insert { id: row.id.clone(), columns });
        let edits = self.found.edits.len();
        for set in &row.member_of {
            self.link(set, Target::Inserted(row.id.clone()));
        }
        // ovsdb-server would delete a row at once that nothing holds.
        let is_alone = row.id.table.needs_holder() && edits == self.found.edits.len();
        if let Some(set) = row.member_of.first().filter(|set| set.joins == Joins::OnceThere)
            && is_alone
        {
            self.found.missing.push(set.of.clone());
        }
    }

    fn link(&mut self, set: &Membership, element: Target) {
        if let Some(of) = self.holder(set) {
            self.found.edits.push(Edit::Link {
                of,
                table: set.of.table,
                column: set.column,
                element,
            });
        }
    }

    fn compare(&mut self, row: Existing, desired: &DesiredRow, values: &Values) {
        let mut columns = Vec::new();
        // Only a row that has lost its name, or gets another one, is matched without it.
        if self.northbound.index.name(row.row).is_some_and(|name| **name != *desired.id.path()) {
            columns.push(("name", Cell::Datum((&*desired.id.name).into())));
        }
        let wanted =
            if self.has_other_form(row, &values.or_columns) { &[][..] } else { &values.columns };
        for (column, value) in wanted {
            if let Some(now) = self.northbound.column(row.table, row.row, column) {
                columns.extend(
                    self.compare_column(row, column, value, now).map(|cell| (*column, cell)),
                );
            }
        }
        if !columns.is_empty() {
            self.found.edits.push(Edit::Update { row, columns });
        }
        // A set beside those is one that the row may be in: of a node whose annotations cannot be
        // read now.
        if !self.is_in(row, &desired.or_member_of) {
            self.compare_holders(row, &desired.member_of);
        }
    }

    /// Whether the row has all columns in their other form, if there is one.
    fn has_other_form(&mut self, row: Existing, other: &[(&'static str, Value)]) -> bool {
        let before = self.found.edits.len();
        let is_same = !other.is_empty()
            && other.iter().all(|(column, value)| {
                let now = self.northbound.column(row.table, row.row, column);
                now.is_some_and(|now| self.compare_column(row, column, value, now).is_none())
                    && self.found.edits.len() == before
            });
        self.found.edits.truncate(before);
        is_same
    }

    /// Whether the row is in all of these sets. False for no sets.
    fn is_in(&self, row: Existing, sets: &[Membership]) -> bool {
        if sets.is_empty() {
            return false;
        }
        let index = &self.northbound.index;
        let held: HashSet<_> = index
            .parents(row.row)
            .iter()
            .filter_map(|parent| {
                Some((parent.set.of, parent.set.column, &**index.name(parent.row)?))
            })
            .collect();
        sets.iter().all(|set| held.contains(&(set.of.table, set.column, &*set.of.name)))
    }

    /// The value to set the column to, if it has to be set. A change relative to the current value
    /// becomes an edit of its own.
    fn compare_column(
        &mut self,
        row: Existing,
        column: &'static str,
        value: &Value,
        now: &dyn Field,
    ) -> Option<Cell> {
        match value {
            Value::Datum(datum) => (!now.is(datum)).then(|| Cell::Datum(datum.clone())),
            Value::Match(words) => {
                let spelled = (&*spelled(words)).into();
                (!now.is(&spelled) && !now.is(&words.as_str().into()))
                    .then_some(Cell::Datum(spelled))
            }
            Value::Pairs(pairs) => {
                let (remove, add) = value::pairs(now.pairs()?, pairs)?;
                self.found.edits.push(Edit::Pairs { row, column, remove, add });
                None
            }
            Value::Elements(texts) => {
                let delta = value::elements(now.texts()?, texts);
                if delta.is_most_of(texts.len()) {
                    return Some(Cell::Datum(whole_set(texts)));
                }
                if !delta.is_empty() {
                    let Delta { remove, elements: add, .. } = delta;
                    self.found.edits.push(Edit::Elements { row, column, remove, add });
                }
                None
            }
            Value::Entries(pairs) | Value::Lists(pairs) => {
                let delta = value::entries(now.pairs()?, pairs, same_of(value));
                if delta.is_most_of(pairs.len()) {
                    return Some(Cell::Datum(whole_map(pairs)));
                }
                if !delta.is_empty() {
                    let Delta { remove, entries: add, .. } = delta;
                    self.found.edits.push(Edit::Pairs { row, column, remove, add });
                }
                None
            }
            Value::References(rows) => {
                let targets: Vec<Target> =
                    rows.iter().filter_map(|row| self.resolve(row)).collect();
                let existing = targets.iter().map(|target| {
                    if let Target::Existing(row) = target { Some(*row) } else { None }
                });
                // A reference to a row that does not exist yet is a difference in any case.
                let same = existing
                    .collect::<Option<Vec<Uuid>>>()
                    .is_some_and(|rows| now.is(&Datum::set(rows)));
                (!same).then_some(Cell::References(targets))
            }
            Value::Including(rows) => {
                for id in rows {
                    let held = |target: &Target| match target {
                        Target::Existing(row) => now.references().contains(row),
                        Target::Inserted(_) => false,
                    };
                    if let Some(element) = self.resolve(id).filter(|target| !held(target)) {
                        self.found.edits.push(Edit::Link {
                            of: Target::Existing(row.row),
                            table: row.table,
                            column,
                            element,
                        });
                    }
                }
                None
            }
            Value::Parts { table, rows } => {
                let northbound = self.northbound;
                let holds = |row, column, value: &Datum| {
                    northbound.column(*table, row, column).is_some_and(|now| now.is(value))
                };
                let (kept, new) = value::parts(now.references(), holds, rows)?;
                Some(Cell::Parts { table: *table, kept, new: new.into_iter().cloned().collect() })
            }
        }
    }

    /// Adds the row to the sets that it should be in, and removes it from the others.
    fn compare_holders(&mut self, row: Existing, desired: &[Membership]) {
        let parents = self.northbound.index.parents(row.row);
        let mut wanted = Vec::with_capacity(desired.len());
        for set in desired {
            let Some(of) = self.holder(set) else { continue };
            let holds = |parent: &Parent| {
                Target::Existing(parent.row) == of && parent.set.column == set.column
            };
            match parents.iter().find(|parent| holds(parent)) {
                Some(parent) => wanted.push(*parent),
                None => self.found.edits.push(Edit::Link {
                    of,
                    table: set.of.table,
                    column: set.column,
                    element: Target::Existing(row.row),
                }),
            }
        }
        let extra =
            parents.iter().filter(|parent| !wanted.contains(parent) && self.may_take_out(parent));
        let unlinks: Vec<Edit> = extra.map(|parent| unlink(parent, row.row)).collect();
        self.found.edits.extend(unlinks);
    }

    /// Whether this key may remove its row from the set: only from a set of a row of this
    /// controller.
    fn may_take_out(&self, parent: &Parent) -> bool {
        let owner = self.northbound.index.claim(parent.row).owner();
        owner.is_some_and(|owner| !self.stays(parent, owner))
    }

    /// Whether the row stays in the set of another key that cannot be read. A load balancer or a
    /// mark stays on the switch or router of a node, which is on no list of desired ones; a port in
    /// a group whose policy may be about it.
    fn stays(&self, parent: &Parent, owner: &Key) -> bool {
        let is_of_policy = owner != self.key && parent.set.of == Table::PortGroup;
        let on = self.northbound.index.name(parent.row).map_or("", |name| name);
        let is_on_node = matches!(parent.set.holds, Table::LoadBalancer | Table::Qos);
        is_on_node && self.others.keeps_balancers(self.key, owner, on)
            || is_of_policy && self.others.kept(owner).has(Table::PortGroup)
    }

    /// Removes the rows of this key that it does not want.
    fn remove_rest(&mut self) {
        let index = &self.northbound.index;
        // A policy may have thousands of rows: each is looked up, and not compared with all others.
        let matched: HashSet<Uuid> = self.rows.values().copied().flatten().collect();
        self.remove(index.owned(self.key).filter(|row| !matched.contains(row)).collect());
    }

    /// Removes the rows of this key that are called as another's, those that are only in such ones,
    /// and those whose text names one: what an ACL allows, it must not allow to another's pods. All
    /// other rows stay as they are.
    fn remove_dependent(&mut self, rows: &[DesiredRow]) {
        let taken: HashSet<&RowName> = self.found.taken.iter().map(|taken| &taken.row).collect();
        let is_dependent = |row: &&DesiredRow| {
            taken.contains(&row.id)
                || row.needs.iter().any(|needed| taken.contains(needed))
                || !row.member_of.is_empty()
                    && row.member_of.iter().all(|set| taken.contains(&set.of))
        };
        let dependent = rows.iter().filter(is_dependent).filter_map(|row| self.rows[&row.id]);
        let own = |row: &Uuid| self.northbound.index.claim(*row).owner() == Some(self.key);
        let dependent = dependent.filter(own).collect();
        self.remove(dependent);
    }

    /// Removes rows of this key.
    fn remove(&mut self, rows: Vec<Uuid>) {
        let index = &self.northbound.index;
        for row in rows {
            let Some(table) = index.table(row).filter(|table| !self.kept.has(*table)) else {
                continue;
            };
            // ovsdb-server deletes a row of a non-root table with the last strong reference to it.
            let must_stay = table == Table::LoadBalancer
                && index.parents(row).iter().any(|parent| {
                    index.claim(parent.row).owner().is_some_and(|owner| self.stays(parent, owner))
                });
            if table.needs_holder() || must_stay {
                let holders = index.parents(row).iter().filter(|parent| self.may_take_out(parent));
                let unlinks: Vec<Edit> = holders.map(|parent| unlink(parent, row)).collect();
                self.found.edits.extend(unlinks);
            } else if self.holds_foreign(table, row) {
                tracing::warn!(
                    key = %self.key,
                    table = table.name(),
                    %row,
                    "not deleted, because it holds rows that are not ours"
                );
                self.empty(table, row);
            } else {
                // The transaction deletes the row only if these sets are unchanged: what another
                // program has added meanwhile would be deleted with it.
                let columns = table
                    .strong_sets()
                    .map(|set| set.column)
                    .chain(table.others_sets().iter().copied());
                let holds = columns.filter_map(|column| {
                    Some((column, Cell::Datum(self.northbound.column(table, row, column)?.datum())))
                });
                // An older schema may lack a column, and a transaction that names it would fail.
                let holds =
                    holds.filter(|(column, _)| self.northbound.has_column(table, column)).collect();
                self.found.edits.push(Edit::Delete { row: Existing { table, row }, holds });
            }
        }
    }

    /// Removes the rows of other keys from a row that stays only for its foreign rows, as if it
    /// were deleted. This has to happen now: without its own rows (a switch without its port to the
    /// router) nothing shows any more that the row was this controller's, and the other keys do not
    /// touch it.
    fn empty(&mut self, table: Table, row: Uuid) {
        let index = &self.northbound.index;
        for set in table.strong_sets() {
            let of = Existing { table, row };
            let of_others = |element: &&Uuid| {
                index.claim(**element).owner().is_some_and(|owner| owner != self.key)
            };
            let elements = self.northbound.elements(row, set).iter().filter(of_others);
            self.found.edits.extend(elements.map(|element| Edit::Unlink {
                of,
                column: set.column,
                element: *element,
            }));
        }
    }

    fn holds_foreign(&self, table: Table, row: Uuid) -> bool {
        let index = &self.northbound.index;
        let foreign = |element: &Uuid| index.claim(*element).owner().is_none();
        let others = |column: &&str| {
            self.northbound
                .column(table, row, column)
                .is_some_and(|field| !field.datum().is_empty())
        };
        table.strong_sets().any(|set| self.northbound.elements(row, set).iter().any(foreign))
            || table.others_sets().iter().any(others)
    }
}

fn whole_set(texts: &BTreeSet<Box<str>>) -> Datum {
    Datum::set(texts.iter().map(|text| &**text))
}

fn whole_map(pairs: &BTreeMap<Box<str>, String>) -> Datum {
    Datum::map(pairs.iter().map(|(key, value)| (&**key, value.as_str())))
}

fn unlink(parent: &Parent, element: Uuid) -> Edit {
    Edit::Unlink {
        of: Existing { table: parent.set.of, row: parent.row },
        column: parent.set.column,
        element,
    }
}

/// When two entries of such a value are equal.
fn same_of(value: &Value) -> fn(&str, &str) -> bool {
    if matches!(value, Value::Lists(_)) { value::same_list } else { value::same_text }
}

#[cfg(test)]
mod tests;
