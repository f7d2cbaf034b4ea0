//! Transactions on a real database.

use std::time::Duration;

use ovsdb::{Condition, Datum, Mutation, Mutator, Row, Transaction, Until, Where};

use crate::switch::{DATABASE, adding_bridges, switch};

#[tokio::test]
async fn rows_refer_to_rows_of_the_same_transaction() {
    let (_daemon, connection) = switch().await;
    let mut transaction = Transaction::new();
    let interface =
        transaction.insert("Interface", Row::new().with("name", "p0").with("type", "internal"));
    let port =
        transaction.insert("Port", Row::new().with("name", "p0").with("interfaces", &interface));
    let bridge = transaction
        .insert("Bridge", Row::new().with("name", "br0").with("ports", vec![port.clone()]));
    let added = transaction.mutate(
        "Open_vSwitch",
        Where::all(),
        vec![Mutation::insert("bridges", &bridge)],
    );
    let selection =
        transaction.select("Port", Condition::equal("name", "p0"), &["interfaces", "name"]);
    let outcome = connection.transact(transaction).await.unwrap();

    assert_eq!(outcome.count(added), 1);
    let [row] = outcome.rows(selection) else { panic!("one port") };
    assert_eq!((row.uuid(), row.string("name")), (outcome.uuid(&port), Some("p0")));
    assert_eq!(row.uuids("interfaces"), [outcome.uuid(&interface)]);
}

#[tokio::test]
async fn values_of_every_type_are_read_as_they_were_written() {
    let (_daemon, connection) = switch().await;
    connection.transact(adding_bridges(&["br0"])).await.unwrap();
    let quoted = "\"quoted\" \\ {[ \u{1f600}\n";
    let br0 = || Condition::equal("name", "br0");
    let mut transaction = Transaction::new();
    let row = Row::new()
        .with("fail_mode", "secure")
        .with("stp_enable", true)
        .with("flood_vlans", Datum::set([1_i64, 7]))
        .with("external_ids", Datum::map([("a", "1"), ("b", quoted)]));
    let updated = transaction.update("Bridge", br0(), row);
    transaction.mutate(
        "Bridge",
        br0(),
        vec![Mutation::delete_keys("external_ids", ["a"]), Mutation::insert("flood_vlans", 9_i64)],
    );
    let selection = transaction.select(
        "Bridge",
        br0(),
        &["fail_mode", "stp_enable", "flood_vlans", "external_ids", "mirrors"],
    );
    let outcome = connection.transact(transaction).await.unwrap();

    assert_eq!(outcome.count(updated), 1);
    let [row] = outcome.rows(selection) else { panic!("one bridge") };
    assert_eq!((row.string("fail_mode"), row.boolean("stp_enable")), (Some("secure"), Some(true)));
    assert_eq!(row.datum("flood_vlans"), Some(&Datum::set([1_i64, 7, 9])));
    assert_eq!(row.map("external_ids"), [("b".to_owned(), quoted.to_owned())].into());
    assert!(row.uuids("mirrors").is_empty());
}

#[tokio::test]
async fn conditions_choose_rows() {
    let (_daemon, connection) = switch().await;
    connection.transact(adding_bridges(&["br0", "br1", "br2"])).await.unwrap();
    let mut transaction = Transaction::new();
    transaction.update(
        "Bridge",
        Condition::equal("name", "br1"),
        Row::new().with("external_ids", Datum::map([("k", "v")])),
    );
    let both = [
        Condition::includes("external_ids", Datum::map([("k", "v")])),
        Condition::not_equal("name", "br0"),
    ];
    let having = transaction.select("Bridge", both, &["name"]);
    let lacking = transaction.select(
        "Bridge",
        Condition::excludes("external_ids", Datum::map([("k", "v")])),
        &["name"],
    );
    let outcome = connection.transact(transaction).await.unwrap();
    assert_eq!(
        outcome.rows(having).iter().map(|row| row.string("name")).collect::<Vec<_>>(),
        [Some("br1")]
    );
    assert_eq!(outcome.rows(lacking).len(), 2);
}

