//! The numbers of rows and of values in each table of a database, and how they grow with the number
//! of nodes. Must not know what they mean.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context as _, Result};
use integration::{
    central::{Central, NORTHBOUND},
    command,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::scale::site::Northd;

/// Rows, and the values in all their columns: the elements of sets and maps, each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) rows: usize,
    pub(crate) values: usize,
}

/// Every table with rows, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables(BTreeMap<String, Count>);

/// A table that has more rows, or larger ones, with more nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Growth {
    pub(crate) table: String,
    /// Without nodes, with half of them, and with all.
    pub(crate) counts: [Count; 3],
}

/// A table as `ovsdb-client` prints it.
#[derive(Deserialize)]
struct Dumped {
    caption: String,
    headings: Vec<String>,
    data: Vec<Vec<Value>>,
}

impl Tables {
    /// Those of the database at this address, now; with ovn-northd, after it has caught up.
    pub(crate) fn of(central: &Central, address: &str, northd: Northd) -> Result<Self> {
        if northd == Northd::On {
            central.nbctl(["--wait=sb", "sync"])?;
        }
        let name = if address == NORTHBOUND { "OVN_Northbound" } else { "OVN_Southbound" };
        let dump = ["--timeout=120", "--format=json", "dump", address, name];
        let text = command::output(Command::new("ovsdb-client").args(dump))?;
        Self::read(&text).with_context(|| format!("dump of {name}"))
    }

    fn read(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty());
        let tables = lines.map(|line| {
            let Dumped { caption, headings, data } = serde_json::from_str(line)?;
            let own = |(heading, _): &(&String, &Value)| *heading != "_uuid";
            let values = data.iter().flat_map(|row| headings.iter().zip(row).filter(own));
            let values = values.map(|(_, value)| size(value)).sum();
            Ok((caption.trim_end_matches(" table").to_owned(), Count { rows: data.len(), values }))
        });
        tables
            .filter(|table| !table.as_ref().is_ok_and(|(_, count)| count.rows == 0))
            .collect::<Result<_>>()
            .map(Self)
    }

    /// All of them together.
    pub(crate) fn total(&self) -> Count {
        sum(self.0.values())
    }

    fn get(&self, table: &str) -> Count {
        self.0.get(table).copied().unwrap_or_default()
    }
}

/// The number of values in a column (RFC 7047, section 5.1).
fn size(value: &Value) -> usize {
    match value.as_array().map(Vec::as_slice) {
        Some([kind, elements]) if kind == "set" || kind == "map" => {
            elements.as_array().map_or(1, Vec::len)
        }
        _ => 1,
    }
}

fn sum<'a>(counts: impl Iterator<Item = &'a Count>) -> Count {
    counts.fold(Count::default(), |sum, Count { rows, values }| Count {
        rows: sum.rows + rows,
        values: sum.values + values,
    })
}

impl Growth {
    /// The tables that differ between these three.
    pub(crate) fn of(nothing: &Tables, half: &Tables, all: &Tables) -> Vec<Self> {
        let tables = all.0.keys().map(|table| Self {
            table: table.clone(),
            counts: [nothing, half, all].map(|tables| tables.get(table)),
        });
        tables.filter(|growth| growth.counts[0] != growth.counts[2]).collect()
    }

    /// The same where nothing is known of the beginning.
    pub(crate) fn of_half(half: &Tables, all: &Tables) -> Vec<Self> {
        let mut growth = Self::of(&Tables::default(), half, all);
        growth.retain(|growth| growth.counts[1] != growth.counts[2]);
        growth
    }

    /// The tables that are not the same: `table: rows (values) and rows (values)`.
    pub(crate) fn differences(one: &Tables, other: &Tables) -> Vec<String> {
        let tables = one.0.keys().chain(other.0.keys().filter(|table| !one.0.contains_key(*table)));
        let different = tables.map(|table| (table, one.get(table), other.get(table)));
        different
            .filter(|(_, one, other)| one != other)
            .map(|(table, one, other)| {
                format!(
                    "{table}: {} ({}) and {} ({})",
                    one.rows, one.values, other.rows, other.values
                )
            })
            .collect()
    }

    /// What the first half of the nodes added, and what the second half did.
    pub(crate) fn added(&self) -> [Count; 2] {
        let [nothing, half, all] = self.counts;
        [(nothing, half), (half, all)].map(|(before, after)| Count {
            rows: after.rows.saturating_sub(before.rows),
            values: after.values.saturating_sub(before.values),
        })
    }

    /// The same for several tables together.
    pub(crate) fn added_in_all(tables: &[Self]) -> [Count; 2] {
        let added: Vec<[Count; 2]> = tables.iter().map(Self::added).collect();
        [0, 1].map(|half: usize| sum(added.iter().map(|added| &added[half])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_elements_of_sets_and_maps_are_values() {
        let text = r#"{"headings":["_uuid","name","ports","ids"],"data":[[["uuid","x"],"a",["set",[1,2,3]],["map",[["k","v"]]]],[["uuid","y"],"b",["set",[]],["uuid","z"]]],"caption":"Logical_Switch table"}

{"headings":["_uuid"],"data":[],"caption":"ACL table"}"#;
        let Tables(tables) = Tables::read(text).unwrap();
        assert_eq!(
            tables.into_iter().collect::<Vec<_>>(),
            [("Logical_Switch".to_owned(), Count { rows: 2, values: 5 + 2 })]
        );
    }

    #[test]
    fn rows_that_each_node_has_for_each_other_are_not_constant() {
        let tables = |nodes: usize, per_pair: usize| {
            let rows = 3 + 2 * nodes + per_pair * nodes * nodes;
            Tables([("NAT".to_owned(), Count { rows, values: 4 * rows })].into())
        };
        let added = |per_pair| {
            Growth::added_in_all(&Growth::of(
                &tables(0, per_pair),
                &tables(10, per_pair),
                &tables(20, per_pair),
            ))
        };
        let [first, second] = added(0);
        assert_eq!((first, second), (Count { rows: 20, values: 80 }, first));
        let [first, second] = added(1);
        assert!(second.rows > 2 * first.rows, "{first:?} {second:?}");
    }

    #[test]
    fn what_stays_behind_is_named() {
        let tables = |rows| Tables([("NAT".to_owned(), Count { rows, values: rows })].into());
        assert_eq!(Growth::differences(&tables(2), &tables(3)), ["NAT: 2 (2) and 3 (3)"]);
        assert!(Growth::differences(&tables(2), &tables(2)).is_empty());
    }
}
