use super::*;

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
