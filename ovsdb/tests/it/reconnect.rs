//! Clients across interruptions of their connection.

use std::time::Duration;

use ovsdb::{
    ChangeKind, Changes, Client, Endpoints, Event, Monitor, NotConnected, Options, State,
    TransactError, Updates, Where,
};

use crate::{
    daemon::{Daemon, SWITCH_SCHEMA, schema},
    eventually::{eventually, in_time},
    proxy::Proxy,
    script::ScriptedServer,
    switch::{Bridge, DATABASE, add_bridge, add_root, adding_bridges, names, switch},
};

fn start(endpoints: impl Into<Endpoints>) -> (Client, Updates) {
    let options = Options {
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        // The tests close connections themselves.
        probe_interval: None,
        ..Options::default()
    };
    Client::start(endpoints.into(), DATABASE, Monitor::new().table::<Bridge>(Where::all()), options)
}

async fn next(updates: &mut Updates) -> Event {
    in_time("the next event", updates.next()).await
}

async fn expect_connected(updates: &mut Updates) {
    let event = next(updates).await;
    assert!(matches!(event, Event::Connected), "{event:?}");
}

async fn expect_disconnected(updates: &mut Updates) {
    let event = next(updates).await;
    assert!(matches!(event, Event::Disconnected(_)), "{event:?}");
}

async fn expect_changes(updates: &mut Updates) -> Changes {
    match next(updates).await {
        Event::Changed(changes) => changes,
        event => panic!("{event:?}"),
    }
}

/// The changes with the names of their bridges, sorted by name.
fn told(changes: &Changes, updates: &Updates) -> Vec<(ChangeKind, String)> {
    let name = |change: &ovsdb::Change| match change.kind {
        ChangeKind::Delete => change.old::<Bridge>().unwrap().name.clone(),
        ChangeKind::Insert | ChangeKind::Modify => {
            updates.row::<Bridge>(change.uuid).unwrap().name.clone()
        }
    };
    let mut told: Vec<_> = changes.iter().map(|change| (change.kind, name(change))).collect();
    told.sort_by(|(_, a), (_, b)| a.cmp(b));
    told
}

fn inserted(name: &str) -> (ChangeKind, String) {
    (ChangeKind::Insert, name.to_owned())
}

#[tokio::test]
async fn a_client_reads_writes_and_follows() {
    let (daemon, writer) = switch().await;
    add_bridge(&writer, "br0").await;
    let (client, mut updates) = start(daemon.endpoint());
    expect_connected(&mut updates).await;
    assert_eq!(names(updates.rows()), ["br0"]);
    let changes = expect_changes(&mut updates).await;
    assert_eq!(told(&changes, &updates), [inserted("br0")]);

    client.transact(adding_bridges(&["br1"])).await.unwrap();
    let changes = expect_changes(&mut updates).await;
    assert_eq!(told(&changes, &updates), [inserted("br1")]);
}

/// A client, behind a proxy, of a clustered database, whose server numbers its transactions. The
/// database has `br0` and 100 other bridges.
async fn resumable() -> (Daemon, Proxy, Client, Updates) {
    let mut daemon = Daemon::new();
    daemon.create_cluster("cluster.db", schema(SWITCH_SCHEMA));
    daemon.start("cluster.db").await;
    let writer = eventually("the cluster has a leader", async || {
        ovsdb::Connection::open(&daemon.endpoint(), DATABASE, Options::default()).await
    })
    .await;
    add_root(&writer).await;
    // A server's transaction history is not larger than its database (ovsdb/transaction.c,
    // `ovsdb_txn_history_run`), so the database must not be too small.
    let bulk: Vec<String> = (0..100).map(|number| format!("bulk{number}")).collect();
    writer
        .transact(adding_bridges(&bulk.iter().map(String::as_str).collect::<Vec<_>>()))
        .await
        .unwrap();
    add_bridge(&writer, "br0").await;
    let proxy = Proxy::start(daemon.path("proxy.sock"), &daemon.endpoint());
    let (client, mut updates) = start(proxy.endpoint());
    expect_connected(&mut updates).await;
    expect_changes(&mut updates).await;
    (daemon, proxy, client, updates)
}

