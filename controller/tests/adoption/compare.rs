//! Compares our rows with upstream's, row by row and column by column. Knows no table: our rows say
//! what has to be equal.

use std::collections::{BTreeMap, BTreeSet};

use controller::{
    kinds::desired,
    rows::{DesiredRow, Pairs, RowName, Value},
    world::Store,
};
use ovsdb::{Atom, Datum};

use crate::fixture::{Columns, Fixture};

/// The result.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// What our controller would write, one line each.
    pub(crate) differences: Vec<String>,
    /// What upstream wrote and our controller never touches: `TABLE NAME` for rows, `TABLE.COLUMN`
    /// or `TABLE.COLUMN:KEY` in our rows.
    pub(crate) others: BTreeSet<String>,
}

impl Comparison {
    pub(crate) fn of(fixture: &Fixture, store: &Store) -> Self {
        let ours: Vec<DesiredRow> = store.keys().flat_map(|key| desired(store, &key)).collect();
        let theirs = Theirs::new(fixture);
        let mut comparison = Self::default();
        for row in &ours {
            comparison.row(row, &theirs);
        }
        comparison.memberships(&ours, &theirs);
        comparison.rest(fixture, &ours, &theirs);
        comparison
    }

    fn row(&mut self, ours: &DesiredRow, theirs: &Theirs<'_>) {
        let label = theirs.label(&ours.id);
        let Some(columns) = theirs.columns(&ours.id) else {
            self.differences.push(format!("{label}: upstream has no such row"));
            return;
        };
        for (column, value) in &ours.columns {
            if let Err(why) = self.value(&ours.id, column, value, columns.get(*column), theirs) {
                self.differences.push(format!("{label}: {column}: {why}"));
            }
        }
        // Sets of references are compared in `memberships`.
        let named = |column: &str| {
            ["name", "chassis"].contains(&column)
                || ours.columns.iter().any(|(ours, _)| *ours == column)
        };
        let unnamed =
            columns.iter().filter(|(column, value)| !named(column) && references(value).is_empty());
        self.others.extend(unnamed.map(|(column, _)| format!("{}.{column}", ours.id.table.name())));
    }

    fn value(
        &mut self,
        id: &RowName,
        column: &str,
        ours: &Value,
        value: Option<&Datum>,
        theirs: &Theirs<'_>,
    ) -> Result<(), String> {
        match ours {
            Value::Datum(ours) => same(ours, value),
            Value::Match(ours) => same(&ours.as_str().into(), value),
            Value::Pairs(wanted) => {
                let Pairs { with, without, alike: _, initially: _ } = &**wanted;
                let pairs: BTreeMap<&str, &str> = value.map(pairs).unwrap_or_default();
                for (key, ours) in with {
                    if !pairs.get(key).is_some_and(|theirs| wanted.accepts(key, theirs)) {
                        return Err(format!(
                            "{key}: ours is {ours:?}, upstream's {:?}",
                            pairs.get(key)
                        ));
                    }
                }
                for key in pairs.into_keys().filter(|key| !with.contains_key(key)) {
                    if without.contains(&key) {
                        return Err(format!("{key}: we remove it"));
                    }
                    self.others.insert(format!("{}.{column}:{key}", id.table.name()));
                }
                Ok(())
            }
            Value::Elements(texts) => same(&Datum::set(texts.iter().map(|text| &**text)), value),
            Value::Entries(pairs) => {
                same(&Datum::map(pairs.iter().map(|(key, value)| (&**key, value.as_str()))), value)
            }
            // Lists have no order.
            Value::Lists(lists) => {
                let sorted = |list: &str| {
                    let mut elements: Vec<&str> = list.split(',').collect();
                    elements.sort_unstable();
                    elements.join(",")
                };
                let theirs = value.map(pairs).unwrap_or_default();
                let theirs = Datum::map(theirs.iter().map(|(key, list)| (*key, sorted(list))));
                same(
                    &Datum::map(lists.iter().map(|(key, list)| (&**key, sorted(list)))),
                    Some(&theirs),
                )
            }
            Value::References(rows) => {
                let ours: BTreeSet<_> = rows.iter().map(|row| theirs.reference(row)).collect();
                let value: BTreeSet<_> =
                    value.map(references).unwrap_or_default().into_iter().map(Some).collect();
                if ours == value {
                    Ok(())
                } else {
                    Err(format!("ours refers to {ours:?}, upstream's to {value:?}"))
                }
            }
            Value::Including(rows) => {
                let value = value.map(references).unwrap_or_default();
                let missing: Vec<_> = rows
                    .iter()
                    .filter(|row| theirs.reference(row).is_none_or(|name| !value.contains(name)))
                    .collect();
                if missing.is_empty() {
                    Ok(())
                } else {
                    Err(format!("upstream's does not refer to {missing:?}"))
                }
            }
            Value::Parts { table, rows } => {
                let all = &theirs.fixture.rows[table.name()];
                let parts: Vec<&Columns> = value
                    .map(references)
                    .unwrap_or_default()
                    .into_iter()
                    .map(|name| &all[name])
                    .collect();
                let equal = |ours: &[(&str, Datum)], part: &Columns| {
                    ours.iter().all(|(column, ours)| same(ours, part.get(*column)).is_ok())
                };
                let matched = rows.len() == parts.len()
                    && rows.iter().all(|ours| parts.iter().any(|part| equal(ours, part)));
                if matched {
                    Ok(())
                } else {
                    Err(format!("ours is {rows:?}, upstream's {parts:?}"))
                }
            }
        }
    }

