//! A private northbound database, and access to it behind the controller's back.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Atom, Connection, Datum, Endpoint, Options, SelectedRow, Transaction, Uuid, Where};
use testkit::{Database, Scratch};

const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const NAME: &str = "nb";

/// The tables that are compared, with all of their columns.
const TABLES: [&str; 19] = [
    "Logical_Switch",
    "Logical_Switch_Port",
    "Logical_Router",
    "Logical_Router_Port",
    "Logical_Router_Static_Route",
    "Logical_Router_Policy",
    "NAT",
    "Static_MAC_Binding",
    "Gateway_Chassis",
    "ACL",
    "Port_Group",
    "Address_Set",
    "Load_Balancer",
    "Load_Balancer_Group",
    "Copp",
    "Meter",
    "Meter_Band",
    "QoS",
    "DHCP_Options",
];

/// The server and its directory.
pub(crate) struct Northbound {
    server: Option<Database>,
    scratch: Scratch,
}

/// A row as it can be compared: without its UUID, and with names in place of references.
pub(crate) type Row = BTreeMap<String, String>;

/// What a database holds, by table, name and UUID; and the columns that its schema has.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Contents(
    pub(crate) BTreeMap<(String, String, Uuid), Row>,
    BTreeSet<(String, String)>,
);

impl Northbound {
    pub(crate) fn start() -> Self {
        Self::with_schema(SCHEMA)
    }

    pub(crate) fn with_schema(schema: &'static str) -> Self {
        let scratch = Scratch::new();
        let server = Database::of_schema(scratch.path(), NAME, schema);
        Self { server: Some(server), scratch }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.scratch.join(format!("{NAME}.sock")))
    }

    /// Ends the server as a crash would; its file stays.
    pub(crate) fn kill(&mut self) {
        drop(self.server.take());
    }

    /// Starts the server again, if it does not run.
    pub(crate) fn restart(&mut self) {
        if self.server.is_none() {
            self.server = Some(Database::serve(self.scratch.path(), NAME));
        }
    }

    /// On a busy machine the server takes more than ten seconds for all rows at once, and it is no
    /// law that it does not.
    pub(crate) async fn open(&self) -> Connection {
        let options = Options { probe_interval: None, ..Options::default() };
        Connection::open(&self.endpoint(), "OVN_Northbound", options).await.unwrap()
    }
}

/// Everything in the database.
pub(crate) async fn contents(connection: &Connection) -> Contents {
    let mut transaction = Transaction::new();
    let selections = TABLES.map(|table| {
        let columns: Vec<&str> =
            connection.schema().table(table).unwrap().columns.keys().map(String::as_str).collect();
        (
            table,
            transaction.select(table, Where::all(), &columns),
            columns.into_iter().map(str::to_owned).collect::<Vec<_>>(),
        )
    });
    let outcome = connection.transact(transaction).await.unwrap();
    let mut names = BTreeMap::new();
    for (table, selection, _) in &selections {
        for row in outcome.rows(*selection) {
            names.insert(row.uuid(), name(table, row));
        }
    }
    let mut contents = Contents::default();
    for (table, selection, columns) in &selections {
        contents.1.extend(columns.iter().map(|column| ((*table).to_owned(), column.clone())));
        for row in outcome.rows(*selection) {
            let text = |column: &String| Some((column.clone(), spell(row.datum(column)?, &names)));
            let columns =
                columns.iter().filter_map(text).filter(|(_, value)| !value.is_empty()).collect();
            contents.0.insert(((*table).to_owned(), name(table, row), row.uuid()), columns);
        }
    }
    contents
}

fn name(table: &str, row: &SelectedRow) -> String {
    match table {
        "ACL" | "QoS" => row.map("external_ids").get("k8s.ovn.org/id").cloned().unwrap_or_default(),
        // As the controller names them, without the router.
        "Logical_Router_Static_Route" => {
            content(row, &["ip_prefix", "nexthop", "output_port", "policy"])
        }
        "NAT" => content(row, &["type", "external_ip", "logical_ip", "logical_port"]),
        "Static_MAC_Binding" => content(row, &["logical_port", "ip"]),
        "Logical_Router_Policy" => {
            format!(" priority={}{}", row.integer("priority").unwrap(), content(row, &["match"]))
        }
        "Meter_Band" => format!("rate {}", row.integer("rate").unwrap()),
        _ => row.string("name").unwrap_or_default().to_owned(),
    }
}

fn content(row: &SelectedRow, columns: &[&str]) -> String {
    let text = |column: &&str| {
        Some(format!(" {column}={}", row.string(column).filter(|text| !text.is_empty())?))
    };
    columns.iter().filter_map(text).collect()
}

/// A value as text: readable, and the same for equal values.
fn spell(datum: &Datum, names: &BTreeMap<Uuid, String>) -> String {
    let atom = |atom: &Atom| match atom {
        Atom::Uuid(uuid) => {
            names.get(uuid).map_or_else(|| uuid.to_string(), |name| format!("<{name}>"))
        }
        Atom::String(text) => text.clone(),
        other => format!("{other:?}"),
    };
    let mut parts: Vec<String> = datum.atoms().iter().map(atom).collect();
    parts.extend(datum.pairs().iter().map(|(key, value)| format!("{}={}", atom(key), atom(value))));
    parts.sort();
    parts.join(", ")
}

impl Contents {
    /// Whether the database has the column.
    pub(crate) fn has_column(&self, table: &str, column: &str) -> bool {
        self.1.contains(&(table.to_owned(), column.to_owned()))
    }

    pub(crate) fn row(&self, table: &str, name: &str) -> Option<&Row> {
        self.0.iter().find(|((of, named, _), _)| of == table && named == name).map(|(_, row)| row)
    }
}
