//! Replicas of a real database.

use std::time::Duration;

use ovsdb::{ChangeKind, Condition, Datum, Monitor, Mutation, Row, Transaction, Where};

use crate::{
    daemon::{Daemon, NORTHBOUND_SCHEMA, schema},
    eventually::in_time,
    switch::{
        Bridge, DATABASE, Future, Switch, add_bridge, adding_bridges, names, removing_bridge,
        switch,
    },
};

fn bridges() -> Monitor {
    Monitor::new().table::<Bridge>(Where::all())
}

#[tokio::test]
async fn inserts_changes_and_deletes_reach_the_replica() {
    let (daemon, connection) = switch().await;
    add_bridge(&connection, "before").await;
    let writer = daemon.open(DATABASE).await;
    let mut monitored = connection.monitor(bridges().keep_old_rows()).await.unwrap();
    assert_eq!(names(monitored.rows()), ["before"]);

    add_bridge(&writer, "later").await;
    let changes = in_time("the insert", monitored.changed()).await.unwrap();
    let [insert] = changes.iter().collect::<Vec<_>>()[..] else { panic!("{changes:?}") };
    assert_eq!((insert.table, insert.kind), ("Bridge", ChangeKind::Insert));
    let uuid = insert.uuid;
    assert_eq!(
        monitored.row::<Bridge>(uuid).unwrap(),
        &Bridge { name: "later".to_owned(), ..Bridge::default() }
    );

    let mut transaction = Transaction::new();
    transaction.update("Bridge", uuid, Row::new().with("fail_mode", "secure"));
    writer.transact(transaction).await.unwrap();
    let changes = in_time("the change", monitored.changed()).await.unwrap();
    let [change] = changes.iter().collect::<Vec<_>>()[..] else { panic!("{changes:?}") };
    assert_eq!(
        (change.uuid, change.kind, change.columns()),
        (uuid, ChangeKind::Modify, &["fail_mode"][..])
    );
    assert_eq!(change.old::<Bridge>().unwrap().fail_mode, None);
    assert_eq!(monitored.row::<Bridge>(uuid).unwrap().fail_mode.as_deref(), Some("secure"));

    writer.transact(removing_bridge(uuid)).await.unwrap();
    let changes = in_time("the delete", monitored.changed()).await.unwrap();
    let [delete] = changes.iter().collect::<Vec<_>>()[..] else { panic!("{changes:?}") };
    assert_eq!((delete.uuid, delete.kind), (uuid, ChangeKind::Delete));
    assert_eq!(delete.old::<Bridge>().unwrap().fail_mode.as_deref(), Some("secure"));
    assert_eq!(names(monitored.rows()), ["before"]);
}

#[tokio::test]
async fn changes_of_sets_and_maps_are_followed_exactly() {
    let (_daemon, connection) = switch().await;
    let mut monitored = connection.monitor(bridges().table::<Switch>(Where::all())).await.unwrap();
    let steps: [Vec<Mutation>; 6] = [
        vec![Mutation::insert("external_ids", Datum::map([("a", "1"), ("b", "2")]))],
        vec![
            Mutation::delete_keys("external_ids", ["a"]),
            Mutation::insert("external_ids", Datum::map([("a", "3"), ("c", "4")])),
        ],
        vec![Mutation::delete("external_ids", Datum::map([("b", "2")]))],
        vec![
            Mutation::delete("external_ids", Datum::map([("c", "another value")])),
            Mutation::insert("external_ids", Datum::map([("d", "")])),
        ],
        vec![Mutation::delete_keys("external_ids", ["a", "c", "d"])],
        vec![Mutation::insert("external_ids", Datum::map([("a", "1")]))],
    ];
    for (step, mutations) in steps.into_iter().enumerate() {
        let bridge = format!("br{step}");
        let mut transaction = adding_bridges(&[&bridge]);
        transaction.mutate("Open_vSwitch", Where::all(), mutations);
        let selection =
            transaction.select("Open_vSwitch", Where::all(), &["external_ids", "bridges"]);
        let outcome = connection.transact(transaction).await.unwrap();
        in_time("the change", monitored.changed()).await.unwrap();
        let [truth] = outcome.rows(selection) else { panic!("one root") };
        let (_, root) = monitored.rows::<Switch>().next().unwrap();
        assert_eq!(root.external_ids, truth.map("external_ids"), "step {step}");
        assert_eq!(root.bridges, truth.uuids("bridges"), "step {step}");
    }
    assert_eq!(monitored.replica().count::<Bridge>(), 6);
}

