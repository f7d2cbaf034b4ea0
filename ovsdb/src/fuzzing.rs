//! What the fuzz targets need of the inside: messages and updates, without a connection. Only with the feature `fuzzing`; no program has it.

use crate::{
    message::{self, Message},
    monitor::{Monitor, MonitorError, Request},
    outcome::Outcome,
    replica::Replica,
    schema::Schema,
    transaction::{TransactError, Transaction},
    update,
    value::Uuid,
};

/// Which of the three monitor methods reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `update`.
    Rfc,
    /// `update2`.
    Conditional,
    /// `update3`.
    Since,
}

/// What a message turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An answer to the request of this number; its result, if that is not an error.
    Answer(u64, Option<String>),
    /// A report of the monitor of this number, and its parameters.
    Update(u64, String),
    /// What is sent back.
    Echo(Vec<u8>),
    /// Nothing that says something.
    Other,
}

/// Reads one message.
pub fn read(message: Vec<u8>) -> Result<Kind, String> {
    Ok(match message::parse(message)? {
        Message::Answer { id, answer } => Kind::Answer(id, answer.ok().map(|body| body.as_str().to_owned())),
        Message::Update { monitor, params } => Kind::Update(monitor, params.as_str().to_owned()),
        Message::Echo { reply } => Kind::Echo(reply),
        Message::Unnumbered | Message::MonitorCanceled | Message::Lock { .. } | Message::Other { .. } => Kind::Other,
    })
}

/// A replica without rows, for this schema.
pub fn replica(monitor: &Monitor, schema: &Schema) -> Result<Replica, MonitorError> {
    let mut replica = monitor.blank_replica();
    Request::new(monitor, schema, &mut replica).map(|_| replica)
}

/// Takes the answer to a monitor request; how many rows changed, and the last transaction.
pub fn load(replica: &mut Replica, form: Form, answer: &str) -> (usize, Result<Option<Uuid>, String>) {
    let applied = update::load(replica, form.into(), answer);
    (applied.changes.len(), applied.result)
}

/// Takes the parameters of a report; how many rows changed, and the last transaction.
pub fn update(replica: &mut Replica, form: Form, params: &str) -> (usize, Result<Option<Uuid>, String>) {
    let applied = update::update(replica, form.into(), params);
    (applied.changes.len(), applied.result)
}

/// Reads the answer to a transaction.
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