#[tokio::test]
async fn counters_are_changed_by_arithmetic() {
    let (_daemon, connection) = switch().await;
    let mut transaction = Transaction::new();
    transaction.mutate(
        "Open_vSwitch",
        Where::all(),
        vec![Mutation::new("next_cfg", Mutator::Add, 40_i64)],
    );
    transaction.mutate(
        "Open_vSwitch",
        Where::all(),
        vec![Mutation::new("next_cfg", Mutator::Remainder, 7_i64)],
    );
    let selection = transaction.select("Open_vSwitch", Where::all(), &["next_cfg"]);
    let outcome = connection.transact(transaction).await.unwrap();
    assert_eq!(outcome.rows(selection)[0].integer("next_cfg"), Some(5));
}

#[tokio::test]
async fn a_wait_guards_a_transaction() {
    let (_daemon, connection) = switch().await;
    let guarded = || {
        // Only if there is no bridge of this name yet.
        let mut transaction = Transaction::new();
        transaction.wait(
            "Bridge",
            Condition::equal("name", "br0"),
            &["name"],
            Until::Equal,
            vec![],
            Duration::ZERO,
        );
        let bridge = transaction.insert("Bridge", Row::new().with("name", "br0"));
        transaction.mutate(
            "Open_vSwitch",
            Where::all(),
            vec![Mutation::insert("bridges", &bridge)],
        );
        transaction
    };
    connection.transact(guarded()).await.unwrap();
    let error = connection.transact(guarded()).await.unwrap_err();
    assert_eq!(error.kind(), Some(&ovsdb::ErrorKind::TimedOut), "{error:?}");
    assert_eq!(error.to_string(), "wait Bridge, operation 0 of the transaction, was refused");
}

#[tokio::test]
async fn a_wait_ends_when_another_transaction_makes_it_true() {
    let (daemon, connection) = switch().await;
    let mut transaction = Transaction::new();
    let rows = vec![Row::new().with("name", "br0")];
    transaction.wait(
        "Bridge",
        Where::all(),
        &["name"],
        Until::Equal,
        rows,
        Duration::from_secs(20),
    );
    let waiting = connection.transact(transaction);
    daemon.open(DATABASE).await.transact(adding_bridges(&["br0"])).await.unwrap();
    waiting.await.unwrap();
}

#[tokio::test]
async fn many_requests_are_under_way_at_once_and_each_gets_its_own_answer() {
    let (_daemon, connection) = switch().await;
    let sent: Vec<_> = (0..500_i64)
        .map(|number| {
            let mut transaction = Transaction::new();
            transaction.update("Open_vSwitch", Where::all(), Row::new().with("next_cfg", number));
            let selection = transaction.select("Open_vSwitch", Where::all(), &["next_cfg"]);
            (number, selection, connection.transact(transaction))
        })
        .collect();
    for (number, selection, answer) in sent {
        assert_eq!(answer.await.unwrap().rows(selection)[0].integer("next_cfg"), Some(number));
    }
}

#[tokio::test]
async fn a_transaction_whose_future_is_dropped_happens_all_the_same() {
    let (_daemon, connection) = switch().await;
    drop(connection.transact(adding_bridges(&["br0"])));
    let mut transaction = Transaction::new();
    let selection = transaction.select("Bridge", Where::all(), &["name"]);
    // The server executes the requests of one connection in order.
    assert_eq!(connection.transact(transaction).await.unwrap().rows(selection).len(), 1);
}

#[tokio::test]
async fn a_transaction_outlives_the_last_handle_of_its_connection() {
    let (_daemon, connection) = switch().await;
    let answer = connection.transact(adding_bridges(&["br0"]));
    drop(connection);
    answer.await.unwrap();
}
