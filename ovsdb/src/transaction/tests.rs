use super::*;
use crate::value::Uuid;

fn json(transaction: &Transaction) -> Vec<String> {
    transaction
        .operations()
        .iter()
        .map(|operation| serde_json::to_string(operation).unwrap())
        .collect()
}

#[test]
fn operations_are_spelled_as_rfc_7047_spells_them() {
    let mut transaction = Transaction::new();
    let interface = transaction.insert("Interface", Row::new().with("name", "p0"));
    transaction.insert("Port", Row::new().with("name", "p0").with("interfaces", &interface));
    transaction.select("Bridge", Condition::equal("name", "br-int"), &["ports"]);
    transaction.update("Bridge", Uuid::nil(), Row::new().with("fail_mode", "secure"));
    transaction.mutate(
        "Bridge",
        Where::all(),
        vec![Mutation::insert("ports", vec![interface]), Mutation::new("n", Mutator::Add, 1_i64)],
    );
    transaction.delete(
        "Port",
        [
            Condition::excludes("tag", Datum::set([1_i64, 2])),
            Condition::new("tag", Function::Less, 7_i64),
        ],
    );
    let rows = vec![Row::new().with("name", "br-int")];
    transaction.wait(
        "Bridge",
        Where::all(),
        &["name"],
        Until::NotEqual,
        rows,
        Duration::from_millis(1500),
    );
    transaction.comment("why");
    transaction.abort();
    transaction.assert("lock");
    assert_eq!(
        json(&transaction),
        [
            r#"{"op":"insert","table":"Interface","row":{"name":"p0"},"uuid-name":"row0"}"#,
            r#"{"op":"insert","table":"Port","row":{"name":"p0","interfaces":["named-uuid","row0"]},"uuid-name":"row1"}"#,
            r#"{"op":"select","table":"Bridge","where":[["name","==","br-int"]],"columns":["ports","_uuid"]}"#,
            concat!(
                r#"{"op":"update","table":"Bridge","where":[["_uuid","==",["uuid","00000000-0000-0000-0000-000000000000"]]],"#,
                r#""row":{"fail_mode":"secure"}}"#
            ),
            concat!(
                r#"{"op":"mutate","table":"Bridge","where":[],"#,
                r#""mutations":[["ports","insert",["named-uuid","row0"]],["n","+=",1]]}"#
            ),
            r#"{"op":"delete","table":"Port","where":[["tag","excludes",["set",[1,2]]],["tag","<",7]]}"#,
            concat!(
                r#"{"op":"wait","table":"Bridge","where":[],"columns":["name"],"until":"!=","#,
                r#""rows":[{"name":"br-int"}],"timeout":1500}"#
            ),
            r#"{"op":"comment","comment":"why"}"#,
            r#"{"op":"abort"}"#,
            r#"{"op":"assert","lock":"lock"}"#,
        ]
    );
    assert_eq!(transaction.len(), 10);
}

#[test]
fn a_column_set_twice_has_the_last_value() {
    let row = Row::new().with("a", 1_i64).with("b", 2_i64).with("a", 3_i64);
    assert_eq!(serde_json::to_string(&row).unwrap(), r#"{"a":3,"b":2}"#);
}

#[test]
fn columns_that_a_database_lacks_can_be_left_out() {
    let mut row = Row::new().with("old", 1_i64).with("new", 2_i64);
    row.retain(|column| column != "new");
    assert_eq!(row, Row::new().with("old", 1_i64));
}

#[test]
fn a_wait_for_ever_is_sent_as_the_longest_there_is() {
    let mut transaction = Transaction::new();
    transaction.wait("T", Where::all(), &[], Until::Equal, vec![], Duration::MAX);
    assert!(json(&transaction)[0].ends_with(r#""timeout":9223372036854775807}"#));
}
