//! The rows of one table of a replica.

use std::{any::Any, collections::HashMap};

use super::{Change, ChangeKind, Changes};
use crate::{
    schema::TableSchema,
    table::Table,
    value::{Datum, Uuid},
};

/// A received value and the index of its column.
pub(crate) type Cell = (usize, Datum);

/// [`TableRows`] without its type, so that updates are decoded by code that exists once.
pub(crate) trait Rows: Send + Sync {
    fn name(&self) -> &'static str;

    fn columns(&self) -> &'static [&'static str];

    fn row_count(&self) -> usize;

    /// Prepares for values of this schema; the columns that it has, or the first that does not fit its field.
    fn adapt(&mut self, schema: &TableSchema) -> Result<Vec<&'static str>, &'static str>;

    /// A row of which these are all values but defaults; new, or in place of the one before.
    fn put(&mut self, uuid: Uuid, cells: &mut Vec<Cell>, changes: &mut Changes) -> Result<(), String>;

    /// Differences to a row that is there.
    fn modify(&mut self, uuid: Uuid, cells: &mut Vec<Cell>, changes: &mut Changes) -> Result<(), String>;

    fn remove(&mut self, uuid: Uuid, changes: &mut Changes);

    fn begin_replacement(&mut self);

    fn finish_replacement(&mut self, changes: &mut Changes);

    fn abandon_replacement(&mut self);

    fn as_any(&self) -> &dyn Any;
}

pub(crate) struct TableRows<T> {
    rows: HashMap<Uuid, T>,
    /// Rows of before, while all rows are being replaced.
    before: HashMap<Uuid, T>,
    /// By column: whether updates carry the value itself, not a difference.
    whole: Vec<bool>,
    keep_old: bool,
    /// Rows that were there before the monitor are never sent, but changes to them are.
    changes_only: bool,
}

impl<T: Table> TableRows<T> {
    pub(crate) fn new(keep_old: bool, changes_only: bool) -> Self {
        Self { rows: HashMap::new(), before: HashMap::new(), whole: vec![true; T::COLUMNS.len()], keep_old, changes_only }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Uuid, &T)> {
        self.rows.iter().map(|(uuid, row)| (*uuid, row))
    }

    pub(super) fn get(&self, uuid: Uuid) -> Option<&T> {
        self.rows.get(&uuid)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    fn change(uuid: Uuid, kind: ChangeKind, columns: Vec<&'static str>, old: Option<T>) -> Change {
        Change { table: T::NAME, uuid, kind, columns, old: old.map(|row| Box::new(row) as Box<dyn Any + Send + Sync>) }
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

    fn adapt(&mut self, schema: &TableSchema) -> Result<Vec<&'static str>, &'static str> {
        let blank = T::default();
        let mut present = Vec::with_capacity(T::COLUMNS.len());
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

    fn put(&mut self, uuid: Uuid, cells: &mut Vec<Cell>, changes: &mut Changes) -> Result<(), String> {
        let mut row = T::default();
        for (column, value) in cells.drain(..) {
            row.field_mut(column).set(value).map_err(|error| format!("{}: {error}", T::COLUMNS[column]))?;
        }
        let Some(old) = self.rows.remove(&uuid).or_else(|| self.before.remove(&uuid)) else {
            self.rows.insert(uuid, row);
            changes.0.push(Self::change(uuid, ChangeKind::Insert, Vec::new(), None));
            return Ok(());
        };
        if old != row {
            let differs = |index: &usize| old.field(*index).datum() != row.field(*index).datum();
            let columns = (0..T::COLUMNS.len()).filter(differs).map(|index| T::COLUMNS[index]).collect();
            changes.0.push(Self::change(uuid, ChangeKind::Modify, columns, self.keep_old.then_some(old)));
        }
        self.rows.insert(uuid, row);
        Ok(())
    }

    fn modify(&mut self, uuid: Uuid, cells: &mut Vec<Cell>, changes: &mut Changes) -> Result<(), String> {
        let row = match self.rows.get_mut(&uuid) {
            Some(row) => row,
            None if self.changes_only => {
                cells.clear();
                return Ok(());
            }
            None => return Err("a change to a row that is not there".to_owned()),
        };
        let old = self.keep_old.then(|| row.clone());
        let columns = cells.iter().map(|(column, _)| T::COLUMNS[*column]).collect();
        let taken = cells.drain(..).try_for_each(|(column, value)| {
            let field = row.field_mut(column);
            let taken = if self.whole[column] { field.set(value) } else { field.apply(value) };
            taken.map_err(|error| format!("{}: {error}", T::COLUMNS[column]))
        });
        // Also after an error: columns before it have changed, and nobody would learn of them later.
        changes.0.push(Self::change(uuid, ChangeKind::Modify, columns, old));
        taken
    }

    fn remove(&mut self, uuid: Uuid, changes: &mut Changes) {
        if let Some(old) = self.rows.remove(&uuid) {
            changes.0.push(Self::change(uuid, ChangeKind::Delete, Vec::new(), Some(old)));
        }
    }

    fn begin_replacement(&mut self) {
        self.before = std::mem::take(&mut self.rows);
    }

    fn finish_replacement(&mut self, changes: &mut Changes) {
        for (uuid, old) in std::mem::take(&mut self.before) {
            changes.0.push(Self::change(uuid, ChangeKind::Delete, Vec::new(), Some(old)));
        }
    }

    fn abandon_replacement(&mut self) {
        self.rows.extend(std::mem::take(&mut self.before));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
