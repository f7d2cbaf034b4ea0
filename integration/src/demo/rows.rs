//! Rows of OVSDB as `ovs-vsctl --format=json` and `ovn-nbctl --format=json` print them (RFC 7047, 5.1). Pure.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// The output of one `list` command.
#[derive(Debug, Deserialize)]
pub(crate) struct Table {
    headings: Vec<String>,
    data: Vec<Vec<Value>>,
}

/// One row of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'table> {
    headings: &'table [String],
    cells: &'table [Value],
}

impl Table {
    /// Parses the output of a command line with `N` commands, which is one JSON document after the other.
    pub(crate) fn parse<const N: usize>(json: &str) -> Result<[Self; N]> {
        let tables = serde_json::Deserializer::from_str(json)
            .into_iter()
            .collect::<Result<Vec<Self>, _>>()
            .context("tables of rows")?;
        let count = tables.len();
        tables.try_into().ok().with_context(|| format!("{count} tables instead of {N}"))
    }

    pub(crate) fn rows(&self) -> Result<Vec<Row<'_>>> {
        ensure!(
            self.data.iter().all(|cells| cells.len() == self.headings.len()),
            "rows and headings do not agree: {self:?}"
        );
        Ok(self.data.iter().map(|cells| Row { headings: &self.headings, cells }).collect())
    }
}

impl Row<'_> {
    fn cell(&self, column: &str) -> Result<&Value> {
        let position = self.headings.iter().position(|heading| heading == column);
        Ok(&self.cells[position.with_context(|| format!("no column {column}"))?])
    }

    /// The value of a column with at most one value; empty if there is none.
    pub(crate) fn text(&self, column: &str) -> Result<String> {
        Ok(self.texts(column)?.into_iter().next().unwrap_or_default())
    }

    /// The values of a column with any number of values.
    pub(crate) fn texts(&self, column: &str) -> Result<Vec<String>> {
        let cell = self.cell(column)?;
        Ok(match (cell[0].as_str(), &cell[1]) {
            (Some("set"), Value::Array(members)) => members.iter().map(atom).collect(),
            _ => vec![atom(cell)],
        })
    }

    /// The value of `key` in a column with a map; empty if the key is missing.
    pub(crate) fn value_of(&self, column: &str, key: &str) -> Result<String> {
        let pairs =
            self.cell(column)?[1].as_array().with_context(|| format!("column {column} holds no pairs"))?;
        Ok(pairs.iter().find(|pair| pair[0] == key).map(|pair| atom(&pair[1])).unwrap_or_default())
    }
}

fn atom(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // A reference: ["uuid", "…"].
        Value::Array(pair) => pair.get(1).map(atom).unwrap_or_default(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_cell_is_read() {
        let text = r#"{"headings":["name","ofport","ports","options"],"data":[
            ["a",2,["set",[["uuid","1-2"],["uuid","3-4"]]],["map",[["remote_ip","172.30.0.12"]]]],
            ["b",["set",[]],["uuid","5-6"],["map",[]]]]}
            {"headings":[],"data":[]}"#;
        let [table, empty] = Table::parse(text).unwrap();
        assert!(empty.rows().unwrap().is_empty());
        let rows = table.rows().unwrap();
        assert_eq!(
            (rows[0].text("name").unwrap(), rows[0].text("ofport").unwrap()),
            ("a".to_owned(), "2".to_owned())
        );
        assert_eq!(rows[0].texts("ports").unwrap(), ["1-2", "3-4"]);
        assert_eq!(rows[0].value_of("options", "remote_ip").unwrap(), "172.30.0.12");
        assert_eq!(
            (rows[1].text("ofport").unwrap(), rows[1].texts("ports").unwrap()),
            (String::new(), vec!["5-6".to_owned()])
        );
        assert!(rows[1].text("tag").is_err());
    }

    #[test]
    fn a_missing_table_is_an_error() {
        assert!(Table::parse::<2>(r#"{"headings":[],"data":[]}"#).is_err());
    }
}
