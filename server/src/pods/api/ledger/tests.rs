use super::*;
use crate::pods::PodFacts;

fn cart() -> PodKey {
    PodKey::new("shop", "cart-0").unwrap()
}

fn seen(uid: &str, version: u64) -> Seen {
    let facts = PodFacts { uid: uid.to_owned(), ..PodFacts::default() };
    Seen { pod: cart(), version: at(version), facts }
}

fn at(version: u64) -> Version {
    Version(version.to_string())
}

/// A ledger after a list as of version 100.
fn ledger(list: Vec<Seen>) -> Ledger {
    let mut ledger = Ledger::new(Pods::default());
    ledger.listed(at(100), list);
    ledger
}

/// UID of the pod as it is known.
fn uid(ledger: &Ledger) -> Option<String> {
    ledger.pods.watch(&cart()).now().map(|pod| pod.facts.uid.clone())
}

#[test]
fn the_watch_tells_what_is_new_changed_and_gone() {
    let mut ledger = ledger(vec![]);
    ledger.changed(seen("u1", 101)).unwrap();
    assert_eq!(uid(&ledger).as_deref(), Some("u1"));
    ledger.deleted(&cart(), at(102)).unwrap();
    assert_eq!(uid(&ledger), None);
    ledger.changed(seen("u2", 103)).unwrap();
    assert_eq!((uid(&ledger).as_deref(), ledger.position()), (Some("u2"), Some(&at(103))));
    ledger.advance(at(200)).unwrap();
    assert_eq!(ledger.position(), Some(&at(200)));
}

#[test]
fn a_lookup_counts_only_beyond_what_the_watch_has_told() {
    let mut fresh = ledger(vec![]);
    assert!(fresh.looked_up(seen("u1", 101)));
    assert_eq!(uid(&fresh).as_deref(), Some("u1"));

    // The answer was under way while the watch told of the end of the pod: it must not bring it back.
    let mut late = ledger(vec![]);
    late.changed(seen("u1", 101)).unwrap();
    late.deleted(&cart(), at(102)).unwrap();
    assert!(!late.looked_up(seen("u1", 101)));
    assert_eq!(uid(&late), None);

    let mut newer = ledger(vec![]);
    newer.changed(seen("u2", 105)).unwrap();
    assert!(!newer.looked_up(seen("u1", 101)));
    assert_eq!(uid(&newer).as_deref(), Some("u2"));
}

#[test]
fn older_news_of_the_watch_does_not_undo_a_lookup() {
    let mut ledger = ledger(vec![seen("u1", 90)]);
    assert!(ledger.looked_up(seen("u2", 110)));
    // The watch is still telling of the predecessor, and of the successor's youth.
    ledger.changed(seen("u1", 103)).unwrap();
    ledger.deleted(&cart(), at(104)).unwrap();
    ledger.changed(seen("u2", 105)).unwrap();
    assert_eq!(uid(&ledger).as_deref(), Some("u2"));
    assert!(!ledger.looked_up(seen("u2", 109)), "an older lookup is no news");
    ledger.deleted(&cart(), at(111)).unwrap();
    assert_eq!(uid(&ledger), None);
}

#[test]
fn what_a_list_does_not_have_is_gone_unless_it_is_newer_than_the_list() {
    let mut ledger = ledger(vec![seen("u1", 90)]);
    ledger.listed(at(150), vec![]);
    assert_eq!(uid(&ledger), None);

    assert!(ledger.looked_up(seen("u2", 170)));
    ledger.listed(at(160), vec![]);
    assert_eq!(uid(&ledger).as_deref(), Some("u2"), "created after the list was made");
    ledger.listed(at(180), vec![]);
    assert_eq!(uid(&ledger), None);
}

#[test]
fn a_list_older_than_a_lookup_does_not_undo_it() {
    let mut ledger = Ledger::new(Pods::default());
    assert!(ledger.looked_up(seen("u2", 120)), "before the first list everything is news");
    ledger.listed(at(110), vec![seen("u1", 90)]);
    assert_eq!(uid(&ledger).as_deref(), Some("u2"));
}

#[test]
fn after_a_restore_from_a_backup_a_list_counts_as_it_is() {
    let mut ledger = ledger(vec![seen("u1", 90)]);
    ledger.changed(seen("u2", 120)).unwrap();
    assert_eq!(ledger.advance(at(50)), Err(WentBack { from: "120".to_owned(), to: "50".to_owned() }));
    assert!(ledger.changed(seen("u0", 50)).is_err());
    ledger.listed(at(50), vec![seen("u0", 40)]);
    assert_eq!((uid(&ledger).as_deref(), ledger.position()), (Some("u0"), Some(&at(50))));
    ledger.changed(seen("u0", 51)).unwrap();
}

#[test]
fn versions_that_are_no_numbers_are_taken_as_they_come() {
    let odd = |uid: &str, version: &str| Seen { version: Version(version.to_owned()), ..seen(uid, 0) };
    let mut ledger = Ledger::new(Pods::default());
    ledger.listed(Version("x".to_owned()), vec![odd("u1", "b")]);
    ledger.changed(odd("u2", "a")).unwrap();
    assert_eq!(uid(&ledger).as_deref(), Some("u2"));
    assert!(!ledger.looked_up(odd("u1", "c")), "nobody knows whether it is newer");
    ledger.deleted(&cart(), Version("d".to_owned())).unwrap();
    assert_eq!(uid(&ledger), None);
}

#[test]
fn nothing_is_kept_of_pods_that_are_gone() {
    let mut ledger = ledger(vec![seen("u1", 90)]);
    ledger.deleted(&cart(), at(101)).unwrap();
    ledger.looked_up(seen("u2", 102));
    ledger.listed(at(103), vec![]);
    assert!(ledger.versions.is_empty() && ledger.pods.known().is_empty());
}
