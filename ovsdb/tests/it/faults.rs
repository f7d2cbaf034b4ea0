//! Servers that violate the protocol, fall silent, or flood the client.

use std::time::Duration;

use ovsdb::{
    Closed, Connection, FrameLimits, Monitor, Monitored, NotConnected, Options, Row, TransactError,
    Transaction, Where,
};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::{
    eventually::in_time,
    script::{Peer, ScriptedServer},
};

ovsdb::table! {
    struct Port in "Port" {
        name: String,
    }
}

async fn pair(options: Options) -> (Connection, Peer) {
    let server = ScriptedServer::new();
    let endpoint = server.endpoint();
    let (connection, peer) =
        tokio::join!(Connection::open(&endpoint, "Db", options), server.accept_client());
    (connection.unwrap(), peer)
}

/// A connection with a monitor of `Port`, which has no rows.
async fn monitored(options: Options) -> (Monitored, serde_json::Value, Peer) {
    let (connection, mut peer) = pair(options).await;
    let started = connection.monitor(Monitor::new().table::<Port>(Where::all()));
    let request = peer.expect("monitor_cond_since").await;
    assert_eq!(request["params"][3], "00000000-0000-0000-0000-000000000000");
    peer.answer(&request, json!([false, "00000000-0000-0000-0000-000000000000", {}])).await;
    (started.await.unwrap(), request["params"][1].clone(), peer)
}

fn small() -> Options {
    Options { frame: FrameLimits { size: 1000, depth: 10 }, ..Options::default() }
}

