//! The request for a monitor, reduced to what one connection's schema has, and the fallback from
//! the newest method to the oldest.

use std::{collections::BTreeMap, future::Future};

use serde::Serialize;

use super::Monitor;
use crate::{
    connection::{Connection, MonitorRequest, Overflow, UpdateReceiver},
    error::{ErrorKind, MonitorError},
    message::Body,
    replica::{InitialRows, Replica},
    schema::Schema,
    transaction::Where,
    update::Form,
    value::Uuid,
};

/// The tables, columns and conditions that are requested of a server. A replica can be resumed only
/// with the request that it was made with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MonitorTables(BTreeMap<&'static str, [TableRequest; 1]>);

#[derive(Debug, Clone, PartialEq, Serialize)]
struct TableRequest {
    columns: Vec<&'static str>,
    #[serde(rename = "where", skip_serializing_if = "Where::is_all")]
    where_: Where,
    #[serde(skip_serializing_if = "Option::is_none")]
    select: Option<Select>,
}

/// Which updates the server sends (RFC 7047 §4.1.5). Members that are left out default to true.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Select {
    initial: bool,
}

/// The answer to a monitor request, and the receiver of its updates.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) form: Form,
    pub(crate) answer: Body,
    pub(crate) updates: UpdateReceiver,
}

impl MonitorTables {
    /// The request for what this schema has of the monitor. Prepares the replica for it.
    pub(crate) fn new(
        monitor: &Monitor,
        schema: &Schema,
        replica: &mut Replica,
    ) -> Result<Self, MonitorError> {
        let mut request = BTreeMap::new();
        for (table, rows) in monitor.tables().iter().zip(replica.tables_mut()) {
            let Some(found) = schema.table(table.name) else { continue };
            // A condition cannot be left out as a column can: there would be more rows than were
            // requested.
            let unknown = table
                .where_
                .iter()
                .find(|condition| !schema.has_column(table.name, condition.column()));
            if let Some(condition) = unknown {
                return Err(MonitorError::ConditionColumn {
                    table: table.name,
                    column: condition.column().to_owned(),
                });
            }
            let columns = rows
                .adapt(found)
                .map_err(|column| MonitorError::Type { table: table.name, column })?;
            let select =
                (table.initial == InitialRows::LeftOut).then_some(Select { initial: false });
            if request
                .insert(
                    table.name,
                    [TableRequest { columns, where_: table.where_.clone(), select }],
                )
                .is_some()
            {
                return Err(MonitorError::Repeated(table.name));
            }
        }
        Ok(Self(request))
    }

    /// Sends the request at the call, not when the future is first polled. `since` is the last
    /// transaction that the replica includes.
    pub(crate) fn send(
        &self,
        connection: &Connection,
        since: Option<Uuid>,
        overflow: Overflow,
    ) -> impl Future<Output = Result<Started, MonitorError>> + Send + use<> {
        let request = self.clone();
        let first = request.send_form(connection, Form::Since, since, overflow);
        let connection = connection.clone();
        async move {
            let mut form = Form::Since;
            let mut sent = first?;
            loop {
                let MonitorRequest { request: waiting, updates } = sent;
                let error = match connection.answer(waiting).await {
                    Ok(Ok(answer)) => return Ok(Started { form, answer, updates }),
                    Ok(Err(error)) => error,
                    Err(lost) => return Err(MonitorError::Closed(lost.reason)),
                };
                // The schema does not tell which methods the server has, so they are tried.
                form = match form {
                    Form::Since if error.kind == ErrorKind::UnknownMethod => Form::Conditional,
                    Form::Conditional if error.kind == ErrorKind::UnknownMethod => Form::Rfc,
                    Form::Since | Form::Conditional | Form::Rfc => {
                        return Err(MonitorError::Refused(error));
                    }
                };
                tracing::debug!(?form, "older monitor method");
                sent = request.send_form(&connection, form, None, overflow)?;
            }
        }
    }

    fn send_form(
        &self,
        connection: &Connection,
        form: Form,
        since: Option<Uuid>,
        overflow: Overflow,
    ) -> Result<MonitorRequest, MonitorError> {
        if form == Form::Rfc && self.0.values().flatten().any(|table| !table.where_.is_all()) {
            return Err(MonitorError::NoConditions);
        }
        let method = match form {
            Form::Since => "monitor_cond_since",
            Form::Conditional => "monitor_cond",
            Form::Rfc => "monitor",
        };
        // A zero UUID is no transaction of the server's, so it sends all rows.
        let since = (form == Form::Since).then(|| since.unwrap_or_default());
        connection
            .send_monitor(method, self, since, overflow)
            .map_err(|error| MonitorError::Invalid(error.to_string()))
    }
}
