use super::*;
use crate::pods::PodFacts;

fn cart() -> PodKey {
    PodKey::new("shop", "cart-0").unwrap()
}

fn seen(uid: &str, version: u64) -> VersionedPod {
    let facts = PodFacts { uid: uid.to_owned(), ..PodFacts::default() };
    VersionedPod { pod: cart(), version: at(version), facts }
}

fn at(version: u64) -> Version {
    Version(version.to_string())
}

/// A versioned_pods after a list as of version 100.
fn versioned_pods(list: Vec<VersionedPod>) -> VersionedPods {
    let mut versioned_pods = VersionedPods::new(Pods::default());
    versioned_pods.listed(at(100), list);
    versioned_pods
}

/// The UID of the known pod.
fn uid(versioned_pods: &VersionedPods) -> Option<String> {
    versioned_pods.pods.watch(&cart()).now().map(|pod| pod.facts.uid.clone())
}

#[test]
fn the_watch_tells_what_is_new_changed_and_gone() {
    let mut versioned_pods = versioned_pods(vec![]);
    versioned_pods.changed(seen("u1", 101)).unwrap();
    assert_eq!(uid(&versioned_pods).as_deref(), Some("u1"));
    versioned_pods.deleted(&cart(), at(102)).unwrap();
    assert_eq!(uid(&versioned_pods), None);
    versioned_pods.changed(seen("u2", 103)).unwrap();
    assert_eq!(
        (uid(&versioned_pods).as_deref(), versioned_pods.position()),
        (Some("u2"), Some(&at(103)))
    );
    versioned_pods.advance(at(200)).unwrap();
    assert_eq!(versioned_pods.position(), Some(&at(200)));
}

#[test]
fn a_lookup_counts_only_beyond_what_the_watch_has_told() {
    let mut fresh = versioned_pods(vec![]);
    assert!(fresh.looked_up(seen("u1", 101)));
    assert_eq!(uid(&fresh).as_deref(), Some("u1"));

    // The watch reported the deletion while the answer was under way: the answer must not bring the
    // pod back.
    let mut late = versioned_pods(vec![]);
    late.changed(seen("u1", 101)).unwrap();
    late.deleted(&cart(), at(102)).unwrap();
    assert!(!late.looked_up(seen("u1", 101)));
    assert_eq!(uid(&late), None);

    let mut newer = versioned_pods(vec![]);
    newer.changed(seen("u2", 105)).unwrap();
    assert!(!newer.looked_up(seen("u1", 101)));
    assert_eq!(uid(&newer).as_deref(), Some("u2"));
}

#[test]
fn older_news_of_the_watch_does_not_undo_a_lookup() {
    let mut versioned_pods = versioned_pods(vec![seen("u1", 90)]);
    assert!(versioned_pods.looked_up(seen("u2", 110)));
    // The watch is still at the end of the predecessor, and then at the beginning of the successor.
    versioned_pods.changed(seen("u1", 103)).unwrap();
    versioned_pods.deleted(&cart(), at(104)).unwrap();
    versioned_pods.changed(seen("u2", 105)).unwrap();
    assert_eq!(uid(&versioned_pods).as_deref(), Some("u2"));
    assert!(!versioned_pods.looked_up(seen("u2", 109)), "an older lookup is no news");
    versioned_pods.deleted(&cart(), at(111)).unwrap();
    assert_eq!(uid(&versioned_pods), None);
}

#[test]
fn what_a_list_does_not_have_is_gone_unless_it_is_newer_than_the_list() {
    let mut versioned_pods = versioned_pods(vec![seen("u1", 90)]);
    versioned_pods.listed(at(150), vec![]);
    assert_eq!(uid(&versioned_pods), None);

    assert!(versioned_pods.looked_up(seen("u2", 170)));
    versioned_pods.listed(at(160), vec![]);
    assert_eq!(uid(&versioned_pods).as_deref(), Some("u2"), "created after the list was made");
    versioned_pods.listed(at(180), vec![]);
    assert_eq!(uid(&versioned_pods), None);
}

#[test]
fn a_list_older_than_a_lookup_does_not_undo_it() {
    let mut versioned_pods = VersionedPods::new(Pods::default());
    assert!(versioned_pods.looked_up(seen("u2", 120)), "before the first list everything is news");
    versioned_pods.listed(at(110), vec![seen("u1", 90)]);
    assert_eq!(uid(&versioned_pods).as_deref(), Some("u2"));
}

#[test]
fn after_a_restore_from_a_backup_a_list_counts_as_it_is() {
    let mut versioned_pods = versioned_pods(vec![seen("u1", 90)]);
    versioned_pods.changed(seen("u2", 120)).unwrap();
    assert_eq!(
        versioned_pods.advance(at(50)),
        Err(WentBack { from: "120".to_owned(), to: "50".to_owned() })
    );
    assert!(versioned_pods.changed(seen("u0", 50)).is_err());
    versioned_pods.listed(at(50), vec![seen("u0", 40)]);
    assert_eq!(
        (uid(&versioned_pods).as_deref(), versioned_pods.position()),
        (Some("u0"), Some(&at(50)))
    );
    versioned_pods.changed(seen("u0", 51)).unwrap();
}

#[test]
fn versions_that_are_no_numbers_are_taken_as_they_come() {
    let odd = |uid: &str, version: &str| VersionedPod {
        version: Version(version.to_owned()),
        ..seen(uid, 0)
    };
    let mut versioned_pods = VersionedPods::new(Pods::default());
    versioned_pods.listed(Version("x".to_owned()), vec![odd("u1", "b")]);
    versioned_pods.changed(odd("u2", "a")).unwrap();
    assert_eq!(uid(&versioned_pods).as_deref(), Some("u2"));
    assert!(!versioned_pods.looked_up(odd("u1", "c")), "nobody knows whether it is newer");
    versioned_pods.deleted(&cart(), Version("d".to_owned())).unwrap();
    assert_eq!(uid(&versioned_pods), None);
}

#[test]
fn nothing_is_kept_of_pods_that_are_gone() {
    let mut versioned_pods = versioned_pods(vec![seen("u1", 90)]);
    versioned_pods.deleted(&cart(), at(101)).unwrap();
    versioned_pods.looked_up(seen("u2", 102));
    versioned_pods.listed(at(103), vec![]);
    assert!(versioned_pods.versions.is_empty() && versioned_pods.pods.known().is_empty());
}
