//! Every kind of value, as it is, as it is not, and in another order.

use super::*;

#[test]
fn sets_and_maps_are_the_same_in_any_order() {
    let atoms = [
        Datum::set([1_i64, 2, 3]),
        Datum::set([true, false]),
        Datum::set(["a", "b"]),
        Datum::set([Uuid::from_u128(1), Uuid::from_u128(2)]),
        Datum::set([0.5, -1.0]),
    ];
    for set in &atoms {
        let Datum::Set(mut reversed) = set.clone() else { panic!("a set") };
        reversed.reverse();
        assert!(same(set, &Datum::Set(reversed.clone())), "{set:?}");
        reversed.pop();
        assert!(!same(set, &Datum::Set(reversed)), "{set:?}");
    }
    let pairs = |pairs: &[(&str, &str)]| Datum::map(pairs.iter().copied());
    assert!(same(&pairs(&[("a", "1"), ("b", "2")]), &pairs(&[("b", "2"), ("a", "1")])));
    assert!(!same(&pairs(&[("a", "1")]), &pairs(&[("a", "2")])));
    assert!(!same(&pairs(&[("a", "1"), ("b", "2")]), &pairs(&[("a", "1")])));
    assert!(same(&Datum::Set(vec![]), &Datum::Map(vec![])));
    assert!(!same(&Datum::set(["a"]), &Datum::map([("a", "a")])));
    assert!(!same(&Datum::set([1_i64]), &Datum::set(["1"])));
}

#[test]
fn of_a_map_only_what_is_ours_changes() {
    let now = Datum::map([("kept", "1"), ("changed", "old"), ("stale", "x"), ("theirs", "y")]);
    let with = BTreeMap::from([("kept", "1".to_owned()), ("changed", "new".to_owned()), ("added", "2".to_owned())]);
    let (remove, add) = pairs(&now, &with, &["stale", "absent", "kept"]).unwrap();
    // A key that is both wanted and unwanted is wanted.
    assert_eq!(remove, ["changed", "stale"]);
    assert_eq!(add, BTreeMap::from([("added".to_owned(), "2".to_owned()), ("changed".to_owned(), "new".to_owned())]));

    let then = Datum::map([("kept", "1"), ("changed", "new"), ("added", "2"), ("theirs", "y")]);
    assert_eq!(pairs(&then, &with, &["stale", "absent", "kept"]), None);
    assert_eq!(pairs(&Datum::Set(vec![]), &BTreeMap::new(), &["stale"]), None);
}

#[test]
fn parts_stay_as_far_as_they_are_right() {
    let band = |rate: i64| vec![("action", Datum::set(["drop"])), ("rate", Datum::set([rate]))];
    let (first, second, third) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    let now = [(first, band(25)), (second, band(25)), (third, band(7))];
    assert_eq!(parts(&now[..1], &[band(25)]), None);
    assert_eq!(parts(&now[..2], &[band(25), band(25)]), None);
    assert_eq!(parts(&now, &[band(7), band(25), band(25)]), None, "in any order");
    assert_eq!(parts(&now[..1], &[band(20)]), Some((vec![], vec![&band(20)])));
    assert_eq!(parts(&now, &[band(7)]), Some((vec![third], vec![])));
    assert_eq!(parts(&now[..1], &[band(25), band(25)]), Some((vec![first], vec![&band(25)])), "one row counts once");
    assert_eq!(parts(&[], &[]), None);
}
