//! Servers that lack the newer monitor methods: a real server behind a forwarder that refuses them.

use std::path::PathBuf;

use ovsdb::{
    Condition, Connection, Endpoint, FrameLimits, Framer, Monitor, MonitorError, Options,
    Transaction, Where,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

use crate::{
    eventually::in_time,
    switch::{Bridge, DATABASE, add_bridge, names, removing_bridge, switch},
};

/// Forwards one connection. Answers these methods as a server that does not know them.
fn forward_but(listen: PathBuf, server: PathBuf, unknown: &'static [&'static str]) -> Endpoint {
    let listener = UnixListener::bind(&listen).unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) =
            UnixStream::connect(server).await.unwrap().into_split();
        let mut framer = Framer::new(FrameLimits { size: 1 << 24, depth: 50 });
        let (mut request, mut answer) = (vec![0; 4096], vec![0; 4096]);
        loop {
            tokio::select! {
                count = from_client.read(&mut request) => {
                    let Ok(count @ 1..) = count else { return };
                    framer.push(&request[..count]);
                    while let Some(message) = framer.next_message().unwrap() {
                        let parsed: serde_json::Value = serde_json::from_slice(&message).unwrap();
                        if unknown.iter().any(|method| parsed["method"] == *method) {
                            let refusal = serde_json::json!({"id": parsed["id"], "error": "unknown method"});
                            to_client.write_all(refusal.to_string().as_bytes()).await.unwrap();
                        } else {
                            to_server.write_all(&message).await.unwrap();
                        }
                    }
                }
                count = from_server.read(&mut answer) => {
                    let Ok(count @ 1..) = count else { return };
                    to_client.write_all(&answer[..count]).await.unwrap();
                }
            }
        }
    });
    Endpoint::Unix(listen)
}

#[tokio::test]
async fn a_real_server_says_that_it_does_not_know_a_method() {
    let (daemon, _connection) = switch().await;
    let mut stream = UnixStream::connect(daemon.path("db.sock")).await.unwrap();
    stream.write_all(br#"{"id":1,"method":"monitor_of_the_future","params":[]}"#).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = in_time("the answer", stream.read(&mut answer)).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer[..count]).unwrap();
    // The forwarder sends the same answer.
    assert_eq!(answer, serde_json::json!({"id": 1, "error": "unknown method"}));
}

#[tokio::test]
async fn older_monitor_methods_keep_the_same_replica() {
    for unknown in [&["monitor_cond_since"][..], &["monitor_cond_since", "monitor_cond"]] {
        let (daemon, writer) = switch().await;
        add_bridge(&writer, "br0").await;
        let endpoint = forward_but(daemon.path("old.sock"), daemon.path("db.sock"), unknown);
        let connection = Connection::open(&endpoint, DATABASE, Options::default()).await.unwrap();
        let mut monitored =
            connection.monitor(Monitor::new().table::<Bridge>(Where::all())).await.unwrap();
        assert_eq!(names(monitored.rows()), ["br0"], "without {unknown:?}");
        let (br0, _) = monitored.rows::<Bridge>().next().unwrap();

        for (key, value) in [("a", "1"), ("b", "2")] {
            let mut transaction = Transaction::new();
            let pair = ovsdb::Datum::map([(key, value)]);
            transaction.mutate("Bridge", br0, vec![ovsdb::Mutation::insert("external_ids", pair)]);
            writer.transact(transaction).await.unwrap();
            let changes = in_time("the change", monitored.changed()).await.unwrap();
            assert_eq!(
                changes.iter().next().unwrap().columns(),
                ["external_ids"],
                "without {unknown:?}"
            );
        }
        let ids = &monitored.row::<Bridge>(br0).unwrap().external_ids;
        assert_eq!(
            ids.iter().collect::<Vec<_>>(),
            [(&"a".to_owned(), &"1".to_owned()), (&"b".to_owned(), &"2".to_owned())]
        );

        add_bridge(&writer, "br1").await;
        in_time("the insert", monitored.changed()).await.unwrap();
        writer.transact(removing_bridge(br0)).await.unwrap();
        in_time("the delete", monitored.changed()).await.unwrap();
        assert_eq!(names(monitored.rows()), ["br1"], "without {unknown:?}");
    }
}

#[tokio::test]
async fn a_server_that_knows_no_conditions_is_not_asked_for_all_rows_instead() {
    let (daemon, _connection) = switch().await;
    let endpoint = forward_but(
        daemon.path("old.sock"),
        daemon.path("db.sock"),
        &["monitor_cond_since", "monitor_cond"],
    );
    let connection = Connection::open(&endpoint, DATABASE, Options::default()).await.unwrap();
    let error = connection
        .monitor(Monitor::new().table::<Bridge>(Condition::equal("name", "br0")))
        .await
        .unwrap_err();
    assert!(matches!(error, MonitorError::NoConditions), "{error:?}");
}
