//! Every kind of value, as it is, as it is not, and in another order.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

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
    let wanted = Pairs { without: &["stale", "absent", "kept"], ..with.into() };
    let (remove, add) = pairs(&now, &wanted).unwrap();
    // A key that is both wanted and unwanted is wanted.
    assert_eq!(remove, ["changed", "stale"]);
    assert_eq!(add, BTreeMap::from([("added".to_owned(), "2".to_owned()), ("changed".to_owned(), "new".to_owned())]));

    let then = Datum::map([("kept", "1"), ("changed", "new"), ("added", "2"), ("theirs", "y")]);
    assert_eq!(pairs(&then, &wanted), None);
    assert_eq!(pairs(&Datum::Set(vec![]), &Pairs { without: &["stale"], ..Pairs::default() }), None);
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

fn wanted() -> Pairs {
    let with = [("chassis", "c1".to_owned()), ("version", "u1".to_owned())];
    Pairs { without: &["mtu"], alike: BTreeMap::from([("chassis", "n1".to_owned())]), ..with.into() }
}

fn edit(now: &[(&str, &str)]) -> Option<(Vec<String>, Vec<String>)> {
    let (remove, add) = pairs(&Datum::map(now.iter().copied()), &wanted())?;
    Some((remove, add.into_iter().map(|(key, value)| format!("{key}={value}")).collect()))
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

#[test]
fn a_value_that_means_the_same_stays() {
    assert_eq!(edit(&[("chassis", "c1"), ("version", "u1"), ("theirs", "x")]), None);
    assert_eq!(edit(&[("chassis", "n1"), ("version", "u1")]), None);
    assert_eq!(edit(&[("chassis", "n1"), ("version", "u0")]), Some((texts(["version"]), texts(["version=u1"]))));
}

#[test]
fn another_value_is_replaced_and_it_is_never_the_alike_one_that_is_written() {
    assert_eq!(edit(&[("chassis", "c2"), ("version", "u1")]), Some((texts(["chassis"]), texts(["chassis=c1"]))));
    assert_eq!(edit(&[]), Some((vec![], texts(["chassis=c1", "version=u1"]))));
    // Of another key it means nothing.
    assert_eq!(edit(&[("chassis", "c1"), ("version", "n1")]), Some((texts(["version"]), texts(["version=u1"]))));
}

#[test]
fn what_must_not_be_there_is_removed() {
    assert_eq!(edit(&[("chassis", "n1"), ("version", "u1"), ("mtu", "1400")]), Some((texts(["mtu"]), vec![])));
}

/// Each pair was looked for among all of the other map.
#[test]
fn comparing_maps_of_many_pairs_does_not_take_the_product_of_their_sizes() {
    let names: Vec<String> = (0..60_000).map(|number| format!("^NODEIP_IPv4_{number}")).collect();
    let map = |names: &mut dyn Iterator<Item = &String>| Datum::map(names.map(|name| (name.as_str(), "192.0.2.1")));
    let (now, other_order) = (map(&mut names.iter()), map(&mut names.iter().rev()));
    let named = ["added", "kept", "stale"];
    let wanted = Pairs { without: &["stale"], ..[(named[0], "1".to_owned()), (named[1], "2".to_owned())].into() };
    let begun = computed();
    assert!(same(&now, &other_order));
    for _ in 0..10 {
        assert!(pairs(&now, &wanted).is_some_and(|(remove, add)| remove.is_empty() && add.len() == 2));
    }
    // A fraction of a second; 16 s when every pair was compared with every other.
    let took = computed() - begun;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// By this thread: others may keep the processor.
fn computed() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}
