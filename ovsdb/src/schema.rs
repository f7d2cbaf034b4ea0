//! What tables and columns a database has (RFC 7047 §3.2), so that one that an older server lacks is known before it is used.

mod column;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use column::{ColumnSchema, ColumnType, RefType};

/// The answer to `get_schema` (RFC 7047 §4.1.2).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Schema {
    /// Of the database.
    pub name: String,
    /// `x.y.z`; ovsdb-server(7) allows it to be absent.
    #[serde(default)]
    pub version: Option<String>,
    /// By name.
    pub tables: BTreeMap<String, TableSchema>,
}

/// One table of a [`Schema`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableSchema {
    /// Without `_uuid` and `_version`, which every table has.
    pub columns: BTreeMap<String, ColumnSchema>,
    /// The most rows that the table may have.
    #[serde(default)]
    pub max_rows: Option<u64>,
    /// Whether a row stays without being referred to.
    #[serde(default)]
    pub is_root: bool,
    /// Each a list of columns whose values together are unique among the rows.
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

    /// `None` also for `_uuid` and `_version`, which no schema declares.
    pub fn column(&self, table: &str, column: &str) -> Option<&ColumnSchema> {
        self.table(table)?.columns.get(column)
    }

    /// Whether the column can be read; the implicit columns `_uuid` and `_version` of each table can.
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.table(table).is_some_and(|schema| matches!(column, "_uuid" | "_version") || schema.columns.contains_key(column))
    }
}

#[cfg(test)]
mod tests;
