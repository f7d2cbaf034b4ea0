//! Rows of the `Open_vSwitch` database, as the tests use them.

use std::collections::BTreeMap;

use ovsdb::{Connection, Row, Transaction, Uuid};

use crate::daemon::{Daemon, SWITCH_SCHEMA, schema};

pub(crate) const DATABASE: &str = "Open_vSwitch";

ovsdb::table! {
    /// The root row.
    pub(crate) struct Switch in "Open_vSwitch" {
        pub bridges: Vec<Uuid>,
        pub external_ids: BTreeMap<String, String>,
    }

    pub(crate) struct Bridge in "Bridge" {
        pub name: String,
        pub fail_mode: Option<String>,
        pub ports: Vec<Uuid>,
        pub external_ids: BTreeMap<String, String>,
        /// A column that no schema has.
        pub of_the_future: Vec<String>,
    }

    /// A table that no schema has.
    pub(crate) struct Future in "Of_The_Future" {
        pub name: String,
    }
}

/// A server with an `Open_vSwitch` database that has its root row, and a connection to it.
pub(crate) async fn switch() -> (Daemon, Connection) {
    let daemon = Daemon::with_schema(schema(SWITCH_SCHEMA)).await;
    let connection = daemon.open(DATABASE).await;
    add_root(&connection).await;
    (daemon, connection)
}

pub(crate) async fn add_root(connection: &Connection) -> Uuid {
    let mut transaction = Transaction::new();
    let root = transaction.insert("Open_vSwitch", Row::new());
    connection.transact(transaction).await.expect("an empty database takes it").uuid(&root)
}

/// A transaction that adds bridges to the root.
pub(crate) fn adding_bridges(names: &[&str]) -> Transaction {
    let mut transaction = Transaction::new();
    let bridges: Vec<_> = names
        .iter()
        .map(|name| transaction.insert("Bridge", Row::new().with("name", *name)))
        .collect();
    transaction.mutate(
        "Open_vSwitch",
        ovsdb::Where::all(),
        vec![ovsdb::Mutation::insert("bridges", bridges)],
    );
    transaction
}

pub(crate) async fn add_bridge(connection: &Connection, name: &str) {
    connection.transact(adding_bridges(&[name])).await.expect("the root is there");
}

/// A transaction that removes a bridge.
pub(crate) fn removing_bridge(uuid: Uuid) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.mutate(
        "Open_vSwitch",
        ovsdb::Where::all(),
        vec![ovsdb::Mutation::delete("bridges", uuid)],
    );
    transaction
}

/// The names of the bridges that a replica shows, sorted.
pub(crate) fn names<'a>(rows: impl Iterator<Item = (Uuid, &'a Bridge)>) -> Vec<String> {
    let mut names: Vec<String> = rows.map(|(_, bridge)| bridge.name.clone()).collect();
    names.sort();
    names
}