    /// Our rows are in the sets that upstream put them into, and in no others.
    fn memberships(&mut self, ours: &[DesiredRow], theirs: &Theirs<'_>) {
        for row in ours {
            let Some(name) = theirs.reference(&row.id) else { continue };
            let mut wanted: BTreeSet<(&str, &str)> = BTreeSet::new();
            // Of two equivalent lists of sets, the one that upstream has.
            let sets = if row.or_member_of.is_empty() { &row.member_of } else { &row.or_member_of };
            for membership in sets {
                match theirs.reference(&membership.of) {
                    Some(parent) => drop(wanted.insert((parent, membership.column))),
                    None => self.differences.push(format!(
                        "{}: upstream has no {}",
                        theirs.label(&row.id),
                        theirs.label(&membership.of)
                    )),
                }
            }
            let names_it = |value: &Value| match value {
                Value::References(rows) | Value::Including(rows) => rows.contains(&row.id),
                Value::Datum(_)
                | Value::Match(_)
                | Value::Pairs(_)
                | Value::Elements(_)
                | Value::Entries(_)
                | Value::Lists(_)
                | Value::Parts { .. } => false,
            };
            for parent in ours {
                let columns = parent.columns.iter().filter(|(_, value)| names_it(value));
                wanted.extend(
                    columns
                        .filter_map(|(column, _)| Some((theirs.reference(&parent.id)?, *column))),
                );
            }
            let own: BTreeSet<&str> =
                ours.iter().filter_map(|row| theirs.reference(&row.id)).collect();
            let found: BTreeSet<(&str, &str)> =
                theirs.holders(name).filter(|(parent, _)| own.contains(parent)).collect();
            if found != wanted {
                self.differences.push(format!(
                    "{}: ours is held by {wanted:?}, upstream's by {found:?}",
                    theirs.label(&row.id)
                ));
            }
        }
    }

    /// Rows that are not ours.
    fn rest(&mut self, fixture: &Fixture, ours: &[DesiredRow], theirs: &Theirs<'_>) {
        let own: BTreeSet<&str> = ours.iter().filter_map(|row| theirs.reference(&row.id)).collect();
        let parts: BTreeSet<&str> = ours
            .iter()
            .flat_map(|row| {
                row.columns
                    .iter()
                    .filter(|(_, value)| matches!(value, Value::Parts { .. }))
                    .map(|(column, _)| (&row.id, *column))
            })
            .flat_map(|(id, column)| {
                theirs
                    .columns(id)
                    .and_then(|columns| columns.get(column))
                    .map(references)
                    .unwrap_or_default()
            })
            .collect();
        let all = fixture
            .rows
            .iter()
            .flat_map(|(table, rows)| rows.keys().map(move |name| (table, name)));
        let rest =
            all.filter(|(_, name)| !own.contains(name.as_str()) && !parts.contains(name.as_str()));
        self.others.extend(rest.map(|(table, name)| {
            format!("{table} {}", name.strip_prefix(&format!("{table}_")).unwrap_or(name))
        }));
    }
}

/// Upstream's rows, by the names or ids that identify rows.
struct Theirs<'a> {
    fixture: &'a Fixture,
    /// Table and name, to the name that references use.
    named: BTreeMap<(&'a str, String), &'a str>,
}

