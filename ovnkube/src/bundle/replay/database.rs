//! A database's tables, for clients that only read: RFC 7047's `get_schema`, `transact` with
//! selects, and the first answer of monitors.

use std::{collections::BTreeMap, net::TcpListener, sync::Arc};

use ovsdb::{Datum, FrameLimits, Framer};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Entries, tables};

/// The database of each server that describes the others.
const SERVER: &str = "_Server";
/// The only row of its only table.
const SERVER_ROW: &str = "00000000-0000-4000-8000-000000000001";
/// Requests of one question are some kilobytes; monitors of a whole schema some hundred.
const REQUESTS: FrameLimits = FrameLimits { size: 1 << 22, depth: 64 };

type Row = Map<String, Value>;

/// A database's schema and rows.
pub(super) struct DatabaseReplay {
    name: String,
    schema: Value,
    tables: BTreeMap<String, Vec<Row>>,
}

/// Answers from now on.
pub(super) async fn serve(listener: TcpListener, database: Arc<DatabaseReplay>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let database = Arc::clone(&database);
        tokio::spawn(async move {
            // The command may hang up at any time.
            let _ = database.talk(stream).await;
        });
    }
}

impl DatabaseReplay {
    /// `None` if the archive has no schema of it.
    pub(super) fn of(entries: &Entries, name: &str) -> Option<Self> {
        let mut found: BTreeMap<&str, Value> = tables(entries, name).collect();
        let schema = found.remove("schema")?;
        let rows = |value: Value| match value {
            Value::Array(rows) => rows
                .into_iter()
                .filter_map(|row| if let Value::Object(row) = row { Some(row) } else { None })
                .collect(),
            _ => Vec::new(),
        };
        let tables = found.into_iter().map(|(table, value)| (table.to_owned(), rows(value)));
        Some(Self { name: name.to_owned(), schema, tables: tables.collect() })
    }

    async fn talk(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut framer = Framer::new(REQUESTS);
        let mut bytes = [0; 1 << 14];
        loop {
            let count = stream.read(&mut bytes).await?;
            if count == 0 {
                return Ok(());
            }
            framer.push(&bytes[..count]);
            while let Some(message) = framer.next_message().map_err(std::io::Error::other)? {
                let Ok(message) = serde_json::from_slice::<Value>(&message) else { continue };
                // An answer to an echo of this side, which sends none, or a notification.
                if message["method"].is_null() || message["id"].is_null() {
                    continue;
                }
                let method = message["method"].as_str().unwrap_or_default();
                let answer = match self.answer(method, &message["params"]) {
                    Some(result) => {
                        json!({"id": message["id"], "result": result, "error": null})
                    }
                    None => {
                        let error = json!({"error": "unknown method", "details": method});
                        json!({"id": message["id"], "result": null, "error": error})
                    }
                };
                stream.write_all(answer.to_string().as_bytes()).await?;
            }
        }
    }

    /// The result of a request; `None` for one that is not answered.
    fn answer(&self, method: &str, params: &Value) -> Option<Value> {
        match method {
            "echo" => Some(params.clone()),
            "list_dbs" => Some(json!([self.name, SERVER])),
            "set_db_change_aware" => Some(json!({})),
            "get_schema" if params[0] == SERVER => Some(server_schema()),
            "get_schema" if params[0] == self.name.as_str() => Some(self.schema.clone()),
            "transact" => {
                let operations = params.as_array()?.get(1..)?;
                let of_server = params[0] == SERVER;
                Some(operations.iter().map(|it| self.operation(it, of_server)).collect())
            }
            "monitor" => Some(self.monitored(params, "new")),
            "monitor_cond" => Some(self.monitored(params, "initial")),
            _ => None,
        }
    }

    fn operation(&self, operation: &Value, of_server: bool) -> Value {
        if operation["op"] != "select" {
            return json!({"error": "not supported", "details": "a bundle is only read"});
        }
        let table = operation["table"].as_str().unwrap_or_default();
        let conditions = operation["where"].as_array().cloned().unwrap_or_default();
        let columns = operation["columns"].as_array().cloned().unwrap_or_default();
        let own = [self.description()];
        let rows = match of_server {
            true => own.as_slice(),
            false => self.tables.get(table).map(Vec::as_slice).unwrap_or_default(),
        };
        let selected = rows.iter().filter(|row| conditions.iter().all(|it| fits(row, it)));
        let rows: Vec<Value> = selected.map(|row| with_columns(row, &columns)).collect();
        json!({ "rows": rows })
    }

    /// The row of `_Server` about this database: the state of its cluster is not in an archive.
    /// Clients of OVN take the schema from it.
    fn description(&self) -> Row {
        let none = json!(["set", []]);
        let row = json!({"_uuid": ["uuid", SERVER_ROW], "name": self.name, "model": "standalone",
            "connected": true, "leader": true, "schema": self.schema.to_string(), "index": none,
            "cid": none, "sid": none});
        if let Value::Object(row) = row { row } else { Row::new() }
    }

