//! Access to internals for fuzz targets: messages and updates, without a connection. Only with the
//! feature `fuzzing`, which no program enables.

use crate::{
    error::MonitorError,
    message::{self, Message},
    monitor::{Monitor, MonitorTables},
    outcome::Outcome,
    replica::Replica,
    schema::Schema,
    transaction::{TransactError, Transaction},
    update,
    value::Uuid,
};

/// Which of the three monitor methods is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `update`.
    Rfc,
    /// `update2`.
    Conditional,
    /// `update3`.
    Since,
}

/// The kind and the contents of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An answer to the request with this id, and its result unless it is an error.
    Answer(u64, Option<String>),
    /// An update of the monitor with this id, and its parameters.
    Update(u64, String),
    /// An echo request, and the reply to it.
    Echo(Vec<u8>),
    /// Any other message.
    Other,
}

/// Parses one message.
///
/// # Errors
/// The bytes are not a JSON-RPC message of OVSDB; the text says why.
pub fn read(message: Vec<u8>) -> Result<Kind, String> {
    Ok(match message::parse(message)? {
        Message::Answer { id, answer } => {
            Kind::Answer(id, answer.ok().map(|body| body.as_str().to_owned()))
        }
        Message::Update { monitor, params } => Kind::Update(monitor, params.as_str().to_owned()),
        Message::Echo { reply } => Kind::Echo(reply),
        Message::Unnumbered
        | Message::MonitorCanceled
        | Message::Lock { .. }
        | Message::Other { .. } => Kind::Other,
    })
}

/// An empty replica for this schema.
///
/// # Errors
/// The monitor does not fit the schema.
pub fn replica(monitor: &Monitor, schema: &Schema) -> Result<Replica, MonitorError> {
    let mut replica = monitor.blank_replica();
    MonitorTables::new(monitor, schema, &mut replica).map(|_| replica)
}

/// Applies the answer to a monitor request. Returns the number of changed rows and the last
/// transaction.
///
/// # Errors
/// The answer is invalid: the message says how. Rows before the invalid one have changed.
pub fn load(
    replica: &mut Replica,
    form: Form,
    answer: &str,
) -> (usize, Result<Option<Uuid>, String>) {
    let applied = update::load(replica, form.into(), answer);
    (applied.changes.len(), applied.result)
}

/// Applies the parameters of an update. Returns the number of changed rows and the last
/// transaction.
///
/// # Errors
/// The update is invalid: the message says how. Rows before the invalid one have changed.
pub fn update(
    replica: &mut Replica,
    form: Form,
    params: &str,
) -> (usize, Result<Option<Uuid>, String>) {
    let applied = update::update(replica, form.into(), params);
    (applied.changes.len(), applied.result)
}

/// Decodes the answer to a transaction.
///
/// # Errors
/// The answer reports an error, or does not fit the transaction.
pub fn outcome(transaction: Transaction, answer: &str) -> Result<Outcome, TransactError> {
    let (id, labels) = transaction.into_labels();
    Outcome::decode(answer, id, &labels)
}

impl From<Form> for update::Form {
    fn from(form: Form) -> Self {
        match form {
            Form::Rfc => Self::Rfc,
            Form::Conditional => Self::Conditional,
            Form::Since => Self::Since,
        }
    }
}
