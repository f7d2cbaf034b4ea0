//! The examples, against a real server.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::{
    daemon::run,
    switch::{add_bridge, removing_bridge, switch},
};

/// Cargo builds examples beside the directory of test binaries.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing; to build it: cargo build -p ovsdb --examples",
        path.display()
    );
    path
}

fn said(name: &str, arguments: &[&str]) -> String {
    run(example(name).to_str().unwrap(), arguments)
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn bridges_prints_each_bridge_with_its_ports() {
    let (daemon, connection) = switch().await;
    add_bridge(&connection, "br1").await;
    add_bridge(&connection, "br0").await;
    assert_eq!(said("bridges", &[&daemon.endpoint().to_string()]), "br0: 0 ports\nbr1: 0 ports\n");
}

#[tokio::test]
async fn set_once_leaves_a_value_that_is_there() {
    let (daemon, _connection) = switch().await;
    let endpoint = daemon.endpoint().to_string();
    let (same, other) = ("the key has this value\n", "the key has another value\n");
    assert_eq!(said("set_once", &["owner", "first", &endpoint]), same);
    assert_eq!(said("set_once", &["owner", "second", &endpoint]), other);
    assert_eq!(said("set_once", &["owner", "first", &endpoint]), same);
}

#[tokio::test]
async fn follow_prints_what_happens_to_bridges() {
    let (daemon, connection) = switch().await;
    let mut process = Command::new(example("follow"))
        .arg(daemon.endpoint().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let _running = Running(process);
    assert_eq!(lines.next().unwrap(), "connected");
    let mut transaction = crate::switch::adding_bridges(&[]);
    let bridge = transaction.insert("Bridge", ovsdb::Row::new().with("name", "br0"));
    transaction.mutate(
        "Open_vSwitch",
        ovsdb::Where::all(),
        vec![ovsdb::Mutation::insert("bridges", &bridge)],
    );
    let uuid = connection.transact(transaction).await.unwrap().uuid(&bridge);
    assert_eq!(lines.next().unwrap(), "br0 added");
    connection.transact(removing_bridge(uuid)).await.unwrap();
    assert_eq!(lines.next().unwrap(), "br0 removed");
}
