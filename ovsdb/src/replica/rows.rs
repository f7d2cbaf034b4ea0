//! The rows of one table of a replica.

use std::{any::Any, collections::HashMap};

use super::{Change, ChangeKind, Changes, change::Old};
use crate::{
    schema::TableSchema,
    table::{Columns, Table},
    value::{Datum, Uuid},
};

/// A received value and the index of its column.
pub(crate) type Cell = (usize, Datum);

/// [`TableRows`] without its type parameter, so that the decoder of updates is compiled once, not
/// for each table.
pub(crate) trait Rows: Send + Sync {
    fn name(&self) -> &'static str;

    fn columns(&self) -> &'static [&'static str];

    fn row_count(&self) -> usize;

    fn row(&self, uuid: Uuid) -> Option<&dyn Columns>;

    /// Prepares for values of this schema. Returns the columns that the schema has, or the first
    /// that does not fit its field.
    fn adapt(&mut self, schema: &TableSchema) -> Result<Vec<&'static str>, &'static str>;

    /// Sets a whole row, new or existing. Columns without a cell get their default.
    fn put(
        &mut self,
        uuid: Uuid,
        cells: &mut Vec<Cell>,
        changes: &mut Changes,
    ) -> Result<(), String>;

    /// Applies differences to an existing row.
    fn modify(
        &mut self,
        uuid: Uuid,
        cells: &mut Vec<Cell>,
        changes: &mut Changes,
    ) -> Result<(), String>;

    fn remove(&mut self, uuid: Uuid, changes: &mut Changes);

    fn begin_replacement(&mut self);

    fn finish_replacement(&mut self, changes: &mut Changes);

    fn abandon_replacement(&mut self);

    fn as_any(&self) -> &dyn Any;
}

/// Whether the server sends the rows that exist when the monitor begins. Changes to them it always
/// sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialRows {
    Sent,
    LeftOut,
}

pub(crate) struct TableRows<T> {
    /// Boxed, because about a third of a hash table's slots are empty, and an empty slot is as
    /// large as a full one.
    rows: HashMap<Uuid, Box<T>>,
    /// During a full load: the rows from before it that were not loaded again yet.
    before: HashMap<Uuid, Box<T>>,
    /// For each column: whether updates carry the value itself, not a difference.
    whole: Vec<bool>,
    keep_old: bool,
    initial: InitialRows,
}

impl<T: Table> TableRows<T> {
    pub(crate) fn new(keep_old: bool, initial: InitialRows) -> Self {
        Self {
            rows: HashMap::new(),
            before: HashMap::new(),
            whole: vec![true; T::COLUMNS.len()],
            keep_old,
            initial,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Uuid, &T)> {
        self.rows.iter().map(|(uuid, row)| (*uuid, &**row))
    }

    pub(super) fn get(&self, uuid: Uuid) -> Option<&T> {
        self.rows.get(&uuid).map(|row| &**row)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    fn change(uuid: Uuid, kind: ChangeKind, old: Option<Box<T>>) -> Change {
        let old = old.map(|row| row as Box<dyn Old>);
        Change { table: T::NAME, uuid, kind, columns: Vec::new(), differences: Vec::new(), old }
    }
}

impl<T: Table> Rows for TableRows<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn columns(&self) -> &'static [&'static str] {
        T::COLUMNS
    }

    fn row_count(&self) -> usize {
        self.rows.len()
    }

    fn row(&self, uuid: Uuid) -> Option<&dyn Columns> {
        self.get(uuid).map(|row| row as &dyn Columns)
    }

    fn adapt(&mut self, schema: &TableSchema) -> Result<Vec<&'static str>, &'static str> {
        let blank = T::default();
        let mut present = Vec::with_capacity(T::COLUMNS.len());
        // The schema decides whether a column is single, not the field: a set field can hold a
        // single column.
        for (index, column) in T::COLUMNS.iter().enumerate() {
            if let Some(found) = schema.columns.get(*column) {
                if !blank.field(index).fits(&found.ty) {
                    return Err(column);
                }
                self.whole[index] = found.ty.is_single();
                present.push(*column);
            }
        }
        Ok(present)
    }

    fn put(
        &mut self,
        uuid: Uuid,
        cells: &mut Vec<Cell>,
        changes: &mut Changes,
    ) -> Result<(), String> {
        let mut row = Box::<T>::default();
        for (column, value) in cells.drain(..) {
            row.field_mut(column)
                .set(value)
                .map_err(|error| format!("{}: {error}", T::COLUMNS[column]))?;
        }
        // Nothing is changed before all values are known to be valid. During a full load, an equal
        // row from before it is no change.
        let Some(old) = self.rows.remove(&uuid).or_else(|| self.before.remove(&uuid)) else {
            self.rows.insert(uuid, row);
            changes.0.push(Self::change(uuid, ChangeKind::Insert, None));
            return Ok(());
        };
        if old != row {
            let difference = |(index, column): (usize, &&'static str)| {
                let (before, now) = (old.field(index).datum(), row.field(index).datum());
                (before != now).then(|| (*column, before.difference(now)))
            };
            let differences: Vec<_> =
                T::COLUMNS.iter().enumerate().filter_map(difference).collect();
            let columns = differences.iter().map(|(column, _)| *column).collect();
            let old = self.keep_old.then_some(old);
            changes.0.push(Change {
                columns,
                differences,
                ..Self::change(uuid, ChangeKind::Modify, old)
            });
        }
        self.rows.insert(uuid, row);
        Ok(())
    }

    fn modify(
        &mut self,
        uuid: Uuid,
        cells: &mut Vec<Cell>,
        changes: &mut Changes,
    ) -> Result<(), String> {
        let row = match self.rows.get_mut(&uuid) {
            Some(row) => row,
            // A row from before the monitor: its other columns are unknown.
            None if self.initial == InitialRows::LeftOut => {
                cells.clear();
                return Ok(());
            }
            None => return Err("a change to a row that is not there".to_owned()),
        };
        let old = self.keep_old.then(|| row.clone());
        let columns = cells.iter().map(|(column, _)| T::COLUMNS[*column]).collect();
        let mut differences = Vec::with_capacity(cells.len());
        let taken = cells.drain(..).try_for_each(|(column, value)| {
            let field = row.field_mut(column);
            let difference = if self.whole[column] {
                let before = field.datum();
                field.set(value).map(|()| before.difference(field.datum()))
            } else {
                field.apply(value.clone()).map(|()| value)
            };
            differences.push((
                T::COLUMNS[column],
                difference.map_err(|error| format!("{}: {error}", T::COLUMNS[column]))?,
            ));
            Ok(())
        });
        // Also after an error: the columns before it have changed, and no later change reports
        // them.
        changes.0.push(Change {
            columns,
            differences,
            ..Self::change(uuid, ChangeKind::Modify, old)
        });
        taken
    }

    fn remove(&mut self, uuid: Uuid, changes: &mut Changes) {
        if let Some(old) = self.rows.remove(&uuid) {
            changes.0.push(Self::change(uuid, ChangeKind::Delete, Some(old)));
        }
    }

    fn begin_replacement(&mut self) {
        self.before = std::mem::take(&mut self.rows);
    }

    fn finish_replacement(&mut self, changes: &mut Changes) {
        for (uuid, old) in std::mem::take(&mut self.before) {
            changes.0.push(Self::change(uuid, ChangeKind::Delete, Some(old)));
        }
    }

    fn abandon_replacement(&mut self) {
        self.rows.extend(std::mem::take(&mut self.before));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
