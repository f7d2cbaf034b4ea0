//! Every kind of value: equal, different, and in another order.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use ovsdb::Field;
use proptest::{prelude::*, sample::subsequence};

use super::*;

fn map(pairs: &[(&str, &str)]) -> ovsdb::Pairs {
    ovsdb::Pairs::new(pairs.iter().copied()).unwrap()
}

#[test]
fn of_a_map_only_what_is_ours_changes() {
    let now = map(&[("kept", "1"), ("changed", "old"), ("stale", "x"), ("theirs", "y")]);
    let with = BTreeMap::from([
        ("kept", "1".to_owned()),
        ("changed", "new".to_owned()),
        ("added", "2".to_owned()),
    ]);
    let wanted = Pairs { without: &["stale", "absent", "kept"], ..with.into() };
    let (remove, add) = pairs(&now, &wanted).unwrap();
    // A key that is in both `with` and `without` is wanted.
    assert_eq!(remove, ["changed", "stale"]);
    assert_eq!(
        add,
        BTreeMap::from([
            ("added".to_owned(), "2".to_owned()),
            ("changed".to_owned(), "new".to_owned())
        ])
    );

    let then = map(&[("kept", "1"), ("changed", "new"), ("added", "2"), ("theirs", "y")]);
    assert_eq!(pairs(&then, &wanted), None);
    assert_eq!(pairs(&map(&[]), &Pairs { without: &["stale"], ..Pairs::default() }), None);
}

#[test]
fn parts_stay_as_far_as_they_are_right() {
    let band = |rate: i64| vec![("action", Datum::set(["drop"])), ("rate", Datum::set([rate]))];
    let (first, second, third) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    let rows = [(first, band(25)), (second, band(25)), (third, band(7))];
    let now = [first, second, third];
    let holds = |row: Uuid, column: &str, value: &Datum| {
        let (_, part) = rows.iter().find(|(own, _)| *own == row).unwrap();
        part.iter().any(|(own, now)| *own == column && now == value)
    };
    let compare = |now: &[Uuid], wanted: &[Part]| {
        let (kept, new) = parts(now, holds, wanted)?;
        Some((kept, new.into_iter().cloned().collect::<Vec<_>>()))
    };
    assert_eq!(compare(&now[..1], &[band(25)]), None);
    assert_eq!(compare(&now[..2], &[band(25), band(25)]), None);
    assert_eq!(compare(&now, &[band(7), band(25), band(25)]), None, "in any order");
    assert_eq!(compare(&now[..1], &[band(20)]), Some((vec![], vec![band(20)])));
    assert_eq!(compare(&now, &[band(7)]), Some((vec![third], vec![])));
    assert_eq!(
        compare(&now[..1], &[band(25), band(25)]),
        Some((vec![first], vec![band(25)])),
        "one row counts once"
    );
    assert_eq!(compare(&[], &[]), None);
}

fn wanted() -> Pairs {
    let with = [("chassis", "c1".to_owned()), ("version", "u1".to_owned())];
    Pairs {
        without: &["mtu"],
        alike: BTreeMap::from([("chassis", "n1".to_owned())]),
        ..with.into()
    }
}

