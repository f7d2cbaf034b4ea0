//! Several readers of one client's connection.

use ovsdb::{Client, Closed, Event, Monitor, Options, Updates, Where};
use serde_json::{Value, json};

use crate::{
    eventually::in_time,
    script::{Peer, ScriptedServer},
    switch::{Bridge, DATABASE, add_bridge, adding_bridges, names, switch},
};

ovsdb::table! {
    struct Port in "Port" {
        name: String,
    }
}

const NO_TRANSACTION: &str = "00000000-0000-0000-0000-000000000000";

async fn next(updates: &mut Updates) -> Event {
    in_time("the next event", updates.next()).await
}

async fn expect_connected(updates: &mut Updates) {
    let event = next(updates).await;
    assert!(matches!(event, Event::Connected), "{event:?}");
}

async fn expect_changed(updates: &mut Updates) {
    let event = next(updates).await;
    assert!(matches!(event, Event::Changed(_)), "{event:?}");
}

/// Answers a monitor request that asks for what came after `since`: there are no rows. Returns the
/// monitor's id.
async fn admit(peer: &mut Peer, since: &str) -> Value {
    let request = peer.expect("monitor_cond_since").await;
    assert_eq!(request["params"][3], since);
    peer.answer(&request, json!([false, NO_TRANSACTION, {}])).await;
    request["params"][1].clone()
}

/// An update with transaction `number`, which inserts a row of 1,000 bytes.
fn update(monitor: &Value, number: u32) -> String {
    let (row, last) = (format!("00000000-0000-0000-0000-{number:012}"), transaction(number));
    let rows = json!({row: {"insert": {"name": "x".repeat(1000)}}});
    json!({"method": "update3", "id": null, "params": [monitor, last, {"Port": rows}]}).to_string()
}

fn transaction(number: u32) -> String {
    format!("00000001-0000-0000-0000-{number:012}")
}

#[tokio::test]
async fn readers_share_a_connection_and_each_sees_its_own_rows() {
    let (daemon, writer) = switch().await;
    add_bridge(&writer, "br0").await;
    let all = Monitor::new().table::<Bridge>(Where::all());
    let (client, mut first) =
        Client::start(daemon.endpoint().into(), DATABASE, all, Options::default());
    let one = Monitor::new().table::<Bridge>(ovsdb::Condition::equal("name", "br1"));
    let mut second = client.replicate(one);
    for updates in [&mut first, &mut second] {
        expect_connected(updates).await;
    }
    expect_changed(&mut first).await;
    let connections = [&first, &second].map(|updates| updates.connection().cloned().unwrap());
    assert!(connections[0].is_same(&connections[1]));

    client.transact(adding_bridges(&["br1", "br2"])).await.unwrap();
    for updates in [&mut first, &mut second] {
        expect_changed(updates).await;
    }
    assert_eq!(names(first.rows()), ["br0", "br1", "br2"]);
    assert_eq!(names(second.rows()), ["br1"]);
}

#[tokio::test]
async fn a_reader_that_falls_behind_begins_anew_and_disturbs_no_other() {
    let server = ScriptedServer::new();
    let ports = || Monitor::new().table::<Port>(Where::all());
    let options = Options { backlog: 10_000, ..Options::default() };
    let (client, mut slow) = Client::start(server.endpoint().into(), "Db", ports(), options);
    let mut quick = client.replicate(ports());
    let mut peer = server.accept_client().await;
    let admit_one = async |updates: &mut Updates, peer: &mut Peer| {
        let (id, ()) = tokio::join!(admit(peer, NO_TRANSACTION), expect_connected(updates));
        id
    };
    let slow_id = admit_one(&mut slow, &mut peer).await;
    let quick_id = admit_one(&mut quick, &mut peer).await;

    // One more is in the queue than fits; the next one ends the monitor.
    for number in 1..=12 {
        peer.send(&update(&slow_id, number)).await;
    }
    let cancel = peer.expect("monitor_cancel").await;
    assert_eq!(cancel["params"], json!([slow_id]));
    peer.send(&update(&quick_id, 20)).await;
    expect_changed(&mut quick).await;

    let (mut read, mut closed) = (0, None);
    while closed.is_none() {
        match next(&mut slow).await {
            Event::Changed(_) => read += 1,
            Event::Disconnected(reason) => closed = Some(reason),
            Event::Connected => panic!("the monitor goes on after {read} updates"),
        }
    }
    assert!(matches!(closed, Some(Closed::Backlog(10_001..))), "{closed:?}");
    let last = transaction(read);
    tokio::join!(expect_connected(&mut slow), admit(&mut peer, &last));
    assert!(client.is_connected());
    // The rows that the answer lacks are gone.
    expect_changed(&mut slow).await;
    assert_eq!(slow.rows::<Port>().count(), 0);
    peer.send(&update(&quick_id, 21)).await;
    expect_changed(&mut quick).await;
}
