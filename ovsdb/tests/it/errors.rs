//! Each way in which a real server refuses a transaction.

use ovsdb::{
    Condition, ErrorKind, Mutation, Mutator, Row, TransactError, Transaction, Uuid, Where,
};

use crate::switch::{adding_bridges, switch};

/// The position and kind of the error of a transaction whose first operation is a comment, as text.
async fn refusal<T>(
    connection: &ovsdb::Connection,
    build: impl FnOnce(&mut Transaction) -> T,
) -> String {
    let mut transaction = Transaction::new();
    transaction.comment("first");
    build(&mut transaction);
    match connection.transact(transaction).await.expect_err("a refusal") {
        TransactError::Operation { index, operation, error } => {
            format!("{index} {operation}: {}", error.kind)
        }
        TransactError::Commit(error) => format!("commit: {}", error.kind),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_operation_that_makes_no_sense_is_named() {
    let (_daemon, connection) = switch().await;
    let select = async |table: &str, column: &str| {
        refusal(&connection, |tx| tx.select(table, Where::all(), &[column])).await
    };
    assert_eq!(select("Nothing", "name").await, "1 select Nothing: syntax error");
    assert_eq!(select("Bridge", "nothing").await, "1 select Bridge: syntax error");

    let insert = async |row: Row| refusal(&connection, |tx| tx.insert("Bridge", row)).await;
    assert_eq!(insert(Row::new().with("nothing", 1_i64)).await, "1 insert Bridge: unknown column");
    assert_eq!(insert(Row::new().with("name", 1_i64)).await, "1 insert Bridge: syntax error");
    assert_eq!(
        insert(Row::new().with("fail_mode", "x")).await,
        "1 insert Bridge: constraint violation"
    );

    let unknown = Condition::equal("nothing", 1_i64);
    assert_eq!(
        refusal(&connection, |tx| tx.delete("Bridge", unknown)).await,
        "1 delete Bridge: unknown column"
    );
}

#[tokio::test]
async fn an_operation_that_cannot_be_carried_out_is_named() {
    let (_daemon, connection) = switch().await;
    assert_eq!(refusal(&connection, Transaction::abort).await, "1 abort: aborted");
    assert_eq!(refusal(&connection, |tx| tx.assert("lock")).await, "1 assert: not owner");

    let change = async |mutator, value: i64| {
        let largest = Row::new().with("next_cfg", i64::MAX);
        refusal(&connection, |tx| {
            tx.update("Open_vSwitch", Where::all(), largest);
            tx.mutate("Open_vSwitch", Where::all(), vec![Mutation::new("next_cfg", mutator, value)])
        })
        .await
    };
    assert_eq!(change(Mutator::Divide, 0).await, "2 mutate Open_vSwitch: domain error");
    assert_eq!(change(Mutator::Add, 1).await, "2 mutate Open_vSwitch: range error");
}

#[tokio::test]
async fn operations_whose_result_together_is_refused_are_told_from_one_that_is_wrong() {
    let (_daemon, connection) = switch().await;
    connection.transact(adding_bridges(&["br0"])).await.unwrap();
    let nowhere = Row::new().with("bridges", Uuid::from_u128(7));
    let dangling =
        refusal(&connection, |tx| tx.update("Open_vSwitch", Where::all(), nowhere)).await;
    assert_eq!(dangling, "commit: referential integrity violation");
    let twice = refusal(&connection, |tx| {
        let bridge = tx.insert("Bridge", Row::new().with("name", "br0"));
        tx.mutate("Open_vSwitch", Where::all(), vec![Mutation::insert("bridges", &bridge)])
    });
    assert_eq!(twice.await, "commit: constraint violation");
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_refused_transaction_leaves_nothing_behind() {
    let (_daemon, connection) = switch().await;
    let mut transaction = adding_bridges(&["br0"]);
    transaction.abort();
    connection.transact(transaction).await.unwrap_err();
    let mut transaction = Transaction::new();
    let selection = transaction.select("Bridge", Where::all(), &[]);
    assert_eq!(connection.transact(transaction).await.unwrap().rows(selection), []);
}

#[tokio::test]
async fn a_value_that_cannot_be_sent_is_refused_here_and_harms_nobody_else() {
    let (_daemon, connection) = switch().await;
    let error = connection.transact(adding_bridges(&["br\0"])).await.unwrap_err();
    assert_eq!(error.to_string(), "the transaction cannot be sent: a string holds a NUL character");
    connection.transact(adding_bridges(&["br0"])).await.unwrap();
}

#[tokio::test]
async fn the_servers_own_explanation_is_kept() {
    let (_daemon, connection) = switch().await;
    connection.transact(adding_bridges(&["br0"])).await.unwrap();
    let error = connection.transact(adding_bridges(&["br0"])).await.unwrap_err();
    assert_eq!(error.kind(), Some(&ErrorKind::ConstraintViolation));
    let details = &error.server_error().unwrap().details;
    assert!(details.contains("identical values (br0) for index on column \"name\""), "{details}");
}