impl<'a> Theirs<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        let mut named = BTreeMap::new();
        for (table, rows) in &fixture.rows {
            for (reference, columns) in rows {
                let name = match table.as_str() {
                    // An ACL's name is only for log lines; its id identifies it.
                    "ACL" | "QoS" => columns.get("external_ids").and_then(|ids| {
                        pairs(ids).get(contract::ovn::ID).map(|id| (*id).to_owned())
                    }),
                    _ if content_of(table).is_some() => {
                        Some(identity(fixture, table, reference, columns))
                    }
                    "Chassis_Template_Var" => columns
                        .get("chassis")
                        .and_then(|name| Some(name.scalar()?.as_str()?.to_owned())),
                    _ => columns
                        .get("name")
                        .and_then(|name| Some(name.scalar()?.as_str()?.to_owned())),
                };
                if let Some(name) = name {
                    let before = named.insert((table.as_str(), name.clone()), reference.as_str());
                    assert_eq!(before, None, "two rows {name:?} in {table} of {}", fixture.name);
                }
            }
        }
        Self { fixture, named }
    }

    fn reference(&self, row: &RowName) -> Option<&'a str> {
        let holder = row.within.as_ref().map(|holder| format!("{holder}:")).unwrap_or_default();
        self.named.get(&(row.table.name(), format!("{holder}{}", row.name))).copied()
    }

    fn columns(&self, row: &RowName) -> Option<&'a Columns> {
        self.fixture.rows.get(row.table.name())?.get(self.reference(row)?)
    }

    /// The sets that hold a row.
    fn holders(&self, reference: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let rows = self.fixture.rows.values().flatten();
        let columns = rows.flat_map(|(parent, columns)| {
            columns.iter().map(move |(column, value)| (parent.as_str(), column.as_str(), value))
        });
        columns
            .filter(move |(.., value)| references(value).contains(reference))
            .map(|(parent, column, _)| (parent, column))
    }

    fn label(&self, row: &RowName) -> String {
        format!("{} {}", row.table.name(), row.name)
    }
}

/// The columns that identify a row, in tables whose rows have neither names nor ids.
fn content_of(table: &str) -> Option<&'static [&'static str]> {
    match table {
        "Logical_Router_Static_Route" => {
            Some(&["route_table", "ip_prefix", "nexthop", "output_port", "policy"])
        }
        "Logical_Router_Policy" => Some(&["priority", "match"]),
        "NAT" => Some(&["type", "external_ip", "logical_ip", "logical_port"]),
        "Static_MAC_Binding" => Some(&["logical_port", "ip"]),
        _ => None,
    }
}

/// Those columns, with the name of the router that holds the row, if one does.
fn identity(fixture: &Fixture, table: &str, reference: &str, columns: &Columns) -> String {
    let text = |column: &&str| Some(format!(" {column}={}", columns.get(*column)?.scalar()?));
    let content: String = content_of(table).into_iter().flatten().filter_map(text).collect();
    let holds =
        |router: &&Columns| router.values().any(|value| references(value).contains(reference));
    let routers = fixture.rows.get("Logical_Router").into_iter().flat_map(BTreeMap::values);
    let holder = routers.filter(holds).find_map(|router| router.get("name")?.scalar()?.as_str());
    holder.map_or_else(|| content.clone(), |holder| format!("{holder}:{content}"))
}

/// Whether a column holds our value; none stands for the column's default.
fn same(ours: &Datum, theirs: Option<&Datum>) -> Result<(), String> {
    let default = |atom: &Atom| match atom {
        Atom::Integer(number) => *number == 0,
        Atom::Boolean(truth) => !truth,
        Atom::String(text) => text.is_empty(),
        Atom::Real(_) | Atom::Uuid(_) | Atom::NamedUuid(_) => false,
    };
    let equal = match theirs {
        Some(theirs) => sorted(ours) == sorted(theirs),
        None => ours.pairs().is_empty() && ours.atoms().iter().all(default),
    };
    if equal { Ok(()) } else { Err(format!("ours is {ours:?}, upstream's {theirs:?}")) }
}

fn sorted(datum: &Datum) -> Vec<String> {
    let mut elements: Vec<String> = match datum {
        Datum::Set(atoms) => atoms.iter().map(|atom| format!("{atom:?}")).collect(),
        Datum::Map(pairs) => pairs.iter().map(|pair| format!("{pair:?}")).collect(),
    };
    elements.sort();
    elements
}

fn pairs(datum: &Datum) -> BTreeMap<&str, &str> {
    datum.pairs().iter().filter_map(|(key, value)| Some((key.as_str()?, value.as_str()?))).collect()
}

/// The names of the rows that a value refers to.
fn references(datum: &Datum) -> BTreeSet<&str> {
    fn name(atom: &Atom) -> Option<&str> {
        if let Atom::NamedUuid(name) = atom { Some(name) } else { None }
    }
    datum.atoms().iter().filter_map(name).collect()
}
