//! The matrix of tenants: who may try what, and what nobody else may notice of it.
//!
//! | part | what it is |
//! |---|---|
//! | [`matrix`] | the rows: party, what it does, what has to hold |
//! | [`outcome`] | what became of a row, in a file of the target directory |
//! | [`report`] | runs the rows and prints a line for each, with the figure seen |
//! | [`table`] | the table of SECURITY.md |
//!
//! The rows themselves are in `integration/tests/lab/tenants.rs`; [`crate::matrix`] runs them.
//!
//! Must not know: how a row is tried.

pub mod matrix;
pub mod outcome;
pub mod report;
pub mod table;

use std::env;

/// Environment variable that selects the long form of rows, with a real API server; its value does
/// not matter.
pub const LONG: &str = "OVN_TENANTS_LONG";
/// Environment variable: the numbers of rows, separated by spaces. If it is not set, those that are
/// not known to fail.
const ROWS: &str = "OVN_TENANTS_ROWS";

/// Whether rows run at full size, with a real API server.
pub fn long_forms() -> bool {
    env::var_os(LONG).is_some()
}

/// Whether this row is to run: one that is named, or else each that is not known to fail, which
/// would cost minutes and prove nothing.
pub fn is_to_run(number: u8) -> bool {
    match env::var(ROWS) {
        Ok(numbers) => numbers.split_whitespace().any(|wanted| wanted.parse() == Ok(number)),
        Err(_) => matrix::find(number).is_none_or(|row| row.fails.is_none()),
    }
}