#[tokio::test]
async fn after_a_cut_connection_only_what_was_missed_is_sent() {
    let (daemon, proxy, _client, mut updates) = resumable().await;
    proxy.cut();
    expect_disconnected(&mut updates).await;
    assert_eq!(updates.rows::<Bridge>().count(), 101, "the rows stay as they were");
    add_bridge(&daemon.open(DATABASE).await, "br1").await;

    proxy.mend();
    expect_connected(&mut updates).await;
    assert_eq!(updates.rows::<Bridge>().count(), 102);
    let changes = expect_changes(&mut updates).await;
    assert_eq!(told(&changes, &updates), [inserted("br1")]);
    let answers = proxy.answers();
    assert!(answers.contains("br1") && !answers.contains("br0"), "{answers}");
}

#[tokio::test]
async fn a_database_in_place_of_another_is_told_as_differences() {
    let (mut daemon, writer) = switch().await;
    writer.transact(adding_bridges(&["br0", "br1"])).await.unwrap();
    let (_client, mut updates) = start(daemon.endpoint());
    expect_connected(&mut updates).await;
    expect_changes(&mut updates).await;

    daemon.kill();
    expect_disconnected(&mut updates).await;
    daemon.create("other.db", SWITCH_SCHEMA);
    daemon.start("other.db").await;
    expect_connected(&mut updates).await;
    // The new database is empty.
    let changes = expect_changes(&mut updates).await;
    let deleted = |name: &str| (ChangeKind::Delete, name.to_owned());
    assert_eq!(told(&changes, &updates), [deleted("br0"), deleted("br1")]);
    assert_eq!(names(updates.rows()), [""; 0]);

    let writer = daemon.open(DATABASE).await;
    add_root(&writer).await;
    add_bridge(&writer, "br2").await;
    let changes = expect_changes(&mut updates).await;
    assert_eq!(told(&changes, &updates), [inserted("br2")]);
}

#[tokio::test]
async fn a_restarted_server_with_the_same_contents_changes_nothing() {
    let (mut daemon, writer) = switch().await;
    add_bridge(&writer, "br0").await;
    let (client, mut updates) = start(daemon.endpoint());
    expect_connected(&mut updates).await;
    expect_changes(&mut updates).await;

    daemon.kill();
    expect_disconnected(&mut updates).await;
    daemon.start("conf.db").await;
    expect_connected(&mut updates).await;
    client.transact(adding_bridges(&["br1"])).await.unwrap();
    // No changes are reported before this insert.
    let changes = expect_changes(&mut updates).await;
    assert_eq!(told(&changes, &updates), [inserted("br1")]);
}

#[tokio::test]
async fn a_transaction_whose_answer_is_lost_is_reported_as_unknown_and_can_be_read_back() {
    let (daemon, writer) = switch().await;
    let proxy = Proxy::start(daemon.path("proxy.sock"), &daemon.endpoint());
    let (client, mut updates) = start(proxy.endpoint());
    expect_connected(&mut updates).await;

    proxy.lose_answers();
    let outcome = client.transact(adding_bridges(&["br0"]));
    let mut witness = writer.monitor(Monitor::new().table::<Bridge>(Where::all())).await.unwrap();
    while names(witness.rows()).is_empty() {
        in_time("the transaction happens", witness.changed()).await.unwrap();
    }
    proxy.cut();
    let error = in_time("the end", outcome).await.unwrap_err();
    assert!(matches!(error, TransactError::OutcomeUnknown(_)), "{error:?}");

    expect_disconnected(&mut updates).await;
    proxy.mend();
    expect_connected(&mut updates).await;
    assert_eq!(names(updates.rows()), ["br0"]);
}