#[tokio::test]
async fn only_rows_that_meet_a_condition_are_replicated() {
    let (_daemon, connection) = switch().await;
    connection.transact(adding_bridges(&["br0", "br1", "br2"])).await.unwrap();
    // In a monitor, a row has to meet one of the conditions.
    let either = [
        Condition::equal("name", "br1"),
        Condition::includes("external_ids", Datum::map([("mine", "yes")])),
    ];
    let mut monitored = connection.monitor(Monitor::new().table::<Bridge>(either)).await.unwrap();
    assert_eq!(names(monitored.rows()), ["br1"]);

    let mut transaction = Transaction::new();
    let mine = Row::new().with("external_ids", Datum::map([("mine", "yes")]));
    transaction.update("Bridge", Condition::equal("name", "br2"), mine);
    connection.transact(transaction).await.unwrap();
    let changes = in_time("the row comes into view", monitored.changed()).await.unwrap();
    assert_eq!(changes.iter().map(|change| change.kind).collect::<Vec<_>>(), [ChangeKind::Insert]);
    assert_eq!(names(monitored.rows()), ["br1", "br2"]);
}

#[tokio::test]
async fn what_a_database_lacks_is_left_out_of_a_monitor() {
    let (_daemon, connection) = switch().await;
    add_bridge(&connection, "br0").await;
    let monitored = connection.monitor(bridges().table::<Future>(Where::all())).await.unwrap();
    let (_, bridge) = monitored.rows::<Bridge>().next().unwrap();
    assert_eq!((bridge.name.as_str(), bridge.of_the_future.len()), ("br0", 0));
    assert_eq!(monitored.rows::<Future>().count(), 0);
}

#[tokio::test]
async fn a_monitor_and_a_transaction_go_out_together_and_updates_come_before_the_answer() {
    let (_daemon, connection) = switch().await;
    let monitored = connection.monitor(bridges());
    let outcome = connection.transact(adding_bridges(&["br0"]));
    // The server answers in the order of the calls, whichever is awaited first.
    outcome.await.unwrap();
    let mut monitored = monitored.await.unwrap();
    assert_eq!(names(monitored.rows()), [""; 0]);
    in_time("the update that came before the answer", monitored.changed()).await.unwrap();
    assert_eq!(names(monitored.rows()), ["br0"]);
}

#[tokio::test]
async fn two_monitors_of_one_connection_do_not_meet() {
    let (_daemon, connection) = switch().await;
    let mut all = connection.monitor(bridges()).await.unwrap();
    let mut some = connection
        .monitor(Monitor::new().table::<Bridge>(Condition::equal("name", "br1")))
        .await
        .unwrap();
    connection.transact(adding_bridges(&["br0"])).await.unwrap();
    connection.transact(adding_bridges(&["br1"])).await.unwrap();
    in_time("the first", all.changed()).await.unwrap();
    in_time("the second", all.changed()).await.unwrap();
    in_time("the second", some.changed()).await.unwrap();
    assert_eq!(
        (names(all.rows()), names(some.rows())),
        (vec!["br0".to_owned(), "br1".to_owned()], vec!["br1".to_owned()])
    );
}

#[tokio::test]
async fn a_wait_for_changes_that_is_given_up_loses_none() {
    let (_daemon, connection) = switch().await;
    let mut monitored = connection.monitor(bridges()).await.unwrap();
    tokio::time::timeout(Duration::from_millis(1), monitored.changed())
        .await
        .expect_err("nothing has changed");
    add_bridge(&connection, "br0").await;
    in_time("the change", monitored.changed()).await.unwrap();
    assert_eq!(names(monitored.rows()), ["br0"]);
}

#[tokio::test]
async fn a_monitor_keeps_its_connection_open_and_tells_when_it_is_over() {
    let (mut daemon, connection) = switch().await;
    let mut monitored = connection.monitor(bridges()).await.unwrap();
    drop(connection);
    add_bridge(&monitored.connection().clone(), "br0").await;
    in_time("the change", monitored.changed()).await.unwrap();
    daemon.kill();
    let closed = in_time("the end", monitored.changed()).await.unwrap_err();
    assert_eq!(closed.to_string(), "the server closed the connection");
}

#[tokio::test]
async fn a_field_that_cannot_hold_its_column_is_found_before_anything_is_asked() {
    ovsdb::table! {
        struct Wrong in "Logical_Switch_Port" {
            addresses: Option<String>,
        }
    }
    let daemon = Daemon::with_schema(schema(NORTHBOUND_SCHEMA)).await;
    let connection = daemon.open("OVN_Northbound").await;
    let error = connection.monitor(Monitor::new().table::<Wrong>(Where::all())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the column addresses of Logical_Switch_Port has another type than its field"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_follows_many_writers_on_many_threads() {
    let (daemon, connection) = switch().await;
    let mut monitored = connection.monitor(bridges()).await.unwrap();
    let writers = (0..4).map(|writer| {
        let endpoint = daemon.endpoint();
        tokio::spawn(async move {
            let connection =
                ovsdb::Connection::open(&endpoint, DATABASE, ovsdb::Options::default())
                    .await
                    .unwrap();
            for number in 0..25 {
                add_bridge(&connection, &format!("br{writer}-{number}")).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    while monitored.replica().count::<Bridge>() < 100 {
        in_time("the next change", monitored.changed()).await.unwrap();
    }
}
