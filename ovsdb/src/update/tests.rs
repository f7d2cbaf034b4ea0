//! Updates, spelled as ovsdb-server(7) describes them, and what they do to a replica.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    monitor::{Monitor, MonitorTables},
    replica::ChangeKind,
    schema::Schema,
    transaction::Where,
    value::Datum,
};

crate::table! {
    struct Port in "Port" {
        name: String,
        tag: Option<i64>,
        addresses: Vec<String>,
        ids: BTreeMap<String, String>,
        /// A field of set type for a column of at most one value.
        peers: Vec<String>,
    }
}

const ONE: &str = "00000000-0000-0000-0000-000000000001";
const TWO: &str = "00000000-0000-0000-0000-000000000002";
const TXN: &str = "550e8400-e29b-41d4-a716-446655440000";

fn uuid(text: &str) -> Uuid {
    text.parse().unwrap()
}

/// A replica prepared for a schema in which `addresses` is a set, `ids` a map, and `peers` an
/// optional value.
fn replica() -> Replica {
    replica_of(Monitor::new().table::<Port>(Where::all()).keep_old_rows())
}

fn replica_of(monitor: Monitor) -> Replica {
    let schema: Schema = serde_json::from_str(
        r#"{"name":"Db","tables":{"Port":{"columns":{"name":{"type":"string"},
            "tag":{"type":{"key":"integer","min":0,"max":1}},
            "addresses":{"type":{"key":"string","min":0,"max":"unlimited"}},
            "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
            "peers":{"type":{"key":"string","min":0,"max":1}}}}}}"#,
    )
    .unwrap();
    let mut replica = monitor.blank_replica();
    MonitorTables::new(&monitor, &schema, &mut replica).unwrap();
    replica
}

/// The changes as text, sorted: the server's order has no meaning.
fn told(applied: &Applied<String>) -> Vec<String> {
    let mut changes: Vec<String> =
        applied.changes.iter().map(|change| format!("{change:?}")).collect();
    changes.sort();
    changes
}

fn filled() -> Replica {
    let mut replica = replica();
    let answer = format!(
        r#"[false,"{TXN}",{{"Port":{{
            "{ONE}":{{"initial":{{"name":"one","tag":5,"addresses":["set",["a","b"]],"ids":["map",[["k","v"],["x","y"]]]}}}},
            "{TWO}":{{"initial":{{"name":"two"}}}}}}}}]"#
    );
    let applied = load(&mut replica, Form::Since, &answer);
    assert_eq!(applied.result, Ok(Some(uuid(TXN))));
    assert_eq!(told(&applied), [format!("Insert Port {ONE}"), format!("Insert Port {TWO}")]);
    replica
}

#[test]
fn columns_left_out_of_a_new_row_have_their_default() {
    let replica = filled();
    assert_eq!(
        replica.row::<Port>(uuid(TWO)),
        Some(&Port { name: "two".to_owned(), ..Port::default() })
    );
    assert_eq!(replica.row::<Port>(uuid(ONE)).unwrap().tag, Some(5));
    assert_eq!(replica.count::<Port>(), 2);
}