#[tokio::test]
async fn an_echo_is_answered() {
    let (_connection, mut peer) = pair(Options::default()).await;
    peer.send(r#"{"method":"echo","id":"echo","params":[{"x":1}]}"#).await;
    assert_eq!(peer.receive().await, json!({"id": "echo", "result": [{"x": 1}], "error": null}));
}

#[tokio::test]
async fn a_server_that_sends_echo_requests_without_end_is_dropped_while_a_request_waits_too() {
    for has_request in [false, true] {
        let (connection, mut peer) = pair(Options::default()).await;
        let request = has_request.then(|| connection.transact(Transaction::new()));
        if has_request {
            peer.expect("transact").await;
        }
        // The answers are never read, and are more than the socket and the client take.
        let echo = format!(r#"{{"method":"echo","id":"{}","params":[]}}"#, "x".repeat(10_000));
        let flood = async { while peer.stream.write_all(echo.as_bytes()).await.is_ok() {} };
        let (closed, ()) =
            in_time("the client gives up", async { tokio::join!(connection.closed(), flood) })
                .await;
        assert!(closed.to_string().contains("echo requests without end"), "{closed}");
        drop(request);
    }
}

#[tokio::test]
async fn a_silent_server_is_probed_and_then_dropped() {
    let (connection, mut peer) =
        pair(Options { probe_interval: Some(Duration::from_millis(50)), ..Options::default() })
            .await;
    assert_eq!(peer.expect("echo").await["params"], json!([]));
    let closed = in_time("the server is given up", connection.closed()).await;
    assert!(matches!(closed, Closed::Silent(_)), "{closed:?}");
    peer.expect_end().await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_the_first_rows_of_a_monitor_is_waited_for() {
    let options = Options {
        probe_interval: Some(Duration::from_millis(100)),
        load_timeout: Duration::from_secs(60),
        ..Options::default()
    };
    let (connection, mut peer) = pair(options).await;
    let asked = connection.monitor(Monitor::new().table::<Port>(Where::all()));
    // On a busy machine, the connection may have been idle for so long that a probe comes first.
    let request = loop {
        let message = peer.receive().await;
        if message["method"] != "echo" {
            break message;
        }
        peer.answer(&message, json!([])).await;
    };
    assert_eq!(request["method"], "monitor_cond_since");
    peer.expect("echo").await;
    // Silent many times as long as an idle server may be.
    assert!(
        tokio::time::timeout(Duration::from_millis(1000), connection.closed()).await.is_err(),
        "dropped while it was busy"
    );
    peer.answer(&request, json!([false, "00000000-0000-0000-0000-000000000000", {}])).await;
    in_time("the rows are there", asked).await.unwrap();
    // The server is idle from here on.
    assert!(matches!(
        in_time("a silent server is dropped", connection.closed()).await,
        Closed::Silent(_)
    ));
}

#[tokio::test]
async fn a_server_that_is_silent_for_too_long_is_dropped_whatever_it_is_busy_with() {
    let options = Options {
        probe_interval: Some(Duration::from_millis(20)),
        load_timeout: Duration::from_millis(100),
        ..Options::default()
    };
    let (connection, _peer) = pair(options).await;
    let asked = connection.monitor(Monitor::new().table::<Port>(Where::all()));
    assert!(matches!(
        in_time("a silent server is dropped", connection.closed()).await,
        Closed::Silent(_)
    ));
    in_time("the monitor fails", asked).await.unwrap_err();
}

#[tokio::test]
async fn a_server_that_answers_probes_is_kept() {
    // Long enough for an answer in time, also on a busy machine.
    let (connection, mut peer) =
        pair(Options { probe_interval: Some(Duration::from_millis(300)), ..Options::default() })
            .await;
    for _ in 0..3 {
        let probe = peer.expect("echo").await;
        peer.answer(&probe, json!([])).await;
    }
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn what_is_no_message_ends_the_connection() {
    let deep = format!(r#"{{"a":{}"#, "[".repeat(20));
    let large = format!(r#"{{"a":"{}"#, "x".repeat(2000));
    for (sent, reason) in [
        ("garbage", "the server sent an invalid message: byte 0x67 where a message should begin"),
        (&deep, "the server sent an invalid message: objects and arrays nested deeper than 10"),
        (&large, "the server sent an invalid message: a message of more than 1000 bytes"),
        ("{}", "the server broke the protocol: neither a request nor an answer"),
        (
            r#"{"id":99,"result":[],"error":null}"#,
            "the server broke the protocol: an answer to request 99, which was not made",
        ),
        (r#"{"method":"monitor_canceled","params":[1],"id":null}"#, ""),
    ] {
        let (connection, mut peer) = pair(small()).await;
        peer.send(sent).await;
        let closed = in_time("the end", connection.closed()).await;
        let told = match std::error::Error::source(&closed) {
            Some(source) => format!("{closed}: {source}"),
            None => closed.to_string(),
        };
        assert!(told.starts_with(reason), "{told}");
        peer.expect_end().await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_end_the_connection() {
    let (connection, mut peer) = pair(small()).await;
    peer.send_bytes(b"{\"id\":\"\xff\xfe\"}").await;
    assert!(matches!(in_time("the end", connection.closed()).await, Closed::Protocol(_)));
}

#[tokio::test]
async fn an_update_that_makes_no_sense_ends_the_connection() {
    let (mut monitored, id, mut peer) = monitored(Options::default()).await;
    let update = json!({"method": "update3", "id": null, "params": [id, "00000000-0000-0000-0000-000000000000", {"Port": {"x": {}}}]});
    peer.send(&update.to_string()).await;
    let closed = in_time("the update", monitored.changed()).await.unwrap_err();
    assert!(matches!(closed, Closed::Protocol(_)), "{closed:?}");
    peer.expect_end().await;
}

#[tokio::test]
async fn updates_that_nobody_reads_end_the_connection() {
    let (mut monitored, id, mut peer) =
        monitored(Options { backlog: 10_000, ..Options::default() }).await;
    let connection = monitored.connection().clone();
    let row = json!({"insert": {"name": "x".repeat(1000)}});
    for number in 0..12 {
        let rows = json!({format!("00000000-0000-0000-0000-{number:012}"): row});
        let update = json!({"method": "update3", "id": null, "params": [id, "00000000-0000-0000-0000-000000000000", {"Port": rows}]});
        peer.send(&update.to_string()).await;
    }
    assert!(matches!(in_time("the end", connection.closed()).await, Closed::Backlog(10_001..)));
    // Updates from before the end can still be read.
    in_time("the first update", monitored.changed()).await.unwrap();
    assert_eq!(monitored.rows::<Port>().count(), 1);
}

#[tokio::test]
async fn a_monitor_that_nobody_reads_any_more_is_cancelled_once() {
    let (monitored, id, mut peer) = monitored(Options::default()).await;
    let connection = monitored.connection().clone();
    drop(monitored);
    let update = json!({"method": "update3", "id": null, "params": [id, "00000000-0000-0000-0000-000000000000", {}]});
    // Two updates: the second arrives before the server has read the cancellation.
    peer.send(&format!("{update}{update}")).await;
    let cancel = peer.expect("monitor_cancel").await;
    assert_eq!(cancel["params"], json!([id]));
    peer.answer(&cancel, json!({})).await;
    peer.send(r#"{"method":"echo","id":"still there","params":[]}"#).await;
    assert_eq!(peer.receive().await["id"], "still there");
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_transaction_that_was_sent_but_not_answered_may_have_happened() {
    let (connection, mut peer) = pair(Options::default()).await;
    let mut transaction = Transaction::new();
    transaction.insert("Port", Row::new());
    let outcome = connection.transact(transaction);
    peer.expect("transact").await;
    drop(peer);
    let error = in_time("the end", outcome).await.unwrap_err();
    assert!(matches!(error, TransactError::OutcomeUnknown(Closed::ByServer)), "{error:?}");
}

#[tokio::test]
async fn a_transaction_of_which_a_part_was_not_sent_has_not_happened() {
    let (connection, peer) = pair(Options::default()).await;
    // More than a socket buffer holds, to a server that does not read.
    let mut transaction = Transaction::new();
    transaction.comment(&"x".repeat(8 << 20));
    let outcome = connection.transact(transaction);
    let begun = peer.stream.readable();
    in_time("the first part arrives", begun).await.unwrap();
    drop(peer);
    let error = in_time("the end", outcome).await.unwrap_err();
    assert!(matches!(error, TransactError::NotConnected(NotConnected::Lost(_))), "{error:?}");
}

#[tokio::test]
async fn a_transaction_after_the_end_has_not_happened() {
    let (connection, peer) = pair(Options::default()).await;
    drop(peer);
    in_time("the end", connection.closed()).await;
    let error = in_time("the answer", connection.transact(Transaction::new())).await.unwrap_err();
    assert!(
        matches!(error, TransactError::NotConnected(NotConnected::Lost(Closed::ByServer))),
        "{error:?}"
    );
}