    /// The rows that a monitor begins with, of all its tables.
    fn monitored(&self, params: &Value, as_what: &str) -> Value {
        let requests = params[2].as_object().cloned().unwrap_or_default();
        let own = [self.description()];
        let mut updates = Map::new();
        for (table, request) in requests {
            let request = if request.is_array() { &request[0] } else { &request };
            let columns = request["columns"].as_array().cloned().unwrap_or_default();
            let rows = match params[0] == SERVER {
                true => own.as_slice(),
                false => self.tables.get(&table).map(Vec::as_slice).unwrap_or_default(),
            };
            let row = |row: &Row| {
                let uuid = row.get("_uuid")?[1].as_str()?.to_owned();
                let mut kept = with_columns(row, &columns);
                if let Value::Object(kept) = &mut kept {
                    kept.remove("_uuid");
                }
                Some((uuid, json!({ as_what: kept })))
            };
            let rows: Map<String, Value> = rows.iter().filter_map(row).collect();
            if !rows.is_empty() {
                updates.insert(table, rows.into());
            }
        }
        updates.into()
    }
}

/// The columns of a row; all of them if none are named.
fn with_columns(row: &Row, columns: &[Value]) -> Value {
    let is_wanted = |column: &String| {
        columns.is_empty() || columns.iter().any(|wanted| wanted == column.as_str())
    };
    let kept = row.iter().filter(|(column, _)| is_wanted(column));
    Value::Object(kept.map(|(column, value)| (column.clone(), value.clone())).collect())
}

/// Whether the row meets the condition `[COLUMN, FUNCTION, VALUE]`.
fn fits(row: &Row, condition: &Value) -> bool {
    let column = condition[0].as_str().unwrap_or_default();
    let datum = |value: &Value| serde_json::from_value::<Datum>(value.clone()).ok();
    let (Some(own), Some(wanted)) = (row.get(column).and_then(datum), datum(&condition[2])) else {
        return false;
    };
    let has_all = wanted.atoms().iter().all(|atom| own.atoms().contains(atom))
        && wanted.pairs().iter().all(|pair| own.pairs().contains(pair));
    let is_as_long =
        own.atoms().len() == wanted.atoms().len() && own.pairs().len() == wanted.pairs().len();
    match condition[1].as_str() {
        Some("==") => has_all && is_as_long,
        Some("!=") => !(has_all && is_as_long),
        Some("includes") => has_all,
        _ => false,
    }
}

/// The columns of `_Server` that clients read.
fn server_schema() -> Value {
    let optional = |kind: &str| json!({"type": {"key": kind, "min": 0, "max": 1}});
    json!({"name": SERVER, "version": "1.0.0", "tables": {"Database": {"columns": {
        "name": {"type": "string"}, "model": {"type": "string"}, "connected": {"type": "boolean"},
        "leader": {"type": "boolean"}, "schema": optional("string"), "index": optional("integer"),
        "cid": optional("uuid"), "sid": optional("uuid"),
    }}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> DatabaseReplay {
        let row = |uuid: &str, name: &str, owner: &str| {
            json!({"_uuid": ["uuid", uuid], "name": name, "up": true,
                "external_ids": ["map", [["owner", owner], ["kind", "Service"]]]})
        };
        let rows = json!([
            row("11111111-1111-4111-8111-111111111111", "a", "shop/a"),
            row("22222222-2222-4222-8222-222222222222", "b", "shop/b")
        ]);
        let schema = json!({"name": "N", "version": "1.0.0", "tables": {}});
        let entry = |name: &str, value: &Value| {
            (format!("databases/N/{name}.json"), value.to_string().into_bytes())
        };
        let entries = [entry("schema", &schema), entry("Load_Balancer", &rows)];
        DatabaseReplay::of(&entries.into(), "N").unwrap()
    }

    #[test]
    fn rows_are_selected_by_value_and_by_part_of_a_map() {
        let database = database();
        let select = |condition: Value, columns: Value| {
            let operation = json!({"op": "select", "table": "Load_Balancer",
                "where": condition, "columns": columns});
            database.answer("transact", &json!(["N", operation])).unwrap()[0]["rows"].clone()
        };
        assert_eq!(select(json!([]), json!(["name"])), json!([{"name": "a"}, {"name": "b"}]));
        assert_eq!(select(json!([["name", "==", "b"]]), json!(["name"])), json!([{"name": "b"}]));
        let part = json!([["external_ids", "includes", ["map", [["owner", "shop/a"]]]]]);
        assert_eq!(select(part, json!(["name"])), json!([{"name": "a"}]));
        let uuid = json!([["_uuid", "==", ["uuid", "22222222-2222-4222-8222-222222222222"]]]);
        assert_eq!(select(uuid, json!(["up"])), json!([{"up": true}]));
        let write = json!(["N", {"op": "insert", "table": "Load_Balancer", "row": {}}]);
        assert_eq!(database.answer("transact", &write).unwrap()[0]["error"], "not supported");
        let monitor = json!(["N", 1, {"Load_Balancer": {"columns": ["name"]}}]);
        let rows = database.answer("monitor_cond", &monitor).unwrap();
        let row = &rows["Load_Balancer"]["11111111-1111-4111-8111-111111111111"];
        assert_eq!(row, &json!({"initial": {"name": "a"}}));
        assert_eq!(database.answer("monitor_cond_since", &monitor), None);
        let server = json!(["_Server", 2, {"Database": [{"columns": ["name", "schema"]}]}]);
        let rows = database.answer("monitor_cond", &server).unwrap();
        assert_eq!(rows["Database"][SERVER_ROW]["initial"]["name"], "N");
    }
}
