//! Clients with `leader_only`, and real clusters.

use std::time::Duration;

use ovsdb::{
    Client, Closed, ConnectFault, Connection, Endpoints, Monitor, NotConnected, Options, State,
    TransactError, Unfit, Updates, Where,
};
use serde_json::json;

use crate::{
    daemon::{Daemon, SWITCH_SCHEMA, schema},
    eventually::{eventually, in_time},
    script::ScriptedServer,
    switch::{Bridge, DATABASE, add_root, adding_bridges, switch},
};

fn start(endpoints: impl Into<Endpoints>) -> (Client, Updates) {
    let options = Options {
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        leader_only: true,
        ..Options::default()
    };
    Client::start(endpoints.into(), DATABASE, Monitor::new().table::<Bridge>(Where::all()), options)
}

/// Three members; the first is the leader.
async fn cluster() -> Vec<Daemon> {
    let mut leader = Daemon::new();
    leader.create_cluster("cluster.db", schema(SWITCH_SCHEMA));
    leader.start("cluster.db").await;
    let mut members = vec![leader];
    for _ in 0..2 {
        let mut member = Daemon::new();
        member.join_cluster("cluster.db", DATABASE, &members[0]);
        member.start("cluster.db").await;
        eventually("the member joins", async || status(&member, "Status: cluster member")).await;
        members.push(member);
    }
    members
}

/// Whether the member's status has this line.
fn status(member: &Daemon, line: &str) -> Result<(), String> {
    let status = member.control(&["cluster/status", DATABASE]);
    if status.contains(line) { Ok(()) } else { Err(status) }
}

fn is_leader(member: &Daemon) -> Result<(), String> {
    status(member, "Role: leader")
}

fn endpoints<'a>(members: impl IntoIterator<Item = &'a Daemon>) -> Endpoints {
    members.into_iter().map(Daemon::endpoint).collect::<Vec<_>>().try_into().unwrap()
}

async fn connected(client: &Client) -> Connection {
    in_time("the client finds the leader", client.connected()).await
}

/// Why the client found the server unfit.
async fn unfit(client: &Client) -> Unfit {
    eventually("the client says why", async || match &*client.state().borrow() {
        State::Disconnected(NotConnected::Unreachable(error)) => match &error.fault {
            ConnectFault::Closed(Closed::Unfit(unfit)) => Ok(*unfit),
            other => Err(format!("{other:?}")),
        },
        other => Err(format!("{other:?}")),
    })
    .await
}

#[tokio::test]
async fn followers_are_passed_over_and_a_new_leader_is_found_when_the_old_one_dies() {
    let mut members = cluster().await;
    members.rotate_left(1);
    let (client, _updates) = start(endpoints(&members));
    let connection = connected(&client).await;
    assert_eq!(connection.endpoint(), &members[2].endpoint());
    is_leader(&members[2]).unwrap();
    add_root(&connection).await;

    members[2].kill();
    in_time("the end", connection.closed()).await;
    let connection = connected(&client).await;
    let leader = members[..2]
        .iter()
        .find(|member| member.endpoint() == *connection.endpoint())
        .expect("one that lives");
    is_leader(leader).unwrap();
    client.transact(adding_bridges(&["br0"])).await.unwrap();

    // The old leader comes back as a follower. The client stays with the new leader.
    members[2].start("cluster.db").await;
    eventually("it follows", async || status(&members[2], "Role: follower")).await;
    client.transact(adding_bridges(&["br1"])).await.unwrap();
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_leader_that_loses_its_followers_is_left() {
    let members = cluster().await;
    let (client, _updates) = start(endpoints(&members));
    let connection = connected(&client).await;
    assert_eq!(connection.endpoint(), &members[0].endpoint());
    add_root(&connection).await;

    members[0].control(&["cluster/failure-test", "stop-raft-rpc"]);
    let closed = in_time("the end", connection.closed()).await;
    assert!(matches!(closed, Closed::Unfit(Unfit::Disconnected | Unfit::Follower)), "{closed:?}");
    let connection = connected(&client).await;
    assert_ne!(connection.endpoint(), &members[0].endpoint());
    client.transact(adding_bridges(&["br0"])).await.unwrap();
}

#[tokio::test]
async fn a_follower_alone_is_not_talked_to_and_the_reason_is_given() {
    let members = cluster().await;
    let (client, _updates) = start(members[1].endpoint());
    assert_eq!(unfit(&client).await, Unfit::Follower);
    let error = client.transact(adding_bridges(&["br0"])).await.unwrap_err();
    let TransactError::NotConnected(NotConnected::Unreachable(error)) = error else {
        panic!("{error:?}")
    };
    assert_eq!(error.endpoint, members[1].endpoint());
    assert_eq!(error.fault.to_string(), "the server is not the leader of its cluster");
}

/// A cluster of one member, restored from a backup of its file.
#[tokio::test]
async fn a_member_that_forgot_what_was_seen_is_not_talked_to_until_it_has_caught_up() {
    let mut daemon = Daemon::new();
    daemon.create_cluster("cluster.db", schema(SWITCH_SCHEMA));
    daemon.start("cluster.db").await;
    let (client, _updates) = start(daemon.endpoint());
    add_root(&connected(&client).await).await;
    std::fs::copy(daemon.path("cluster.db"), daemon.path("backup.db")).unwrap();
    let bridges: Vec<String> = (0..20).map(|number| format!("br{number}")).collect();
    for bridge in &bridges {
        client.transact(adding_bridges(&[bridge])).await.unwrap();
    }

    daemon.kill();
    daemon.start("backup.db").await;
    assert!(matches!(unfit(&client).await, Unfit::Stale { index, seen } if index < seen));

    // As the other members would do, if there were any.
    let writer = daemon.open(DATABASE).await;
    for bridge in &bridges {
        writer.transact(adding_bridges(&[bridge])).await.unwrap();
    }
    connected(&client).await;
}

#[tokio::test]
async fn a_cluster_in_place_of_another_begins_anew() {
    let mut daemon = Daemon::new();
    daemon.create_cluster("cluster.db", schema(SWITCH_SCHEMA));
    daemon.start("cluster.db").await;
    let (client, _updates) = start(daemon.endpoint());
    let connection = connected(&client).await;
    add_root(&connection).await;
    for number in 0..20 {
        client.transact(adding_bridges(&[&format!("br{number}")])).await.unwrap();
    }
    daemon.kill();
    in_time("the end", connection.closed()).await;
    daemon.create_cluster("other.db", SWITCH_SCHEMA);
    daemon.start("other.db").await;
    connected(&client).await;
}

#[tokio::test]
async fn servers_without_a_cluster_are_good_also_if_they_are_too_old_to_say_so() {
    let (daemon, _writer) = switch().await;
    let (client, _updates) = start(daemon.endpoint());
    connected(&client).await;

    let old = ScriptedServer::new();
    let (client, _updates) = start(old.endpoint());
    let mut peer = old.accept_client().await;
    let request = peer.expect("get_schema").await;
    assert_eq!(request["params"], json!(["_Server"]));
    peer.send(
        &json!({"id": request["id"], "result": null, "error": {"error": "unknown database"}})
            .to_string(),
    )
    .await;
    connected(&client).await;
}
