//! Updates of a monitor: rows that were changed step by step equal those of a full snapshot, in all
//! three forms of updates. Whatever an update contains, the rows after it can be written as a
//! snapshot and read again.

mod history;

use std::{collections::BTreeMap, sync::LazyLock};

use ovsdb::{
    Monitor, Replica, Row, Schema, Uuid, Where,
    fuzzing::{self, Form},
};
use serde_json::{Map, Value, json};

ovsdb::table! {
    pub struct Port in "Port" {
        pub name: String,
        pub tag: Option<i64>,
        pub addresses: Vec<String>,
        pub ids: BTreeMap<String, String>,
    }
}

pub(crate) const FORMS: [Form; 3] = [Form::Rfc, Form::Conditional, Form::Since];

/// `data` is the parameters of an update or the result of a monitor request, in JSON; otherwise the
/// source of a drawn history.
pub fn check(data: &[u8]) {
    if let (Some(b'[' | b'{'), Ok(text)) = (data.first(), std::str::from_utf8(data)) {
        return FORMS.into_iter().for_each(|form| check_text(form, text));
    }
    history::check(data);
}

fn check_text(form: Form, text: &str) {
    for take in [fuzzing::update, fuzzing::load] {
        let mut replica = empty();
        let known = snapshot_text(
            form,
            &[(
                row_id(1),
                json!({"name": "one", "tag": 5, "addresses": ["set", ["a", "b"]], "ids": ["map", [["k", "v"]]]}),
            )],
        );
        fuzzing::load(&mut replica, form, &known).1.expect("a row like any other");
        let (changes, result) = take(&mut replica, form, text);
        assert!(changes <= text.len() + 1, "more changes than the text has room for");
        if result.is_ok() {
            let mut again = empty();
            fuzzing::load(&mut again, form, &snapshot_of(form, &replica))
                .1
                .expect("it was just written");
            assert_eq!(rows(&again), rows(&replica), "{form:?}");
        }
    }
}

/// Parsed once, so that the fuzzer does not spend its time on it.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    serde_json::from_value(json!({"name": "Db", "tables": {"Port": {"columns": {
        "name": {"type": "string"},
        "tag": {"type": {"key": "integer", "min": 0, "max": 1}},
        "addresses": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
        "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    }}}}))
    .expect("a schema")
});

pub(crate) fn empty() -> Replica {
    fuzzing::replica(&Monitor::new().table::<Port>(Where::all()), &SCHEMA)
        .expect("the columns fit the fields")
}

pub(crate) fn rows(replica: &Replica) -> BTreeMap<Uuid, Port> {
    replica.rows::<Port>().map(|(uuid, port)| (uuid, port.clone())).collect()
}

pub(crate) fn row_id(number: u8) -> Uuid {
    Uuid::from_u128(number.into())
}

/// All rows of a replica, as a server would report them initially.
fn snapshot_of(form: Form, replica: &Replica) -> String {
    let rows: Vec<(Uuid, Value)> = rows(replica)
        .iter()
        .filter_map(|(uuid, port)| Some((*uuid, serde_json::to_value(Row::from(port)).ok()?)))
        .collect();
    assert_eq!(rows.len(), replica.count::<Port>(), "a row that was received cannot be written");
    snapshot_text(form, &rows)
}

pub(crate) fn snapshot_text(form: Form, rows: &[(Uuid, Value)]) -> String {
    let member = if form == Form::Rfc { "new" } else { "initial" };
    let rows: Map<String, Value> =
        rows.iter().map(|(uuid, row)| (uuid.to_string(), json!({member: row}))).collect();
    let tables = json!({"Port": rows});
    match form {
        Form::Rfc | Form::Conditional => tables.to_string(),
        Form::Since => json!([false, Uuid::from_u128(7), tables]).to_string(),
    }
}