#[test]
fn a_modify_of_update3_is_a_difference_for_sets_and_maps_and_a_value_for_the_rest() {
    let mut replica = filled();
    let params = format!(
        r#"[1,"{TXN}",{{"Port":{{"{ONE}":{{"modify":{{"name":"uno","tag":["set",[]],"addresses":["set",["b","c"]],
            "ids":["map",[["k","w"],["x","y"],["new","n"]]]}}}}}}}}]"#
    );
    let applied = update(&mut replica, Form::Since, &params);
    assert_eq!(applied.result, Ok(Some(uuid(TXN))));
    assert_eq!(
        told(&applied),
        [format!(r#"Modify Port {ONE} ["name", "tag", "addresses", "ids"]"#)]
    );
    let row = replica.row::<Port>(uuid(ONE)).unwrap();
    assert_eq!(
        (row.name.as_str(), row.tag, row.addresses.clone()),
        ("uno", None, vec!["a".to_owned(), "c".to_owned()])
    );
    assert_eq!(
        row.ids,
        [("k", "w"), ("new", "n")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    );
    let change = applied.changes.iter().next().unwrap();
    assert_eq!(change.old::<Port>().unwrap().name, "one");
    assert_eq!(change.difference("addresses"), Some(&Datum::set(["b", "c"])));
    assert_eq!(change.difference("ids"), Some(&Datum::map([("k", "w"), ("x", "y"), ("new", "n")])));
    assert_eq!(change.difference("tag"), Some(&Datum::set([5_i64])));
    assert_eq!(change.difference("peers"), None);
    assert!(change.old_columns().unwrap().column("name").unwrap().is(&"one".into()));
    assert!(replica.find("Port", uuid(ONE)).unwrap().column("name").unwrap().is(&"uno".into()));
}

#[test]
fn changes_to_rows_that_were_there_before_say_nothing_to_a_monitor_of_changes_only_and_break_others()
 {
    let params = format!(
        r#"[1,"{TXN}",{{"Port":{{"{ONE}":{{"modify":{{"tag":5}}}},"{TWO}":{{"insert":{{"name":"two"}}}}}}}}]"#
    );
    let mut replica_of_changes = replica_of(Monitor::new().table_changes::<Port>(Where::all()));
    let applied = update(&mut replica_of_changes, Form::Since, &params);
    assert_eq!(
        (&applied.result, told(&applied)),
        (&Ok(Some(uuid(TXN))), vec![format!("Insert Port {TWO}")])
    );

    let applied = update(&mut replica(), Form::Since, &params);
    assert!(applied.result.is_err(), "{:?}", applied.result);
}

#[test]
fn whether_a_modify_is_a_difference_depends_on_the_column_and_not_on_the_field() {
    let mut replica = filled();
    for (modified, peers) in
        [(r#""a""#, vec!["a"]), (r#""b""#, vec!["b"]), (r#"["set",[]]"#, vec![])]
    {
        let params = format!(r#"[1,{{"Port":{{"{ONE}":{{"modify":{{"peers":{modified}}}}}}}}}]"#);
        assert_eq!(update(&mut replica, Form::Conditional, &params).result, Ok(None));
        assert_eq!(replica.row::<Port>(uuid(ONE)).unwrap().peers, peers);
    }
}

#[test]
fn update2_inserts_modifies_and_deletes() {
    let mut replica = filled();
    let three = "00000000-0000-0000-0000-000000000003";
    let params = format!(
        r#"[1,{{"Port":{{"{ONE}":{{"delete":null}},"{TWO}":{{"modify":{{"tag":9}}}},"{three}":{{"insert":{{"name":"three"}}}}}}}}]"#
    );
    let applied = update(&mut replica, Form::Conditional, &params);
    assert_eq!(applied.result, Ok(None));
    assert_eq!(
        told(&applied),
        [
            format!("Delete Port {ONE}"),
            format!("Insert Port {three}"),
            format!(r#"Modify Port {TWO} ["tag"]"#)
        ]
    );
    let deleted =
        applied.changes.of::<Port>().find(|change| change.kind == ChangeKind::Delete).unwrap();
    assert_eq!(deleted.old::<Port>().unwrap().name, "one");
    assert_eq!(replica.row::<Port>(uuid(TWO)).unwrap().tag, Some(9));
}

#[test]
fn update_of_rfc_7047_carries_whole_rows() {
    let mut replica = filled();
    let three = "00000000-0000-0000-0000-000000000003";
    let params = format!(
        r#"[1,{{"Port":{{"{ONE}":{{"new":{{"name":"one","tag":6,"addresses":"a","ids":["map",[]]}},
                "old":{{"tag":5,"addresses":["set",["a","b"]],"ids":["map",[["k","v"],["x","y"]]]}}}},
            "{TWO}":{{"old":{{"name":"two","tag":["set",[]],"addresses":["set",[]],"ids":["map",[]]}}}},
            "{three}":{{"new":{{"name":"three","tag":["set",[]],"addresses":["set",[]],"ids":["map",[]]}}}}}}}}]"#
    );
    let applied = update(&mut replica, Form::Rfc, &params);
    assert_eq!(applied.result, Ok(None));
    assert_eq!(
        told(&applied),
        [
            format!("Delete Port {TWO}"),
            format!("Insert Port {three}"),
            format!(r#"Modify Port {ONE} ["tag", "addresses", "ids"]"#)
        ]
    );
    let change = applied.changes.iter().find(|change| change.kind == ChangeKind::Modify).unwrap();
    assert_eq!(
        change.difference("addresses"),
        Some(&Datum::set(["b"])),
        "as if the server had sent it"
    );
    assert_eq!(change.difference("ids"), Some(&Datum::map([("k", "v"), ("x", "y")])));
    assert_eq!(
        replica.row::<Port>(uuid(ONE)),
        Some(&Port {
            name: "one".to_owned(),
            tag: Some(6),
            addresses: vec!["a".to_owned()],
            ..Port::default()
        })
    );
}

