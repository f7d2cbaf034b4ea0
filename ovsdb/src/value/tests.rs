use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

fn decode(json: &str) -> Result<Datum, serde_json::Error> {
    serde_json::from_str(json)
}

#[test]
fn every_form_of_rfc_7047_is_decoded() {
    let uuid = Atom::Uuid(UUID.parse().unwrap());
    for (json, datum) in [
        (r#""br-int""#.to_owned(), Datum::from("br-int")),
        ("-7".to_owned(), Datum::from(-7_i64)),
        ("1.5".to_owned(), Datum::from(1.5)),
        ("true".to_owned(), Datum::from(true)),
        (format!(r#"["uuid","{UUID}"]"#), uuid.clone().into()),
        (r#"["set",[]]"#.to_owned(), Datum::Set(vec![])),
        (format!(r#"["set",["a",["uuid","{UUID}"]]]"#), Datum::Set(vec!["a".into(), uuid])),
        (
            r#"["map",[["k","v"],[1,2.5]]]"#.to_owned(),
            Datum::Map(vec![("k".into(), "v".into()), (1_i64.into(), 2.5.into())]),
        ),
    ] {
        assert_eq!(decode(&json).expect(&json), datum, "{json}");
        assert_eq!(serde_json::to_string(&datum).unwrap(), json);
    }
}

#[test]
fn what_is_not_a_value_is_refused() {
    for json in [
        "null",
        "{}",
        "[]",
        r#"["set"]"#,
        r#"["list",[]]"#,
        r#"["set",[["set",[]]]]"#,
        r#"["map",[["k"]]]"#,
        r#"["uuid","550e"]"#,
        r#"["uuid",7]"#,
        r#"["set",[],[]]"#,
        "9223372036854775808",
    ] {
        decode(json).expect_err(json);
    }
}

#[test]
fn rust_values_become_the_value_of_the_same_meaning() {
    let json = |datum: Datum| serde_json::to_string(&datum).unwrap();
    assert_eq!(json(Some("x").into()), r#""x""#);
    assert_eq!(json(None::<&str>.into()), r#"["set",[]]"#);
    assert_eq!(json(vec![1_i64].into()), "1");
    assert_eq!(json(["a", "b"].into()), r#"["set",["a","b"]]"#);
    assert_eq!(json(BTreeSet::from([2_i64, 1]).into()), r#"["set",[1,2]]"#);
    assert_eq!(json(BTreeMap::from([("k", "v")]).into()), r#"["map",[["k","v"]]]"#);
    assert_eq!(json(BTreeMap::<String, String>::new().into()), r#"["map",[]]"#);
}

#[test]
fn a_string_that_the_server_would_hang_up_on_is_not_sent() {
    for datum in [Datum::from("a\0b"), Datum::map([("k", "\0")]), Datum::from(f64::NAN)] {
        serde_json::to_string(&datum).expect_err("refused");
    }
}

fn atom() -> impl Strategy<Value = Atom> {
    prop_oneof![
        any::<i64>().prop_map(Atom::Integer),
        any::<bool>().prop_map(Atom::Boolean),
        "[^\0]{0,8}".prop_map(Atom::String),
        any::<u128>().prop_map(|bits| Atom::Uuid(Uuid::from_u128(bits))),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        set in prop::collection::vec(atom(), 0..5),
        map in prop::collection::vec((atom(), atom()), 0..5),
    ) {
        for datum in [Datum::Set(set), Datum::Map(map)] {
            let json = serde_json::to_string(&datum).unwrap();
            prop_assert_eq!(decode(&json).unwrap(), datum);
        }
    }

    #[test]
    fn no_text_makes_the_decoder_panic(text in "[\\[\\]{}\",a-z0-9.\\\\ -]{0,40}") {
        let _ = decode(&text);
    }
}
