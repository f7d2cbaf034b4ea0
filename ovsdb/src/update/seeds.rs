//! One serde seed for each level: answer or notification, tables, rows, row, columns.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::Form;
use crate::{
    replica::{Cell, Changes, Replica, Rows},
    value::{Datum, Uuid},
};

/// The result of a monitor request.
pub(super) struct MonitorAnswer<'a> {
    pub(super) replica: &'a mut Replica,
    pub(super) form: Form,
    pub(super) changes: &'a mut Changes,
}

impl<'de> DeserializeSeed<'de> for MonitorAnswer<'_> {
    type Value = Option<Uuid>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Uuid>, D::Error> {
        match self.form {
            Form::Since => deserializer.deserialize_seq(self),
            // These answers carry all rows; only `monitor_cond_since` can carry the differences.
            Form::Rfc | Form::Conditional => {
                self.replica.begin_replacement();
                deserializer
                    .deserialize_map(Tables { replica: self.replica, changes: self.changes })?;
                Ok(None)
            }
        }
    }
}

impl<'de> Visitor<'de> for MonitorAnswer<'_> {
    type Value = Option<Uuid>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whether the transaction was found, the last transaction, and table updates")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Uuid>, A::Error> {
        let found: bool = element(seq.next_element()?)?;
        let last: Uuid = element(seq.next_element()?)?;
        // The server does not know the transaction any more: all rows follow, not the differences.
        if !found {
            self.replica.begin_replacement();
        }
        element(seq.next_element_seed(Tables { replica: self.replica, changes: self.changes })?)?;
        Ok(known(last))
    }
}

/// The parameters of `update`, `update2` or `update3`.
pub(super) struct Notification<'a> {
    pub(super) replica: &'a mut Replica,
    pub(super) form: Form,
    pub(super) changes: &'a mut Changes,
}

impl<'de> DeserializeSeed<'de> for Notification<'_> {
    type Value = Option<Uuid>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Uuid>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Notification<'_> {
    type Value = Option<Uuid>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the monitor's id and table updates")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Uuid>, A::Error> {
        let IgnoredAny = element(seq.next_element()?)?;
        let last = match self.form {
            Form::Since => known(element(seq.next_element()?)?),
            Form::Rfc | Form::Conditional => None,
        };
        element(seq.next_element_seed(Tables { replica: self.replica, changes: self.changes })?)?;
        Ok(last)
    }
}

fn element<T, E: Error>(element: Option<T>) -> Result<T, E> {
    element.ok_or_else(|| E::custom("an element is missing"))
}

/// A server that does not number its transactions sends a zero UUID (ovsdb-server(7) §4.1.15).
fn known(last: Uuid) -> Option<Uuid> {
    (!last.is_nil()).then_some(last)
}

/// An object of table updates by the name of the table.
struct Tables<'a> {
    replica: &'a mut Replica,
    changes: &'a mut Changes,
}

impl<'de> DeserializeSeed<'de> for Tables<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Tables<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("table updates")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut cells = Vec::new();
        while let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            let Some(table) = self.replica.named(&name) else {
                return Err(A::Error::custom(format_args!("table {name} was not asked for")));
            };
            map.next_value_seed(TableUpdate { table, cells: &mut cells, changes: self.changes })?;
        }
        Ok(())
    }
}

/// An object of row updates by the UUID of the row.
struct TableUpdate<'a> {
    table: &'a mut dyn Rows,
    /// Empty between rows. Kept here so that it is allocated once, not for each row.
    cells: &'a mut Vec<Cell>,
    changes: &'a mut Changes,
}

impl<'de> DeserializeSeed<'de> for TableUpdate<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TableUpdate<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("row updates")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(uuid) = map.next_key::<Uuid>()? {
            self.cells.clear();
            let columns = self.table.columns();
            let done = match map.next_value_seed(RowUpdate { columns, cells: self.cells })? {
                Happened::Put => self.table.put(uuid, self.cells, self.changes),
                Happened::Modify => self.table.modify(uuid, self.cells, self.changes),
                Happened::Delete => {
                    self.table.remove(uuid, self.changes);
                    Ok(())
                }
            };
            done.map_err(|error| {
                A::Error::custom(format_args!("{} {uuid}: {error}", self.table.name()))
            })?;
        }
        Ok(())
    }
}

/// The update of one row. The values go to `cells`.
struct RowUpdate<'a> {
    columns: &'static [&'static str],
    cells: &'a mut Vec<Cell>,
}

enum Happened {
    Put,
    Modify,
    Delete,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum UpdateMember {
    Old,
    New,
    Initial,
    Insert,
    Modify,
    Delete,
}

impl<'de> DeserializeSeed<'de> for RowUpdate<'_> {
    type Value = Happened;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Happened, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowUpdate<'_> {
    type Value = Happened;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row update")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Happened, A::Error> {
        let mut happened = None;
        while let Some(member) = map.next_key()? {
            match member {
                // `old` alone is a deleted row. `old` beside `new` has the old values of a changed
                // row, which the replica knows already. The members come in any order.
                UpdateMember::Old => {
                    map.next_value::<IgnoredAny>()?;
                    happened = happened.or(Some(Happened::Delete));
                }
                UpdateMember::Delete => {
                    map.next_value::<IgnoredAny>()?;
                    happened = Some(Happened::Delete);
                }
                UpdateMember::New | UpdateMember::Initial | UpdateMember::Insert => {
                    map.next_value_seed(ColumnValues { columns: self.columns, cells: self.cells })?;
                    happened = Some(Happened::Put);
                }
                UpdateMember::Modify => {
                    map.next_value_seed(ColumnValues { columns: self.columns, cells: self.cells })?;
                    happened = Some(Happened::Modify);
                }
            }
        }
        happened.ok_or_else(|| A::Error::custom("an empty row update"))
    }
}

/// An object of values by the name of the column.
struct ColumnValues<'a> {
    columns: &'static [&'static str],
    cells: &'a mut Vec<Cell>,
}

impl<'de> DeserializeSeed<'de> for ColumnValues<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ColumnValues<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(column) = map.next_key_seed(ColumnName(self.columns))? {
            match column {
                Some(index) => self.cells.push((index, map.next_value::<Datum>()?)),
                // A column that was not requested has no field.
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A column's index; `None` for a column that was not requested.
struct ColumnName(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for ColumnName {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for ColumnName {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a column")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|column| *column == name))
    }
}
