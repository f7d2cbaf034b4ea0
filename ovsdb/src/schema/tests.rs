use super::*;
use crate::value::AtomicType;

fn schema() -> Schema {
    serde_json::from_str(
        r#"{"name":"Db","version":"1.2.3","cksum":"1 2","tables":{"Port":{"isRoot":true,"maxRows":9,"indexes":[["name"]],"columns":{
            "name":{"type":"string","mutable":false},
            "tag":{"type":{"key":{"type":"integer","minInteger":0,"maxInteger":4095},"min":0,"max":1}},
            "ifaces":{"type":{"key":{"type":"uuid","refTable":"Iface"},"min":1,"max":"unlimited"}},
            "peer":{"type":{"key":{"type":"uuid","refTable":"Port","refType":"weak"},"min":0}},
            "mode":{"type":{"key":{"type":"string","enum":["set",["a","b"]]}},"ephemeral":true},
            "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}"#,
    )
    .unwrap()
}

#[test]
fn each_form_of_a_column_type_is_understood() {
    let schema = schema();
    let ty = |column: &str| schema.column("Port", column).unwrap().ty.clone();
    let plain = ColumnType {
        key: AtomicType::String,
        references: None,
        value: None,
        min: 1,
        max: Some(1),
        words: None,
    };
    assert_eq!(ty("name"), plain);
    let words = Some(["a", "b"].map(str::to_owned).into());
    assert_eq!(ty("mode"), ColumnType { words, ..plain.clone() });
    assert_eq!(ty("tag"), ColumnType { key: AtomicType::Integer, min: 0, ..plain.clone() });
    let uuids = ColumnType { key: AtomicType::Uuid, ..plain.clone() };
    assert_eq!(
        ty("ifaces"),
        ColumnType {
            references: Some(("Iface".to_owned(), RefType::Strong)),
            max: None,
            ..uuids.clone()
        }
    );
    assert_eq!(
        ty("peer"),
        ColumnType { references: Some(("Port".to_owned(), RefType::Weak)), min: 0, ..uuids }
    );
    assert_eq!(
        ty("ids"),
        ColumnType { value: Some(AtomicType::String), min: 0, max: None, ..plain }
    );
    assert!(
        ty("name").is_scalar()
            && !ty("tag").is_scalar()
            && ty("tag").is_single()
            && ty("ids").is_map()
    );
}

#[test]
fn what_a_database_has_and_lacks_can_be_asked() {
    let schema = schema();
    assert!(schema.has_table("Port") && !schema.has_table("Bridge"));
    assert!(schema.has_column("Port", "tag") && schema.has_column("Port", "_uuid"));
    assert!(!schema.has_column("Port", "qos") && !schema.has_column("Bridge", "_uuid"));
    assert!(schema.takes("Port", "mode", "b") && !schema.takes("Port", "mode", "c"));
    assert!(schema.takes("Port", "name", "c") && !schema.takes("Port", "qos", "c"));
    let port = schema.table("Port").unwrap();
    assert_eq!((port.max_rows, port.is_root, port.indexes.len()), (Some(9), true, 1));
    assert!(
        !port.columns["name"].mutable
            && port.columns["tag"].mutable
            && port.columns["mode"].ephemeral
    );
}

#[test]
fn a_schema_that_makes_no_sense_is_refused() {
    for json in [
        r#"{"tables":{}}"#,
        r#"{"name":"Db","tables":{"Port":{"columns":{"name":{"type":"text"}}}}}"#,
        r#"{"name":"Db","tables":{"Port":{"columns":{"name":{"type":{"key":"string","max":"many"}}}}}}"#,
    ] {
        serde_json::from_str::<Schema>(json).expect_err(json);
    }
}
