//! Opening connections.

use ovsdb::{ConnectFault, Connection, Endpoint, ErrorKind, Options, Transaction};

use crate::{
    daemon::{Daemon, NORTHBOUND_SCHEMA, schema},
    eventually::in_time,
    script::ScriptedServer,
    switch::{DATABASE, switch},
};

#[tokio::test]
async fn the_schema_says_what_the_database_has() {
    let daemon = Daemon::with_schema(schema(NORTHBOUND_SCHEMA)).await;
    let connection = daemon.open("OVN_Northbound").await;
    let schema = connection.schema();
    assert_eq!(schema.name, "OVN_Northbound");
    assert!(schema.has_table("Logical_Switch_Port") && !schema.has_table("Bridge"));
    assert!(
        schema.has_column("Logical_Switch_Port", "up")
            && !schema.has_column("Logical_Switch_Port", "down")
    );
    assert!(schema.column("Logical_Switch_Port", "up").unwrap().ty.is_single());
    assert!(!schema.column("Logical_Switch_Port", "addresses").unwrap().ty.is_single());
}

#[tokio::test]
async fn tcp_is_another_way_to_the_same_database() {
    let (daemon, _connection) = switch().await;
    let endpoint = daemon.listen("tcp").await;
    let connection = Connection::open(&endpoint, DATABASE, Options::default()).await.unwrap();
    assert!(connection.schema().has_table("Bridge"));
}

#[tokio::test]
async fn a_schema_that_is_known_is_not_read() {
    let (daemon, _connection) = switch().await;
    let known = |name: &str| {
        serde_json::from_value(serde_json::json!({"name": name, "tables": {}})).unwrap()
    };
    let open = async |name| {
        Connection::open_known(&daemon.endpoint(), known(name), Options::default()).await.unwrap()
    };
    let select = |connection: Connection| {
        let mut transaction = Transaction::new();
        transaction.select("Bridge", ovsdb::Where::all(), &["name"]);
        async move { connection.transact(transaction).await.map(drop) }
    };
    select(open(DATABASE).await).await.unwrap();
    let error = select(open("Nothing").await).await.unwrap_err();
    assert_eq!(error.kind(), Some(&ErrorKind::UnknownDatabase), "the first request says so");
}

#[tokio::test]
async fn a_failure_names_the_endpoint_and_the_reason() {
    let (daemon, _connection) = switch().await;
    let open = async |endpoint: &Endpoint, database: &str| {
        Connection::open(endpoint, database, Options::default()).await.unwrap_err()
    };

    let error = open(&daemon.endpoint(), "Nothing").await;
    assert_eq!(error.to_string(), daemon.endpoint().to_string());
    assert!(
        matches!(&error.fault, ConnectFault::Refused { database, error } if database == "Nothing" && error.kind == ErrorKind::UnknownDatabase)
    );

    let nowhere = Endpoint::Unix(daemon.path("nowhere.sock"));
    let error = open(&nowhere, DATABASE).await;
    assert!(
        matches!(&error.fault, ConnectFault::Io(error) if error.kind() == std::io::ErrorKind::NotFound),
        "{error:?}"
    );

    let error = open(&"ssl:127.0.0.1:6641".parse().unwrap(), DATABASE).await;
    assert_eq!(error.fault.to_string(), "no certificates are configured for connections by ssl");
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_given_up() {
    let server = ScriptedServer::new();
    let options =
        Options { connect_timeout: std::time::Duration::from_millis(50), ..Options::default() };
    let error = in_time("the deadline", Connection::open(&server.endpoint(), "Db", options))
        .await
        .unwrap_err();
    assert!(matches!(error.fault, ConnectFault::TimedOut(_)), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_nobody_uses_ends_once_all_is_sent() {
    let server = ScriptedServer::new();
    let endpoint = server.endpoint();
    // The scripted server does not answer probes, which would end the connection, too.
    let options = Options { probe_interval: None, ..Options::default() };
    let (connection, mut peer) =
        tokio::join!(Connection::open(&endpoint, "Db", options), server.accept_client());
    let connection = connection.unwrap();
    let mut transaction = Transaction::new();
    transaction.comment("nobody waits for this");
    drop(connection.transact(transaction));
    drop(connection);
    peer.expect("transact").await;
    peer.expect_end().await;
}

#[tokio::test]
async fn the_end_of_the_server_is_told_to_whoever_waits() {
    let (mut daemon, connection) = switch().await;
    let waiting = tokio::spawn({
        let connection = connection.clone();
        async move { connection.closed().await }
    });
    daemon.kill();
    assert_eq!(
        in_time("the end is noticed", waiting).await.unwrap().to_string(),
        "the server closed the connection"
    );
    assert!(connection.is_closed());
}
