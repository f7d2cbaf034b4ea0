//! What a client requests after a reconnection, seen from the server.

use std::time::Duration;

use ovsdb::{Client, Event, Monitor, Options, State, Updates, Where};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    eventually::in_time,
    script::{Peer, ScriptedServer},
};

const NOTHING: &str = "00000000-0000-0000-0000-000000000000";
const FIRST: &str = "00000000-0000-0000-0000-0000000000f1";
const SECOND: &str = "00000000-0000-0000-0000-0000000000f2";
const ROW: &str = "00000000-0000-0000-0000-000000000001";

ovsdb::table! {
    struct Port in "Port" {
        name: String,
        tag: Option<i64>,
    }
}

fn start(server: &ScriptedServer) -> (Client, Updates) {
    let options = Options {
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(1),
        ..Options::default()
    };
    Client::start(
        server.endpoint().into(),
        "Db",
        Monitor::new().table::<Port>(Where::all()),
        options,
    )
}

/// The next monitor request, which has to ask for the changes since this transaction.
async fn expect_since(peer: &mut Peer, since: &str) -> Value {
    let request = peer.expect("monitor_cond_since").await;
    assert_eq!(request["params"][3], since);
    request
}

async fn expect_connected(updates: &mut Updates) {
    loop {
        match in_time("the connection", updates.next()).await {
            Event::Connected => return,
            Event::Disconnected(_) | Event::Changed(_) => {}
        }
    }
}

/// A client that has loaded one row at transaction `FIRST`, and the server's end of its connection.
async fn connected(server: &ScriptedServer) -> (Client, Updates, Peer, Value) {
    let (client, mut updates) = start(server);
    let answer = async {
        let mut peer = server.accept_client().await;
        let request = expect_since(&mut peer, NOTHING).await;
        peer.answer(&request, json!([false, FIRST, {"Port": {ROW: {"initial": {"name": "one"}}}}]))
            .await;
        (peer, request["params"][1].clone())
    };
    let ((peer, id), ()) = tokio::join!(answer, expect_connected(&mut updates));
    (client, updates, peer, id)
}

#[tokio::test]
async fn a_client_asks_for_what_follows_the_last_transaction_it_saw() {
    let server = ScriptedServer::new();
    let (_client, mut updates, mut peer, id) = connected(&server).await;
    let update = json!({"method": "update3", "id": null, "params": [id, SECOND, {"Port": {ROW: {"modify": {"name": "uno"}}}}]});
    peer.send(&update.to_string()).await;
    while updates.rows::<Port>().all(|(_, port)| port.name != "uno") {
        in_time("the update", updates.next()).await;
    }
    drop(peer);

    let again = async {
        let mut peer = server.accept_client().await;
        let request = expect_since(&mut peer, SECOND).await;
        peer.answer(&request, json!([true, SECOND, {}])).await;
        peer
    };
    tokio::join!(again, expect_connected(&mut updates));
    assert_eq!(updates.replica().count::<Port>(), 1);
}

#[tokio::test]
async fn a_client_asks_for_everything_where_the_database_has_got_another_column() {
    let server = ScriptedServer::new();
    let (_client, mut updates, peer, _) = connected(&server).await;
    drop(peer);
    let again = async {
        let columns = json!({"name": {"type": "string"}, "tag": {"type": {"key": "integer", "min": 0, "max": 1}}});
        let mut peer = server.accept_client_of(columns).await;
        let request = expect_since(&mut peer, NOTHING).await;
        peer.answer(
            &request,
            json!([false, FIRST, {"Port": {ROW: {"initial": {"name": "one", "tag": 7}}}}]),
        )
        .await;
        peer
    };
    tokio::join!(again, expect_connected(&mut updates));
    assert_eq!(updates.rows::<Port>().next().unwrap().1.tag, Some(7));
}

#[tokio::test]
async fn a_client_asks_for_everything_after_an_update_that_made_no_sense() {
    let server = ScriptedServer::new();
    let (_client, mut updates, mut peer, id) = connected(&server).await;
    let update = json!({"method": "update3", "id": null, "params": [id, SECOND, {"Port": {ROW: {"modify": {"name": 7}}}}]});
    peer.send(&update.to_string()).await;
    let again = async {
        let mut peer = server.accept_client().await;
        let request = expect_since(&mut peer, NOTHING).await;
        peer.answer(&request, json!([false, FIRST, {"Port": {}}])).await;
        peer
    };
    tokio::join!(again, expect_connected(&mut updates));
    assert_eq!(updates.replica().count::<Port>(), 0);
}

#[tokio::test]
async fn rows_that_make_no_sense_are_no_replica() {
    let server = ScriptedServer::new();
    let (_client, mut updates) = start(&server);
    let serve = async {
        let mut peer = server.accept_client().await;
        let request = expect_since(&mut peer, NOTHING).await;
        peer.answer(&request, json!([false, FIRST, {"Port": {ROW: {"initial": {"name": 7}}}}]))
            .await;
        peer.expect_end().await;
        let mut peer = server.accept_client().await;
        let request = expect_since(&mut peer, NOTHING).await;
        peer.answer(&request, json!([false, FIRST, {"Port": {ROW: {"initial": {"name": "one"}}}}]))
            .await;
        peer
    };
    let follow = async {
        let first = in_time("the first connection", updates.next()).await;
        assert!(matches!(first, Event::Disconnected(_)), "{first:?}");
        let second = in_time("the second connection", updates.next()).await;
        assert!(matches!(second, Event::Connected), "{second:?}");
    };
    tokio::join!(serve, follow);
    assert_eq!(updates.replica().count::<Port>(), 1);
}

#[tokio::test(start_paused = true)]
async fn attempts_get_rarer_while_there_is_no_server() {
    let nowhere = "unix:/nonexistent/db.sock".parse::<ovsdb::Endpoint>().unwrap();
    let (client, _updates) =
        Client::start(nowhere.into(), "Db", Monitor::new(), Options::default());
    let mut state = client.state();
    let begun = Instant::now();
    let mut attempts = 0;
    // tokio's paused clock jumps to the next timer whenever all tasks wait.
    while begun.elapsed() < Duration::from_secs(100) {
        state.changed().await.unwrap();
        assert!(matches!(&*state.borrow(), State::Disconnected(_)));
        attempts += 1;
    }
    // 50 ms doubled 8 times exceeds 8 s. From then on each pause is 4 to 8 s.
    assert!((19..=34).contains(&attempts), "{attempts} attempts in 100 s");
}
