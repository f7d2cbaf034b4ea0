//! The tables and columns of a database (RFC 7047 §3.2). Tells which of them an older server lacks
//! before they are used.

mod column;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use column::{ColumnSchema, ColumnType, RefType};

/// The answer to `get_schema` (RFC 7047 §4.1.2).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Schema {
    /// The database's name.
    pub name: String,
    /// The schema's version, `x.y.z`; ovsdb-server(7) allows it to be absent.
    #[serde(default)]
    pub version: Option<String>,
    /// The tables by name.
    pub tables: BTreeMap<String, TableSchema>,
}

/// One table of a [`Schema`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableSchema {
    /// The columns by name, without `_uuid` and `_version`, which every table has.
    pub columns: BTreeMap<String, ColumnSchema>,
    /// The maximum number of rows; `None` is unlimited.
    #[serde(default)]
    pub max_rows: Option<u64>,
    /// Whether a row stays when no other row refers to it. Rows of other tables are
    /// garbage-collected.
    #[serde(default)]
    pub is_root: bool,
    /// Lists of columns; the values of the columns of a list are unique together among the rows.
    #[serde(default)]
    pub indexes: Vec<Vec<String>>,
}

impl Schema {
    /// One table, if the database has it.
    pub fn table(&self, table: &str) -> Option<&TableSchema> {
        self.tables.get(table)
    }

    /// Whether the database has the table.
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// One column, if the table has it. `None` for `_uuid` and `_version`, which no schema
    /// declares.
    pub fn column(&self, table: &str, column: &str) -> Option<&ColumnSchema> {
        self.table(table)?.columns.get(column)
    }

    /// Whether the column can be read. True for the implicit columns `_uuid` and `_version` of each
    /// table.
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.table(table).is_some_and(|schema| {
            matches!(column, "_uuid" | "_version") || schema.columns.contains_key(column)
        })
    }

    /// Whether the column is there and is not limited to other words than this one.
    pub fn takes(&self, table: &str, column: &str, word: &str) -> bool {
        let column = self.table(table).and_then(|schema| schema.columns.get(column));
        column.is_some_and(|column| {
            column.ty.words.as_ref().is_none_or(|words| words.iter().any(|it| it == word))
        })
    }
}

#[cfg(test)]
mod tests;
