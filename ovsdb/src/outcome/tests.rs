use super::*;
use crate::transaction::{Condition, Row, Transaction, Where};

const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

fn decode(transaction: Transaction, answer: &str) -> Result<Outcome, TransactError> {
    let (id, labels) = transaction.into_labels();
    Outcome::decode(answer, id, &labels)
}

#[test]
fn each_result_is_read_with_the_handle_of_its_operation() {
    let mut transaction = Transaction::new();
    let row = transaction.insert("Port", Row::new());
    let selection =
        transaction.select("Port", Where::all(), &["name", "tag", "ids", "ifaces", "up"]);
    let deleted = transaction.delete("Port", Condition::equal("name", "x"));
    let comment = transaction.comment("x");
    let answer = format!(
        r#"[{{"uuid":["uuid","{UUID}"]}},
            {{"rows":[{{"_uuid":["uuid","{UUID}"],"name":"p","tag":7,"ids":["map",[["k","v"]]],"ifaces":["set",[]],"up":true}}]}},
            {{"count":2}},{{}}]"#
    );
    let outcome = decode(transaction, &answer).unwrap();
    let uuid: Uuid = UUID.parse().unwrap();
    assert_eq!(outcome.uuid(&row), uuid);
    assert_eq!((outcome.count(deleted), outcome.count(comment)), (2, 0));
    let [found] = outcome.rows(selection) else { panic!("one row") };
    assert_eq!(
        (found.uuid(), found.string("name"), found.integer("tag"), found.boolean("up")),
        (uuid, Some("p"), Some(7), Some(true))
    );
    assert_eq!(found.map("ids"), [("k".to_owned(), "v".to_owned())].into());
    assert_eq!(found.strings("name"), ["p"]);
    assert_eq!(
        (found.uuids("ifaces"), found.string("nothing"), found.integer("name")),
        (vec![], None, None)
    );
}

#[test]
fn an_error_is_tied_to_its_operation() {
    let mut transaction = Transaction::new();
    transaction.comment("x");
    transaction.insert("Interface", Row::new());
    transaction.delete("Port", Where::all());
    let error =
        decode(transaction, r#"[{},{"error":"constraint violation","details":"why"},null]"#)
            .unwrap_err();
    assert_eq!(error.kind(), Some(&ErrorKind::ConstraintViolation));
    assert_eq!(error.to_string(), "insert Interface, operation 1 of the transaction, was refused");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "constraint violation: why");
}

#[test]
fn an_error_at_the_end_is_the_commits() {
    let mut transaction = Transaction::new();
    transaction.delete("Port", Where::all());
    let error = decode(
        transaction,
        r#"[{"count":1},{"error":"referential integrity violation","details":"why"}]"#,
    )
    .unwrap_err();
    assert!(
        matches!(&error, TransactError::Commit(error) if error.kind == ErrorKind::ReferentialIntegrityViolation),
        "{error:?}"
    );
}

#[test]
fn a_write_that_the_servers_disk_refuses_has_its_reason() {
    let mut transaction = Transaction::new();
    transaction.delete("Port", Where::all());
    let answer = r#"[{"count":1},{"details":"nb.db: write failed","error":"I/O error","io-error":"No space left on device"}]"#;
    let error = decode(transaction, answer).unwrap_err();
    assert!(
        matches!(&error, TransactError::Commit(error) if error.details == "nb.db: write failed (No space left on device)"),
        "{error:?}"
    );
}

#[test]
fn an_answer_that_does_not_fit_is_told_from_an_outcome() {
    for answer in [
        "{}",
        "[]",
        "[null]",
        r#"[{"uuid":"x"}]"#,
        r#"[{"count":-1}]"#,
        "[{}]",
        r#"[{"count":1},{}]"#,
    ] {
        let mut transaction = Transaction::new();
        transaction.delete("Port", Where::all());
        let error = decode(transaction, answer).expect_err(answer);
        assert!(matches!(error, TransactError::Protocol(_)), "{answer}: {error:?}");
    }
}

#[test]
#[should_panic(expected = "the handle belongs to another transaction")]
fn a_handle_of_another_transaction_is_a_mistake() {
    let [mut one, mut other] = [Transaction::new(), Transaction::new()];
    let row = one.insert("Port", Row::new());
    other.insert("Port", Row::new());
    decode(other, &format!(r#"[{{"uuid":["uuid","{UUID}"]}}]"#)).unwrap().uuid(&row);
}
