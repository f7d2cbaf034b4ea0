//! Decodes the updates of a monitor straight into a replica.
//!
//! One decoder serves all forms: `<table-updates>` of RFC 7047 §4.1.6 and `<table-updates2>` of
//! ovsdb-server(7) §4.1.14 differ in the names of their members only (`old`, `new`; `initial`,
//! `insert`, `modify`, `delete`). There is no intermediate representation, because a large database
//! arrives as one message.

mod seeds;

use serde::de::DeserializeSeed;

use crate::{
    replica::{Changes, Replica},
    value::Uuid,
};

/// Which of the three monitor methods is in use, and therefore which notifications arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `monitor` and `update` (RFC 7047 §4.1.5, §4.1.6).
    Rfc,
    /// `monitor_cond` and `update2` (ovsdb-server(7) §4.1.12, §4.1.14).
    Conditional,
    /// `monitor_cond_since` and `update3` (ovsdb-server(7) §4.1.15, §4.1.16).
    Since,
}

/// What an update did. After an error, `changes` holds the changes made before it; the reader of
/// the replica has to get them, too.
#[derive(Debug)]
pub(crate) struct Applied<E> {
    pub(crate) changes: Changes,
    /// The last transaction that the replica includes, if the server numbers its transactions.
    pub(crate) result: Result<Option<Uuid>, E>,
}

/// Applies the answer to a monitor request: all rows, or those that changed since the last
/// connection.
pub(crate) fn load(replica: &mut Replica, form: Form, answer: &str) -> Applied<String> {
    let mut changes = Changes::default();
    let result = decode(answer, seeds::MonitorAnswer { replica, form, changes: &mut changes });
    if result.is_ok() {
        replica.finish_replacement(&mut changes);
    } else {
        replica.abandon_replacement();
    }
    Applied { changes, result }
}

/// Applies the parameters of a notification.
pub(crate) fn update(replica: &mut Replica, form: Form, params: &str) -> Applied<String> {
    let mut changes = Changes::default();
    let result = decode(params, seeds::Notification { replica, form, changes: &mut changes });
    Applied { changes, result }
}

fn decode<'de, S: DeserializeSeed<'de, Value = Option<Uuid>>>(
    json: &'de str,
    seed: S,
) -> Result<Option<Uuid>, String> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    seed.deserialize(&mut deserializer).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
