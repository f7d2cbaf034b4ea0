//! Other texts of a database server or an administrator: values, schemas, results of transactions,
//! endpoints.

use ovsdb::{Atom, Datum, Endpoints, Mutation, Row, Schema, Transaction, Where, fuzzing};
use serde::{Serialize, de::DeserializeOwned};

/// `data` is the text of any of them.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    check_value::<Atom>(text);
    check_value::<Datum>(text);
    if let Ok(schema) = serde_json::from_str::<Schema>(text) {
        for (table, found) in &schema.tables {
            assert!(schema.has_table(table) && schema.has_column(table, "_uuid"));
            assert!(found.columns.keys().all(|column| schema.column(table, column).is_some()));
        }
    }
    check_outcome(text);
    match text.parse::<Endpoints>() {
        Ok(endpoints) => {
            assert_eq!(endpoints.to_string().parse().as_ref(), Ok(&endpoints), "{endpoints}")
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_value<T: Serialize + DeserializeOwned + std::fmt::Debug>(text: &str) {
    let Ok(value) = serde_json::from_str::<T>(text) else { return };
    // The server refuses NUL in a string, so the client refuses to write one.
    let Ok(written) = serde_json::to_string(&value) else {
        return assert!(text.contains("\\u0000"), "{value:?} cannot be written");
    };
    let again: T = serde_json::from_str(&written)
        .unwrap_or_else(|error| panic!("{written} is refused: {error}"));
    // A real number may change in its last digit; nothing else may change.
    let shown = format!("{value:?}");
    if !shown.contains("Real(") {
        assert_eq!(format!("{again:?}"), shown);
    }
}

/// A transaction with one operation per form of result: all handles of an accepted result can be
/// used.
fn check_outcome(text: &str) {
    let mut transaction = Transaction::new();
    let inserted = transaction.insert("Port", Row::new().with("name", "x"));
    let selected = transaction.select("Port", Where::all(), &["name"]);
    let mutated = transaction.mutate("Port", Where::all(), Vec::<Mutation>::new());
    let comment = transaction.comment("x");
    if let Ok(outcome) = fuzzing::outcome(transaction, text) {
        let _ = outcome.uuid(&inserted);
        assert!(outcome.rows(selected).len() <= text.len());
        let _ = outcome.count(mutated);
        assert_eq!(outcome.count(comment), 0);
    }
}
