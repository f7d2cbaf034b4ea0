//! Builds one transaction from the edits of many keys, and finds the keys of an operation that was
//! refused.
//!
//! Knows the operations of RFC 7047 §5.2; does not know what the rows mean.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use ovsdb::{
    Atom, Condition, Datum, Mutation, NamedUuid, OperationIndex, Row, Schema, Transaction, Until,
    Uuid,
};

use crate::{
    engine::diff::edit::{Cell, Edit, Existing, Target},
    rows::{RowName, Table, table::Life},
};

pub(crate) mod bisect;
pub(crate) mod fault;
pub(crate) mod work_queue;

/// A transaction, and for each of its operations the keys that it serves, as indexes into the edits
/// that [`assemble`] was given.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) transaction: Transaction,
    pub(crate) operations: Vec<Vec<usize>>,
    /// Rows to be written, by table.
    pub(crate) written: BTreeMap<Table, u64>,
}

/// Builds one transaction from the edits of several keys. With a `lock`, it begins with `assert`
/// (RFC 7047 §5.2.10) and fails unless its connection holds that lock.
pub(crate) fn assemble(edits: Vec<Vec<Edit>>, schema: &Schema, lock: Option<&str>) -> Batch {
    let mut builder = Builder {
        schema,
        transaction: Transaction::new(),
        operations: Vec::new(),
        written: BTreeMap::new(),
        inserted: HashMap::new(),
    };
    if let Some(lock) = lock {
        // It serves no key, but counts among the operations.
        builder.transaction.assert(lock);
        builder.operations.push(Vec::new());
    }
    let mut sorted = Sorted::default();
    for (key, edits) in edits.into_iter().enumerate() {
        edits.into_iter().for_each(|edit| sorted.take(key, edit));
    }
    // Inserts go in the order of the tables, so that a row comes after those that it refers to:
    // `references` only knows what was inserted before.
    let Sorted { mut inserts, updates, sets, deletes } = sorted;
    inserts.sort_by_key(|insert| insert.id.table);
    let mut sets = sets;
    // Guards precede all changes: a `wait` sees what earlier operations of its own transaction did.
    for (row, (key, holds)) in &deletes {
        builder.guard_delete(*row, *key, holds);
    }
    for insert in inserts {
        builder.insert(insert, &mut sets);
    }
    for (row, (keys, columns, mutations)) in updates {
        builder.update(row, keys, columns, mutations);
    }
    for (of, sets) in sets {
        builder.mutate_sets(of, sets);
    }
    // Deletes come last, when the sets above no longer refer to the rows.
    for (row, (key, _)) in deletes {
        let operation = builder.transaction.delete(row.table.name(), row.row);
        builder.note(operation, row.table, vec![key]);
    }
    let Builder { transaction, operations, written, .. } = builder;
    Batch { transaction, operations, written }
}

