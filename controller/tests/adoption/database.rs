//! A real ovsdb-server that holds what upstream wrote.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use ovsdb::{Atom, Datum};
use serde_json::{Value, json};
use testkit::{Scratch, program};

use crate::fixture::{Columns, Fixture};

const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const NAME: &str = "nb";

/// A northbound database of this machine's OVN. Columns that its schema lacks are left out, as with
/// an older OVN.
pub(crate) struct Database {
    scratch: Scratch,
    server: testkit::Database,
}

/// All rows, by table and UUID.
#[derive(Debug, PartialEq)]
pub(crate) struct Content(BTreeMap<(String, String), BTreeMap<String, Value>>);

impl Database {
    pub(crate) fn holding(fixture: &Fixture) -> Self {
        let scratch = Scratch::new();
        let server = testkit::Database::of_schema(scratch.path(), NAME, SCHEMA);
        let database = Self { scratch, server };
        database.insert(&fixture.rows);
        database
    }

    pub(crate) fn endpoint(&self) -> &str {
        self.server.endpoint()
    }

    /// Size of the database file in bytes. The server appends each transaction that changes
    /// anything, and nothing else.
    pub(crate) fn written(&self) -> u64 {
        fs::metadata(self.scratch.join(format!("{NAME}.conf"))).unwrap().len()
    }

    pub(crate) fn content(&self) -> Content {
        let text = self.client("dump", &["-f", "json"], "OVN_Northbound");
        let tables = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        Content(tables.flat_map(|table| rows(&table)).collect())
    }

    fn insert(&self, rows: &BTreeMap<String, BTreeMap<String, Columns>>) {
        let known = self.columns();
        let mut transaction = vec![json!("OVN_Northbound")];
        for (table, rows) in rows {
            for (name, columns) in rows {
                let columns = columns.iter().filter(|(column, _)| known[table].contains(*column));
                let row: serde_json::Map<_, _> =
                    columns.map(|(column, value)| (column.clone(), wire(value))).collect();
                transaction
                    .push(json!({"op": "insert", "table": table, "uuid-name": name, "row": row}));
            }
        }
        let answer = self.client("transact", &[], &Value::Array(transaction).to_string());
        assert!(!answer.contains(r#""error""#), "{answer}");
    }

    /// Columns of each table that the server knows.
    fn columns(&self) -> BTreeMap<String, BTreeSet<String>> {
        let schema: Value =
            serde_json::from_str(&self.client("get-schema", &[], "OVN_Northbound")).unwrap();
        let columns =
            |table: &Value| table["columns"].as_object().unwrap().keys().cloned().collect();
        schema["tables"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, table)| (name.clone(), columns(table)))
            .collect()
    }

    fn client(&self, subcommand: &str, options: &[&str], argument: &str) -> String {
        program::output(program::command("ovsdb-client").args(options).args([
            subcommand,
            self.endpoint(),
            argument,
        ]))
    }
}

/// The changes between two moments. Rows are `TABLE NAME`, columns `TABLE NAME COLUMN`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) added: BTreeSet<String>,
    pub(crate) changed: BTreeSet<String>,
    pub(crate) removed: BTreeSet<String>,
}

impl Content {
    pub(crate) fn changes(&self, after: &Self) -> Changes {
        let mut changes = Changes {
            added: after.labels_beside(self),
            removed: self.labels_beside(after),
            ..Changes::default()
        };
        for (id, row) in &self.0 {
            let Some(now) = after.0.get(id) else { continue };
            let columns = row.iter().filter(|(column, value)| now[*column] != **value);
            changes
                .changed
                .extend(columns.map(|(column, _)| format!("{} {} {column}", id.0, label(row))));
        }
        changes
    }

    /// All rows, as `TABLE NAME`.
    pub(crate) fn rows(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|((table, _), row)| format!("{table} {}", label(row)))
    }

    fn labels_beside(&self, other: &Self) -> BTreeSet<String> {
        self.0
            .iter()
            .filter(|(id, _)| !other.0.contains_key(*id))
            .map(|((table, _), row)| format!("{table} {}", label(row)))
            .collect()
    }
}

/// The name that a person would give to a row.
fn label(row: &BTreeMap<String, Value>) -> String {
    let ids = row.get("external_ids").and_then(|ids| ids[1].as_array()).into_iter().flatten();
    let id = ids.filter(|pair| pair[0] == contract::ovn::ID).find_map(|pair| pair[1].as_str());
    // A row with an id and a name is a group: its name is a hash.
    let name = row.get("name").and_then(Value::as_str).or(id);
    name.map_or_else(|| format!("{row:?}"), str::to_owned)
}

/// The rows of a table as `ovsdb-client dump -f json` prints it.
fn rows(table: &Value) -> Vec<((String, String), BTreeMap<String, Value>)> {
    let name = table["caption"].as_str().unwrap().strip_suffix(" table").unwrap();
    let headings: Vec<&str> =
        table["headings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let row = |values: &Value| {
        let columns = headings
            .iter()
            .zip(values.as_array().unwrap())
            .map(|(heading, value)| ((*heading).to_owned(), value.clone()));
        let mut columns: BTreeMap<_, _> = columns.collect();
        let uuid = columns.remove("_uuid").unwrap();
        ((name.to_owned(), uuid[1].as_str().unwrap().to_owned()), columns)
    };
    table["data"].as_array().unwrap().iter().map(row).collect()
}

/// A value in the form of the wire protocol.
fn wire(datum: &Datum) -> Value {
    let atom = |atom: &Atom| match atom {
        Atom::String(text) => json!(text),
        Atom::Boolean(truth) => json!(truth),
        Atom::Integer(number) => json!(number),
        Atom::NamedUuid(name) => json!(["named-uuid", name]),
        Atom::Real(_) | Atom::Uuid(_) => unreachable!("no value of a fixture"),
    };
    match datum {
        Datum::Set(atoms) => json!(["set", atoms.iter().map(atom).collect::<Vec<_>>()]),
        Datum::Map(pairs) => {
            json!([
                "map",
                pairs.iter().map(|(key, value)| [atom(key), atom(value)]).collect::<Vec<_>>()
            ])
        }
    }
}