fn edit(now: &[(&str, &str)]) -> Option<(Vec<String>, Vec<String>)> {
    let (remove, add) = pairs(&map(now), &wanted())?;
    Some((remove, add.into_iter().map(|(key, value)| format!("{key}={value}")).collect()))
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

#[test]
fn a_value_that_means_the_same_stays() {
    assert_eq!(edit(&[("chassis", "c1"), ("version", "u1"), ("theirs", "x")]), None);
    assert_eq!(edit(&[("chassis", "n1"), ("version", "u1")]), None);
    assert_eq!(
        edit(&[("chassis", "n1"), ("version", "u0")]),
        Some((texts(["version"]), texts(["version=u1"])))
    );
}

#[test]
fn another_value_is_replaced_and_it_is_never_the_alike_one_that_is_written() {
    assert_eq!(
        edit(&[("chassis", "c2"), ("version", "u1")]),
        Some((texts(["chassis"]), texts(["chassis=c1"])))
    );
    assert_eq!(edit(&[]), Some((vec![], texts(["chassis=c1", "version=u1"]))));
    // The value of another key is not equivalent.
    assert_eq!(
        edit(&[("chassis", "c1"), ("version", "n1")]),
        Some((texts(["version"]), texts(["version=u1"])))
    );
}

#[test]
fn what_must_not_be_there_is_removed() {
    assert_eq!(
        edit(&[("chassis", "n1"), ("version", "u1"), ("mtu", "1400")]),
        Some((texts(["mtu"]), vec![]))
    );
}

/// Each pair used to be compared with every pair of the other map.
#[test]
fn comparing_maps_of_many_pairs_does_not_take_the_product_of_their_sizes() {
    let names: Vec<String> = (0..60_000).map(|number| format!("^NODEIP_IPv4_{number}")).collect();
    let now = ovsdb::Pairs::new(names.iter().map(|name| (name.as_str(), "192.0.2.1"))).unwrap();
    let other_order = Datum::map(names.iter().rev().map(|name| (name.as_str(), "192.0.2.1")));
    let named = ["added", "kept", "stale"];
    let wanted = Pairs {
        without: &["stale"],
        ..[(named[0], "1".to_owned()), (named[1], "2".to_owned())].into()
    };
    let begun = computed();
    assert!(now.is(&other_order));
    for _ in 0..10 {
        assert!(
            pairs(&now, &wanted).is_some_and(|(remove, add)| remove.is_empty() && add.len() == 2)
        );
    }
    // A fraction of a second; 16 s when every pair was compared with every other.
    let took = computed() - begun;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// CPU time of this thread: other threads may occupy the processors.
fn computed() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

const TEXTS: [&str; 8] =
    ["10.0.0.1", "10.0.0.10", "10.0.0.2", "10.0.0.9", "fd00::1", "fd00::10", "fd00::2", "x"];

fn some_texts() -> impl Strategy<Value = BTreeSet<Box<str>>> {
    subsequence(TEXTS.to_vec(), 0..=TEXTS.len())
        .prop_map(|texts| texts.into_iter().map(Into::into).collect())
}

fn some_pairs() -> impl Strategy<Value = BTreeMap<Box<str>, String>> {
    (some_texts(), prop::collection::vec(0_u8..2, TEXTS.len())).prop_map(|(keys, values)| {
        keys.into_iter().zip(values).map(|(key, value): (_, u8)| (key, value.to_string())).collect()
    })
}

/// What the pieces named by these texts need.
fn of_pieces(now: &dyn Field, texts: &BTreeSet<Box<str>>, wanted: impl Fn(&str) -> Piece) -> Delta {
    let mut delta = Delta::default();
    for text in texts {
        assert_eq!(piece(now, &wanted(text), &mut delta), Some(()));
    }
    delta
}

proptest! {
    /// The same two operations as in the transaction: first remove, then add.
    #[test]
    fn a_difference_turns_the_value_into_the_desired_one(
        set in some_texts(), other_set in some_texts(), map in some_pairs(), other_map in some_pairs()
    ) {
        let now: Vec<Box<str>> = set.iter().cloned().collect();
        let delta = elements(&now, &other_set);
        let mut then = set.clone();
        prop_assert!(delta.remove.iter().all(|text| then.remove(text.as_str())), "{delta:?}");
        prop_assert!(delta.elements.iter().all(|text| then.insert(text.as_str().into())), "{delta:?}");
        prop_assert_eq!(&then, &other_set);
        prop_assert_eq!(delta.is_empty(), set == other_set);

        let now = ovsdb::Pairs::new(map.iter().map(|(key, value)| (&**key, value.as_str()))).unwrap();
        let delta = entries(&now, &other_map, same_text);
        let mut then = map.clone();
        prop_assert!(delta.remove.iter().all(|key| then.remove(key.as_str()).is_some()), "{delta:?}");
        // `insert` does not change the value of a key that is there.
        let added = |(key, value): (&String, &String)| then.insert(key.as_str().into(), value.clone()).is_none();
        prop_assert!(delta.entries.iter().all(added), "{delta:?}");
        prop_assert_eq!(&then, &other_map);
        prop_assert_eq!(delta.is_empty(), map == other_map);
    }

    /// The whole is the sum of its parts, and parts that have not changed need nothing.
    #[test]
    fn the_pieces_that_differ_need_what_the_whole_value_needs(
        set in some_texts(), other_set in some_texts(), map in some_pairs(), other_map in some_pairs(),
        more in some_texts()
    ) {
        let now: Vec<Box<str>> = set.iter().cloned().collect();
        let named: BTreeSet<Box<str>> = set.symmetric_difference(&other_set).chain(&more).cloned().collect();
        let delta = of_pieces(&now, &named, |text| match other_set.contains(text) {
            true => Piece::Element(text.into()),
            false => Piece::NoElement(text.into()),
        });
        prop_assert_eq!(delta, elements(&now, &other_set));

        let now = ovsdb::Pairs::new(map.iter().map(|(key, value)| (&**key, value.as_str()))).unwrap();
        let keys = map.keys().chain(other_map.keys());
        let differing = keys.filter(|key| map.get(*key) != other_map.get(*key));
        let named: BTreeSet<Box<str>> = differing.chain(&more).cloned().collect();
        let delta = of_pieces(&now, &named, |key| match other_map.get(key) {
            Some(value) => Piece::Entry(key.into(), value.clone()),
            None => Piece::NoEntry(key.into()),
        });
        prop_assert_eq!(delta, entries(&now, &other_map, same_text));
    }
}

#[test]
fn a_set_is_written_as_a_whole_if_that_is_shorter() {
    let set = |numbers: std::ops::Range<u32>| -> BTreeSet<Box<str>> {
        numbers.map(|number| format!("{number:04}").into()).collect()
    };
    let is_most = |now: std::ops::Range<u32>, wanted: std::ops::Range<u32>| {
        let (now, wanted) = (set(now).into_iter().collect::<Vec<_>>(), set(wanted));
        elements(&now, &wanted).is_most_of(wanted.len())
    };
    assert!(
        !is_most(0..1000, 0..1001) && !is_most(0..1000, 100..1000) && is_most(0..1000, 800..1800)
    );
    assert!(is_most(0..1, 0..0) && !is_most(0..0, 0..0));
}

#[test]
fn a_piece_of_a_value_that_is_neither_a_set_nor_a_map_is_left_to_the_whole() {
    let (text, mut delta) = (Box::<str>::from("x"), Delta::default());
    assert_eq!(piece(&text, &Piece::Element("x".into()), &mut delta), None);
    assert_eq!(piece(&vec![text], &Piece::NoEntry("x".into()), &mut delta), None);
    assert!(delta.is_empty());
}

/// Upstream's rows of a node with two addresses were written anew by a take-over.
#[test]
fn lists_are_equal_in_any_order_and_with_each_element_equally_often() {
    for (there, wanted, same) in [
        ("b,a", "a,b", true),
        ("a,a", "a", true),
        ("a,b,a,b", "b,a", true),
        ("", "", true),
        ("a,a,b", "a,b", false),
        ("a,b", "a", false),
        ("", "a", false),
    ] {
        assert_eq!(same_list(there, wanted), same, "{there:?} {wanted:?}");
        assert_eq!(same_list(wanted, there), same, "{wanted:?} {there:?}");
    }
}