struct Insert {
    key: usize,
    id: RowName,
    columns: Vec<(&'static str, Cell)>,
}

/// The changes of one set of references, and the keys that they serve.
#[derive(Default)]
struct SetMoves {
    keys: Vec<usize>,
    add: Vec<Target>,
    /// Without duplicates: two keys may remove the same element, such as a node that leaves and a
    /// pod of that node.
    remove: BTreeSet<Uuid>,
}

type Sets = BTreeMap<Target, (Table, BTreeMap<&'static str, SetMoves>)>;
type Columns = Vec<(&'static str, Cell)>;

#[derive(Default)]
struct Sorted {
    inserts: Vec<Insert>,
    updates: BTreeMap<Existing, (Vec<usize>, Columns, Vec<Mutation>)>,
    sets: Sets,
    deletes: BTreeMap<Existing, (usize, Columns)>,
}

impl Sorted {
    fn take(&mut self, key: usize, edit: Edit) {
        match edit {
            Edit::Insert { id, columns } => self.inserts.push(Insert { key, id, columns }),
            Edit::Update { row, columns } => {
                let (keys, own, _) = self.updates.entry(row).or_default();
                keys.push(key);
                own.extend(columns);
            }
            Edit::Pairs { row, column, remove, add } => {
                let (keys, _, mutations) = self.updates.entry(row).or_default();
                keys.push(key);
                // Delete first: `insert` into a map does not change the value of a key that is
                // there (RFC 7047 §5.1).
                mutations
                    .extend((!remove.is_empty()).then(|| Mutation::delete_keys(column, remove)));
                mutations.extend((!add.is_empty()).then(|| Mutation::insert(column, add)));
            }
            Edit::Elements { row, column, remove, add } => {
                let (keys, _, mutations) = self.updates.entry(row).or_default();
                keys.push(key);
                mutations.extend(
                    (!remove.is_empty()).then(|| Mutation::delete(column, Datum::set(remove))),
                );
                mutations
                    .extend((!add.is_empty()).then(|| Mutation::insert(column, Datum::set(add))));
            }
            Edit::Link { of, table, column, element } => {
                let moves = self.moves(of, table, column);
                moves.keys.push(key);
                moves.add.push(element);
            }
            Edit::Unlink { of, column, element } => {
                let moves = self.moves(Target::Existing(of.row), of.table, column);
                moves.keys.push(key);
                moves.remove.insert(element);
            }
            Edit::Delete { row, holds } => drop(self.deletes.insert(row, (key, holds))),
        }
    }

    fn moves(&mut self, of: Target, table: Table, column: &'static str) -> &mut SetMoves {
        self.sets.entry(of).or_insert_with(|| (table, BTreeMap::new())).1.entry(column).or_default()
    }
}

struct Builder<'a> {
    schema: &'a Schema,
    transaction: Transaction,
    operations: Vec<Vec<usize>>,
    written: BTreeMap<Table, u64>,
    inserted: HashMap<RowName, NamedUuid>,
}

impl Builder<'_> {
    /// Records the keys of the operation that was just added.
    fn note(&mut self, _: OperationIndex, table: Table, keys: Vec<usize>) {
        self.operations.push(keys);
        *self.written.entry(table).or_default() += 1;
    }

    fn insert(&mut self, Insert { key, id, columns }: Insert, sets: &mut Sets) {
        // Two keys want the same row: the second key finds it at the next comparison.
        if self.inserted.contains_key(&id) {
            return;
        }
        let mut keys = vec![key];
        let mut row = Row::with_capacity(columns.len() + 1);
        for (column, cell) in columns {
            let value = self.value(cell, key);
            row.set(column, value);
        }
        // A new row gets its sets with its insert; `mutate` is for rows that exist.
        if let Some((_, sets)) = sets.remove(&Target::Inserted(id.clone())) {
            for (column, SetMoves { keys: also, add, remove: _ }) in sets {
                keys.extend(also);
                row.set(column, self.references(&add));
            }
        }
        self.guard(key, &id);
        let name = id.table.name();
        let inserted = self.transaction.insert(name, row);
        keys.dedup();
        self.operations.push(keys);
        *self.written.entry(id.table).or_default() += 1;
        self.inserted.insert(id, inserted);
    }

    /// Adds an operation that fails if another writer was faster: tables without a unique index on
    /// `name`, such as `Logical_Switch`, would accept a second row of the same name.
    ///
    /// Only for rows that others live in. Of two load balancers of one name, the next comparison
    /// removes one; and this operation reads the whole table, so that ten thousand of them would
    /// take minutes.
    fn guard(&mut self, key: usize, id: &RowName) {
        let indexed = |table: &ovsdb::TableSchema| {
            table.indexes.iter().any(|columns| columns.len() == 1 && columns[0] == "name")
        };
        let table = id.table.name();
        let is_home = id.table.life() == Life::Home;
        if is_home
            && id.table.name_column().is_some()
            && !self.schema.table(table).is_some_and(indexed)
        {
            // With timeout zero, `wait` checks once: no row of this name may be there.
            let of_the_name = Condition::equal("name", &*id.name);
            self.transaction.wait(
                table,
                of_the_name,
                &["name"],
                Until::Equal,
                Vec::new(),
                Duration::ZERO,
            );
            self.operations.push(vec![key]);
        }
    }

    /// Adds an operation that fails if the row's sets are not as they were seen: what another
    /// writer has put into them meanwhile would be deleted with the row.
    fn guard_delete(&mut self, row: Existing, key: usize, holds: &Columns) {
        if holds.is_empty() {
            return;
        }
        let columns: Vec<&str> = holds.iter().map(|(column, _)| *column).collect();
        let seen = holds.iter().fold(Row::new(), |seen, (column, cell)| {
            seen.with(*column, self.value(cell.clone(), key))
        });
        self.transaction.wait(
            row.table.name(),
            row.row,
            &columns,
            Until::Equal,
            vec![seen],
            Duration::ZERO,
        );
        self.operations.push(vec![key]);
    }

    fn update(
        &mut self,
        row: Existing,
        keys: Vec<usize>,
        columns: Columns,
        mutations: Vec<Mutation>,
    ) {
        let table = row.table.name();
        if !columns.is_empty() {
            // The key of rows that `value` inserts as parts, such as meter bands.
            let key = keys.first().copied().unwrap_or_default();
            let wire = columns
                .into_iter()
                .fold(Row::new(), |wire, (column, cell)| wire.with(column, self.value(cell, key)));
            let operation = self.transaction.update(table, row.row, wire);
            self.note(operation, row.table, keys.clone());
        }
        if !mutations.is_empty() {
            let operation = self.transaction.mutate(table, row.row, mutations);
            self.note(operation, row.table, keys);
        }
    }

    fn mutate_sets(
        &mut self,
        of: Target,
        (table, sets): (Table, BTreeMap<&'static str, SetMoves>),
    ) {
        // The set of a row that is not inserted by this transaction: the next comparison finds it.
        let Target::Existing(row) = of else { return };
        let (mut keys, mut mutations) = (Vec::new(), Vec::new());
        for (column, moves) in sets {
            keys.extend(moves.keys);
            // Remove first: an element that one key removes and another adds stays.
            if !moves.remove.is_empty() {
                mutations.push(Mutation::delete(column, Datum::set(moves.remove)));
            }
            if !moves.add.is_empty() {
                mutations.push(Mutation::insert(column, self.references(&moves.add)));
            }
        }
        keys.dedup();
        let operation = self.transaction.mutate(table.name(), row, mutations);
        self.note(operation, table, keys);
    }

    fn value(&mut self, cell: Cell, key: usize) -> Datum {
        match cell {
            Cell::Datum(datum) => datum,
            Cell::References(targets) => self.references(&targets),
            Cell::Parts { table, kept, new } => {
                let mut rows: Vec<Atom> = kept.into_iter().map(Atom::Uuid).collect();
                for columns in new {
                    let row = columns
                        .into_iter()
                        .fold(Row::new(), |row, (column, value)| row.with(column, value));
                    rows.push(self.transaction.insert(table.name(), row).into());
                    self.operations.push(vec![key]);
                    *self.written.entry(table).or_default() += 1;
                }
                Datum::Set(rows)
            }
        }
    }

    fn references(&self, targets: &[Target]) -> Datum {
        // A reference to a row that is not inserted is left out; the next comparison adds it.
        let atom = |target: &Target| match target {
            Target::Existing(row) => Some(Atom::Uuid(*row)),
            Target::Inserted(id) => self.inserted.get(id).map(Atom::from),
        };
        Datum::Set(targets.iter().filter_map(atom).collect())
    }
}
