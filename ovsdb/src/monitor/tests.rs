use super::*;
use crate::{error::MonitorError, schema::Schema, transaction::Condition};

crate::table! {
    struct Port in "Port" {
        name: String,
        tag: Option<i64>,
        newer: Vec<String>,
    }

    struct Newer in "Newer" {
        name: String,
    }
}

fn request(monitor: &Monitor) -> Result<MonitorTables, MonitorError> {
    let schema: Schema = serde_json::from_str(
        r#"{"name":"Db","tables":{"Port":{"columns":{"name":{"type":"string"},"tag":{"type":{"key":"integer","min":0,"max":1}}}}}}"#,
    )
    .unwrap();
    MonitorTables::new(monitor, &schema, &mut monitor.blank_replica())
}

#[test]
fn what_the_database_lacks_is_left_out() {
    let monitor =
        Monitor::new().table::<Newer>(Where::all()).table::<Port>(Condition::equal("name", "p"));
    let request = request(&monitor).unwrap();
    assert_eq!(
        serde_json::to_string(&request).unwrap(),
        r#"{"Port":[{"columns":["name","tag"],"where":[["name","==","p"]]}]}"#
    );
}

#[test]
fn who_wants_changes_only_is_sent_no_rows_to_start_with() {
    let request =
        request(&Monitor::new().table_changes::<Port>(Condition::equal("name", "p"))).unwrap();
    let text = serde_json::to_string(&request).unwrap();
    assert_eq!(
        text,
        r#"{"Port":[{"columns":["name","tag"],"where":[["name","==","p"]],"select":{"initial":false}}]}"#
    );
}

#[test]
fn a_condition_on_a_column_that_the_database_lacks_is_refused() {
    let error = request(&Monitor::new().table::<Port>(Condition::equal("newer", "x"))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the column newer of Port, which a condition is about, is not in the database"
    );
}

#[test]
fn a_field_that_cannot_hold_its_column_is_refused() {
    crate::table! {
        struct Wrong in "Port" {
            tag: Option<String>,
        }
    }
    let error = request(&Monitor::new().table::<Wrong>(Where::all())).unwrap_err();
    assert_eq!(error.to_string(), "the column tag of Port has another type than its field");
}

#[test]
fn a_table_monitored_twice_is_refused() {
    let error = request(&Monitor::new().table::<Port>(Where::all()).table::<Port>(Where::all()))
        .unwrap_err();
    assert_eq!(error.to_string(), "the table Port is monitored twice");
}