#[test]
fn a_found_transaction_continues_the_rows_of_before() {
    let mut replica = filled();
    let answer = format!(r#"[true,"{TXN}",{{"Port":{{"{TWO}":{{"delete":null}}}}}}]"#);
    assert_eq!(told(&load(&mut replica, Form::Since, &answer)), [format!("Delete Port {TWO}")]);
    assert_eq!(replica.count::<Port>(), 1);
}

#[test]
fn contents_in_place_of_those_of_before_are_told_as_differences() {
    let three = "00000000-0000-0000-0000-000000000003";
    let rows = format!(
        r#"{{"Port":{{"{TWO}":{{"initial":{{"name":"two","tag":1}}}},"{three}":{{"initial":{{"name":"three"}}}}}}}}"#
    );
    let expected = [
        format!("Delete Port {ONE}"),
        format!("Insert Port {three}"),
        format!(r#"Modify Port {TWO} ["tag"]"#),
    ];
    for (form, answer) in [
        (Form::Since, format!(r#"[false,"00000000-0000-0000-0000-000000000000",{rows}]"#)),
        (Form::Conditional, rows.clone()),
        (Form::Rfc, rows.replace("initial", "new")),
    ] {
        let mut replica = filled();
        let applied = load(&mut replica, form, &answer);
        assert_eq!(applied.result, Ok(None), "{form:?}");
        assert_eq!(told(&applied), expected, "{form:?}");
        assert_eq!(replica.count::<Port>(), 2);
        assert_eq!(
            told(&load(&mut replica, form, &answer)),
            [""; 0],
            "{form:?}: the same once more"
        );
    }
}

#[test]
fn what_changed_before_an_error_is_told_and_nothing_else_is_lost() {
    let mut replica = filled();
    let answer = format!(
        r#"[false,"{TXN}",{{"Port":{{"{ONE}":{{"initial":{{"name":"uno"}}}},"{TWO}":{{"initial":{{"name":7}}}}}}}}]"#
    );
    let applied = load(&mut replica, Form::Since, &answer);
    let error = applied.result.as_ref().unwrap_err();
    assert!(error.starts_with(&format!("Port {TWO}: name: 7 is not a string")), "{error}");
    assert_eq!(
        told(&applied),
        [format!(r#"Modify Port {ONE} ["name", "tag", "addresses", "ids"]"#)]
    );
    assert_eq!(replica.count::<Port>(), 2);

    let params = format!(r#"[1,{{"Port":{{"{TWO}":{{"modify":{{"name":"dos","tag":"x"}}}}}}}}]"#);
    let applied = update(&mut replica, Form::Conditional, &params);
    applied.result.as_ref().expect_err("a text is no tag");
    assert_eq!(told(&applied), [format!(r#"Modify Port {TWO} ["name", "tag"]"#)]);
    assert_eq!(replica.row::<Port>(uuid(TWO)).unwrap().name, "dos");
}

#[test]
fn a_report_that_makes_no_sense_is_refused() {
    for rows in [
        r#"{"Bridge":{}}"#.to_owned(),
        r#"{"Port":{"not a uuid":{"insert":{}}}}"#.to_owned(),
        format!(r#"{{"Port":{{"{ONE}":{{}}}}}}"#),
        format!(r#"{{"Port":{{"{ONE}":{{"happened":{{}}}}}}}}"#),
        format!(r#"{{"Port":{{"{ONE}":{{"modify":{{"tag":["set",[1,2]]}}}}}}}}"#),
        r#"{"Port":{"00000000-0000-0000-0000-000000000009":{"modify":{"tag":1}}}}"#.to_owned(),
    ] {
        let applied = update(&mut filled(), Form::Conditional, &format!("[1,{rows}]"));
        applied.result.expect_err(&rows);
    }
    update(&mut filled(), Form::Since, "[1]").result.expect_err("short");
    load(&mut filled(), Form::Since, "{}").result.expect_err("no array");
}

#[test]
fn a_column_that_was_not_asked_for_is_passed_over() {
    let mut replica = filled();
    let applied = update(
        &mut replica,
        Form::Conditional,
        &format!(r#"[1,{{"Port":{{"{TWO}":{{"modify":{{"more":[{{}}],"tag":3}}}}}}}}]"#),
    );
    assert_eq!(applied.result, Ok(None));
    assert_eq!(replica.row::<Port>(uuid(TWO)).unwrap().tag, Some(3));
}

proptest! {
    #[test]
    fn no_damage_to_an_answer_makes_the_decoder_panic(
        at in any::<prop::sample::Index>(),
        length in 0_usize..9,
        inserted in "[\\[\\]{}\",0-9a-z]{0,4}",
    ) {
        let mut answer = format!(
            r#"[false,"{TXN}",{{"Port":{{"{ONE}":{{"initial":{{"name":"one","tag":5,"ids":["map",[["k","v"]]]}}}},"{TWO}":{{"modify":{{"tag":1}}}}}}}}]"#
        );
        let start = at.index(answer.len());
        let end = (start + length).min(answer.len());
        answer.replace_range(start..end, &inserted);
        for form in [Form::Since, Form::Conditional, Form::Rfc] {
            let mut replica = filled();
            let _ = load(&mut replica, form, &answer);
            let _ = update(&mut replica, form, &answer);
        }
    }
}