#[tokio::test]
async fn without_a_connection_a_transaction_is_refused_at_once_with_the_reason() {
    let mut daemon = Daemon::new();
    let (client, _updates) = start(daemon.endpoint());
    assert!(!client.is_connected());
    eventually("the first attempt fails", async || {
        match client.transact(adding_bridges(&["br0"])).await {
            Err(TransactError::NotConnected(NotConnected::Unreachable(error)))
                if error.endpoint == daemon.endpoint() =>
            {
                Ok(())
            }
            other => Err(other),
        }
    })
    .await;

    daemon.create("conf.db", schema(SWITCH_SCHEMA));
    daemon.start("conf.db").await;
    let connection = in_time("the client finds the server", client.connected()).await;
    add_root(&connection).await;
    client.transact(adding_bridges(&["br0"])).await.unwrap();
    assert!(client.is_connected() && matches!(&*client.state().borrow(), State::Connected(_)));
}

#[tokio::test]
async fn endpoints_are_tried_in_turn() {
    let (daemon, writer) = switch().await;
    add_bridge(&writer, "br0").await;
    let nowhere = ovsdb::Endpoint::Unix(daemon.path("nowhere.sock"));
    let garbage = ScriptedServer::new();
    let endpoints =
        Endpoints::try_from(vec![nowhere, garbage.endpoint(), daemon.endpoint()]).unwrap();
    let (_client, mut updates) = start(endpoints);
    let talk = async {
        let mut peer = garbage.accept_client().await;
        peer.send("garbage").await;
        peer.expect_end().await;
    };
    let follow = async {
        // Whether the garbage server counts as connected first depends on the timing.
        loop {
            if let Event::Connected = next(&mut updates).await {
                return;
            }
        }
    };
    tokio::join!(talk, follow);
    assert_eq!(names(updates.rows()), ["br0"]);
}

#[tokio::test]
async fn a_wait_for_events_that_is_given_up_loses_none() {
    let (daemon, writer) = switch().await;
    let (_client, mut updates) = start(daemon.endpoint());
    let mut seen = Vec::new();
    add_bridge(&writer, "br0").await;
    // Cancelled at every point at which it can wait.
    eventually("both events come", async || {
        if let Ok(event) = tokio::time::timeout(Duration::from_micros(1), updates.next()).await {
            seen.push(format!("{event:?}").split_whitespace().next().unwrap().to_owned());
        }
        if seen.len() == 2 { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    assert!(seen[0] == "Connected" && seen[1].starts_with("Changed"), "{seen:?}");
    assert_eq!(names(updates.rows()), ["br0"]);
}

#[tokio::test]
async fn tables_that_cannot_be_read_are_reported_and_tried_again() {
    ovsdb::table! {
        struct Wrong in "Bridge" {
            ports: Option<String>,
        }
    }
    let (daemon, _writer) = switch().await;
    let (_client, mut updates) = Client::start(
        daemon.endpoint().into(),
        DATABASE,
        Monitor::new().table::<Wrong>(Where::all()),
        Options::default(),
    );
    for _ in 0..2 {
        match next(&mut updates).await {
            Event::Disconnected(closed) => {
                assert!(matches!(closed, ovsdb::Closed::Monitor(_)), "{closed:?}")
            }
            event => panic!("{event:?}"),
        }
    }
}

#[tokio::test]
async fn the_connection_ends_with_the_last_of_client_and_updates() {
    let server = ScriptedServer::new();
    let (client, updates) = start(server.endpoint());
    let mut peer = server.accept_client().await;
    in_time("the connection", client.connected()).await;
    drop(updates);
    peer.send(r#"{"method":"echo","id":"still there","params":[]}"#).await;
    assert_eq!(peer.receive().await["id"], "still there");
    drop(client);
    peer.expect_end().await;
}
