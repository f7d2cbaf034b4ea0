//! Fits desired rows to the schema of the database: tables and columns that an older one lacks are
//! left out.

use ovsdb::Schema;

use crate::rows::{DesiredRow, RowName, RowSet, Value};

/// The rows without what the schema lacks.
pub(crate) fn fit(rows: RowSet, schema: &Schema) -> RowSet {
    rows.into_iter()
        .filter(|row| schema.has_table(row.id.table.name()))
        .map(|row| fit_row(row, schema))
        .collect()
}

fn fit_row(
    DesiredRow { id, mut columns, mut member_of, mut or_member_of, mut or_columns, mut needs }: DesiredRow,
    schema: &Schema,
) -> DesiredRow {
    let table = id.table.name();
    columns.retain(|(column, _)| schema.has_column(table, column));
    or_columns.retain(|(column, _)| schema.has_column(table, column));
    for (_, value) in &mut columns {
        match value {
            Value::References(rows) | Value::Including(rows) => {
                // A row of a table that is left out will never exist.
                rows.retain(|row: &RowName| schema.has_table(row.table.name()))
            }
            Value::Parts { table, rows } => {
                let has = |column: &str| schema.has_column(table.name(), column);
                rows.iter_mut().for_each(|columns| columns.retain(|(column, _)| has(column)));
            }
            Value::Datum(_)
            | Value::Match(_)
            | Value::Pairs(_)
            | Value::Elements(_)
            | Value::Entries(_)
            | Value::Lists(_) => {}
        }
    }
    for sets in [&mut member_of, &mut or_member_of] {
        sets.retain(|set| schema.has_column(set.of.table.name(), set.column));
    }
    needs.retain(|row| schema.has_table(row.table.name()));
    DesiredRow { id, columns, member_of, or_member_of, or_columns, needs }
}

#[cfg(test)]
mod tests {
    use ovsdb::Datum;

    use super::*;
    use crate::rows::{Membership, Pairs, Table};

    #[test]
    fn what_an_older_database_lacks_is_left_out_and_nothing_else() {
        let string = serde_json::json!({"type": "string"});
        let tables = serde_json::json!({
            "Logical_Switch": {"columns": {"name": string, "ports": string}},
            "Logical_Switch_Port": {"columns": {"name": string, "options": string}},
            "Meter": {"columns": {"bands": string}},
            "Meter_Band": {"columns": {"rate": string}},
        });
        let schema: Schema =
            serde_json::from_value(serde_json::json!({"name": "OVN_Northbound", "tables": tables}))
                .unwrap();
        let (switch, group) = (Table::LogicalSwitch.row("n"), Table::PortGroup.row("g"));
        let member = |of: &RowName, column| Membership::of(of.clone(), column);
        let options = ("options", Value::pairs(Pairs::default()));
        let references = |rows: Vec<RowName>| ("ports", Value::References(rows));
        let band = |columns: Vec<(&'static str, Datum)>| {
            ("bands", Value::Parts { table: Table::MeterBand, rows: vec![columns] })
        };
        let row = |id: RowName, columns, member_of| DesiredRow {
            id,
            columns,
            member_of,
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        };
        let port = Table::LogicalSwitchPort.row("p");

        let fitted = fit(
            vec![
                row(
                    port.clone(),
                    vec![options.clone(), ("enabled", Value::Datum(true.into()))],
                    vec![member(&switch, "ports"), member(&group, "ports")],
                ),
                row(switch.clone(), vec![references(vec![port.clone(), group.clone()])], vec![]),
                row(
                    Table::Meter.row("m"),
                    vec![band(vec![("rate", 1.into()), ("burst_size", 2.into())])],
                    vec![],
                ),
                row(group.clone(), vec![], vec![]),
            ],
            &schema,
        );
        let expected = vec![
            row(port.clone(), vec![options], vec![member(&switch, "ports")]),
            row(switch.clone(), vec![references(vec![port])], vec![]),
            row(Table::Meter.row("m"), vec![band(vec![("rate", 1.into())])], vec![]),
        ];
        assert_eq!(fitted, expected);

        let acl = DesiredRow {
            needs: vec![switch.clone(), group],
            ..row(switch.clone(), vec![], vec![])
        };
        let [DesiredRow { needs, .. }] = &fit(vec![acl], &schema)[..] else { panic!("one row") };
        assert_eq!(*needs, [switch], "what never exists is not waited for");
    }
}
