//! What of the desired rows a database can hold: an older one lacks columns and tables, which are left out.

use ovsdb::Schema;

use crate::rows::{DesiredRow, RowName, RowSet, Value};

/// The rows without what the schema lacks.
pub(crate) fn fit(rows: RowSet, schema: &Schema) -> RowSet {
    rows.into_iter().filter(|row| schema.has_table(row.id.table.name())).map(|row| fit_row(row, schema)).collect()
}

fn fit_row(DesiredRow { id, mut columns, mut member_of }: DesiredRow, schema: &Schema) -> DesiredRow {
    let table = id.table.name();
    columns.retain(|(column, _)| schema.has_column(table, column));
    for (_, value) in &mut columns {
        match value {
            Value::References(rows) | Value::Including(rows) => rows.retain(|row: &RowName| schema.has_table(row.table.name())),
            Value::Parts { table, rows } => {
                let has = |column: &str| schema.has_column(table.name(), column);
                rows.iter_mut().for_each(|columns| columns.retain(|(column, _)| has(column)));
            }
            Value::Datum(_) | Value::Pairs(_) => {}
        }
    }
    member_of.retain(|set| schema.has_column(set.of.table.name(), set.column));
    DesiredRow { id, columns, member_of }
}
