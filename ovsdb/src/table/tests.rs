use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{
    schema::ColumnType,
    value::{Atom, AtomicType, Datum, Uuid},
};

crate::table! {
    /// One field of each type.
    struct Example in "Example" {
        name: String,
        kind: String = "type",
        number: i64,
        share: f64,
        up: bool,
        owner: Uuid,
        tag: Option<i64>,
        list: Vec<String>,
        set: BTreeSet<i64>,
        ids: BTreeMap<String, String>,
        pairs: Pairs,
    }
}

fn index(column: &str) -> usize {
    Example::COLUMNS.iter().position(|name| *name == column).unwrap()
}

#[test]
fn each_field_takes_its_column() {
    let mut row = Example::default();
    for (column, json) in [
        ("name", r#""p0""#),
        ("type", r#""internal""#),
        ("number", "7"),
        ("share", "2"),
        ("up", "true"),
        ("owner", r#"["uuid","550e8400-e29b-41d4-a716-446655440000"]"#),
        ("tag", "9"),
        ("list", r#"["set",["b","a","b"]]"#),
        ("set", r#"["set",[2,1]]"#),
        ("ids", r#"["map",[["k","v"]]]"#),
        ("pairs", r#"["map",[["k","v"],["a",""]]]"#),
    ] {
        row.field_mut(index(column)).set(serde_json::from_str(json).unwrap()).expect(column);
    }
    assert_eq!(
        (row.name.as_str(), row.kind.as_str(), row.number, row.share, row.up),
        ("p0", "internal", 7, 2.0, true)
    );
    assert_eq!(
        (row.owner, row.tag),
        ("550e8400-e29b-41d4-a716-446655440000".parse().unwrap(), Some(9))
    );
    assert_eq!(
        (row.list.as_slice(), row.set.clone()),
        (&["a".to_owned(), "b".to_owned()][..], [1, 2].into())
    );
    assert_eq!(row.ids, [("k".to_owned(), "v".to_owned())].into());
    assert_eq!(row.pairs.iter().collect::<Vec<_>>(), [("a", ""), ("k", "v")]);
    assert_eq!(
        (row.pairs.get("a"), row.pairs.get("k"), row.pairs.get("v")),
        (Some(""), Some("v"), None)
    );

    let mut copy = Example::default();
    for column in 0..Example::COLUMNS.len() {
        copy.field_mut(column).set(row.field(column).datum()).unwrap();
    }
    assert_eq!(copy, row);
}

#[test]
fn an_absent_value_is_the_default() {
    let mut row = Example { name: "x".to_owned(), tag: Some(1), ..Example::default() };
    for column in ["name", "tag", "list"] {
        row.field_mut(index(column)).set(Datum::Set(vec![])).unwrap();
    }
    assert_eq!(row, Example::default());
}

#[test]
fn a_value_of_another_type_is_named() {
    let mut row = Example::default();
    for (column, value, message) in [
        ("name", Datum::from(1_i64), "1 is not a string"),
        ("name", Datum::from(["a", "b"]), r#"["set",["a","b"]] is not a string"#),
        ("number", Datum::from("1"), r#""1" is not an integer"#),
        ("tag", Datum::from([1_i64, 2]), r#"["set",[1,2]] is not at most one value"#),
        ("list", Datum::map([("k", "v")]), r#"["map",[["k","v"]]] is not a set"#),
        ("set", Datum::from("x"), r#""x" is not an integer"#),
        ("ids", Datum::from("k"), r#""k" is not a map"#),
        ("ids", Datum::map([("k", 1_i64)]), "1 is not a string"),
        ("pairs", Datum::from("k"), r#""k" is not a map"#),
        ("pairs", Datum::map([("k", 1_i64)]), "1 is not a string"),
        ("pairs", Datum::map([("k", "a\0b")]), r#""a\u0000b" is not a string without NUL"#),
    ] {
        assert_eq!(row.field_mut(index(column)).set(value).expect_err(column).to_string(), message);
    }
}

#[test]
fn a_field_fits_columns_of_its_type_only() {
    let string = ColumnType {
        key: AtomicType::String,
        references: None,
        value: None,
        min: 1,
        max: Some(1),
        words: None,
    };
    let optional = ColumnType { min: 0, ..string.clone() };
    let set = ColumnType { max: None, ..optional.clone() };
    let map = ColumnType { value: Some(AtomicType::String), ..set.clone() };
    let integer = ColumnType { key: AtomicType::Integer, ..string.clone() };
    let row = Example::default();
    let fits = |column: &str| {
        [&string, &optional, &set, &map, &integer].map(|ty| row.field(index(column)).fits(ty))
    };
    assert_eq!(fits("name"), [true, true, false, false, false]);
    assert_eq!(fits("tag"), [false, false, false, false, true]);
    assert_eq!(fits("list"), [true, true, true, false, false]);
    assert_eq!(fits("set"), [false, false, false, false, true]);
    assert_eq!(fits("ids"), [false, false, false, true, false]);
    assert_eq!(fits("pairs"), [false, false, false, true, false]);
}

#[test]
fn a_struct_can_be_sent_as_a_row() {
    let row = Row::from(&Example { name: "p0".to_owned(), ..Example::default() });
    let json = serde_json::to_string(&row).unwrap();
    assert!(json.starts_with(r#"{"name":"p0","type":"","number":0,"#), "{json}");
    assert!(
        json.ends_with(
            r#""tag":["set",[]],"list":["set",[]],"set":["set",[]],"ids":["map",[]],"pairs":["map",[]]}"#
        ),
        "{json}"
    );
}

#[test]
fn sets_and_maps_are_the_same_in_any_order() {
    fn check<F: Field + Default>(datum: Datum) {
        let mut field = F::default();
        field.set(datum.clone()).unwrap();
        let Datum::Set(mut reversed) = datum else { panic!("a set") };
        reversed.reverse();
        assert!(field.is(&Datum::Set(reversed.clone())), "{reversed:?}");
        reversed.pop();
        assert!(!field.is(&Datum::Set(reversed.clone())), "{reversed:?}");
    }
    check::<Vec<i64>>(Datum::set([1_i64, 2, 3]));
    check::<BTreeSet<i64>>(Datum::set([1_i64, 2, 3]));
    check::<Vec<bool>>(Datum::set([true, false]));
    check::<Vec<String>>(Datum::set(["a", "b"]));
    check::<Vec<Box<str>>>(Datum::set(["a", "b"]));
    check::<Texts>(Datum::set(["a", "b"]));
    check::<Vec<Uuid>>(Datum::set([Uuid::from_u128(1), Uuid::from_u128(2)]));
    check::<Vec<f64>>(Datum::set([0.5, -1.0]));
    check::<Option<i64>>(Datum::set([7_i64]));
    check::<String>(Datum::set(["a"]));

    fn check_maps<F: Field + Default>() {
        let map = |pairs: &[(&str, &str)]| Datum::map(pairs.iter().copied());
        let field = |pairs: &[(&str, &str)]| {
            let mut field = F::default();
            field.set(map(pairs)).unwrap();
            field
        };
        assert!(field(&[("a", "1"), ("b", "2")]).is(&map(&[("b", "2"), ("a", "1")])));
        assert!(!field(&[("a", "1")]).is(&map(&[("a", "2")])));
        assert!(!field(&[("a", "1"), ("b", "2")]).is(&map(&[("a", "1")])));
        assert!(!field(&[("a", "1")]).is(&Datum::set(["a"])));
        assert!(field(&[]).is(&Datum::Set(vec![])));
    }
    check_maps::<Pairs>();
    check_maps::<BTreeMap<String, String>>();
    assert!(Vec::<String>::new().is(&Datum::Map(vec![])));
    assert!(!vec![1_i64].is(&Datum::set(["1"])));
}

/// The difference between two sets as ovsdb-server(7) defines it: the elements of only one of them.
fn set_difference(old: &BTreeSet<i64>, new: &BTreeSet<i64>) -> Datum {
    Datum::set(old.symmetric_difference(new).copied())
}

/// The difference between two maps: the pairs whose key only one of them has, and the new value of
/// keys in both.
fn map_difference(old: &BTreeMap<i64, i64>, new: &BTreeMap<i64, i64>) -> Datum {
    let gone = old.iter().filter(|(key, _)| !new.contains_key(key));
    let come = new.iter().filter(|(key, value)| old.get(key) != Some(value));
    Datum::Map(
        gone.chain(come).map(|(key, value)| (Atom::from(*key), Atom::from(*value))).collect(),
    )
}

proptest! {
    #[test]
    fn a_difference_leads_from_the_old_set_to_the_new(
        old in prop::collection::btree_set(0_i64..9, 0..9),
        new in prop::collection::btree_set(0_i64..9, 0..9),
    ) {
        let mut set = old.clone();
        set.apply(set_difference(&old, &new)).unwrap();
        prop_assert_eq!(&set, &new);
        let mut list: Vec<i64> = old.iter().copied().collect();
        list.apply(set_difference(&old, &new)).unwrap();
        prop_assert_eq!(list, new.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(old.datum().difference(new.datum()), set_difference(&old, &new));

        let texts = |set: &BTreeSet<i64>| set.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let (old, new) = (texts(&old), texts(&new));
        let mut texts = Texts::default();
        texts.set(old.datum()).unwrap();
        texts.apply(old.datum().difference(new.datum())).unwrap();
        prop_assert!(texts.is(&new.datum()) && texts.datum() == new.datum());
    }

    #[test]
    fn a_difference_leads_from_the_old_map_to_the_new(
        old in prop::collection::btree_map(0_i64..5, 0_i64..3, 0..5),
        new in prop::collection::btree_map(0_i64..5, 0_i64..3, 0..5),
    ) {
        let mut map = old.clone();
        map.apply(map_difference(&old, &new)).unwrap();
        prop_assert_eq!(&map, &new);

        let data = (old.datum(), new.datum());
        let mut expected = map_difference(&old, &new);
        if let Datum::Map(pairs) = &mut expected {
            pairs.sort_by(|one, other| one.partial_cmp(other).unwrap());
        }
        prop_assert_eq!(data.0.difference(data.1), expected);

        let texts = |map: &BTreeMap<i64, i64>| map.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect::<BTreeMap<_, _>>();
        let (old, new) = (texts(&old), texts(&new));
        let mut pairs = Pairs::default();
        pairs.set(old.datum()).unwrap();
        pairs.apply(old.datum().difference(new.datum())).unwrap();
        prop_assert!(pairs.is(&new.datum()) && pairs.datum() == new.datum());
    }
}
