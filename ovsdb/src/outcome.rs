//! The results of a transaction (RFC 7047 §4.1.3, the "result" of the response).

mod row;

pub use row::SelectedRow;
use serde::Deserialize;

use crate::{
    error::{ErrorKind, OvsdbError, explanation},
    transaction::{Label, NamedUuid, OperationIndex, ResultForm, Selection, TransactError},
    value::{Atom, Uuid},
};

/// The results of a committed transaction, read with the handles that the methods of
/// [`Transaction`](crate::Transaction) returned.
///
/// The accessors panic on a handle of another transaction, which is a programming error like an
/// index out of bounds.
#[derive(Debug, Clone)]
pub struct Outcome {
    transaction: u64,
    results: Vec<OperationResult>,
}

#[derive(Debug, Clone)]
enum OperationResult {
    Uuid(Uuid),
    Rows(Vec<SelectedRow>),
    Count(u64),
    Empty,
}

impl Outcome {
    /// The UUID that the server assigned to an inserted row.
    pub fn uuid(&self, row: &NamedUuid) -> Uuid {
        match self.result(row.operation) {
            OperationResult::Uuid(uuid) => *uuid,
            result => unreachable!("an insert has a uuid, not {result:?}: checked on arrival"),
        }
    }

    /// The rows that a `select` found.
    pub fn rows(&self, selection: Selection) -> &[SelectedRow] {
        match self.result(selection.0) {
            OperationResult::Rows(rows) => rows,
            result => unreachable!("a select has rows, not {result:?}: checked on arrival"),
        }
    }

    /// The number of rows that an `update`, `mutate` or `delete` matched; 0 for other operations.
    pub fn count(&self, operation: OperationIndex) -> u64 {
        match self.result(operation) {
            OperationResult::Count(count) => *count,
            OperationResult::Uuid(_) | OperationResult::Rows(_) | OperationResult::Empty => 0,
        }
    }

    fn result(&self, operation: OperationIndex) -> &OperationResult {
        assert_eq!(
            operation.transaction, self.transaction,
            "the handle belongs to another transaction"
        );
        &self.results[operation.index]
    }

    /// Decodes the answer to a transaction with these operations.
    pub(crate) fn decode(
        answer: &str,
        transaction: u64,
        labels: &[Label],
    ) -> Result<Self, TransactError> {
        let wire: Vec<Option<WireResult>> = serde_json::from_str(answer)
            .map_err(|error| TransactError::Protocol(error.to_string()))?;
        let answered = wire.len();
        let mut results = Vec::with_capacity(labels.len());
        // RFC 7047 §4.1.3: one result for each operation, in order. After one that failed the
        // results are null. If the commit failed, its error follows the results of all operations.
        for (index, result) in wire.into_iter().enumerate() {
            let label = labels.get(index);
            match (result, label) {
                (Some(WireResult { error: Some(error), details, io_error, syntax, .. }), label) => {
                    let error = OvsdbError {
                        kind: ErrorKind::from(error.as_str()),
                        details: explanation(details, io_error),
                        syntax,
                    };
                    return Err(match label {
                        Some(label) => {
                            TransactError::Operation { index, operation: label.to_string(), error }
                        }
                        None => TransactError::Commit(error),
                    });
                }
                (Some(result), Some(label)) => results.push(result.of_form(label)?),
                (None, Some(label)) => {
                    return Err(TransactError::Protocol(format!(
                        "{label} was skipped without an error before it"
                    )));
                }
                (_, None) => {
                    return Err(TransactError::Protocol(format!(
                        "{answered} results for {} operations",
                        labels.len()
                    )));
                }
            }
        }
        match labels.get(results.len()) {
            None => Ok(Self { transaction, results }),
            Some(label) => Err(TransactError::Protocol(format!("no result for {label}"))),
        }
    }
}

#[derive(Deserialize)]
struct WireResult {
    error: Option<String>,
    details: Option<String>,
    #[serde(rename = "io-error")]
    io_error: Option<String>,
    syntax: Option<String>,
    uuid: Option<Atom>,
    rows: Option<Vec<SelectedRow>>,
    count: Option<u64>,
}

impl WireResult {
    fn of_form(self, label: &Label) -> Result<OperationResult, TransactError> {
        let result = match label.result {
            ResultForm::Uuid => {
                self.uuid.as_ref().and_then(Atom::as_uuid).map(OperationResult::Uuid)
            }
            ResultForm::Rows => self.rows.map(OperationResult::Rows),
            ResultForm::Count => self.count.map(OperationResult::Count),
            ResultForm::Empty => Some(OperationResult::Empty),
        };
        result.ok_or_else(|| {
            TransactError::Protocol(format!("the result of {label} lacks its value"))
        })
    }
}

#[cfg(test)]
mod tests;
