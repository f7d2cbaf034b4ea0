//! What we want, against what upstream wrote. No database.

use std::collections::BTreeSet;

use crate::{compare::Comparison, fixture::Fixture, others};

#[test]
fn our_rows_are_upstreams_rows() {
    for fixture in Fixture::all() {
        let differences = Comparison::of(&fixture, &fixture.store()).differences;
        assert!(differences.is_empty(), "{}: {differences:#?}", fixture.name);
    }
}

#[test]
fn what_we_leave_alone_is_known() {
    let mut used = BTreeSet::new();
    for fixture in Fixture::all() {
        for other in Comparison::of(&fixture, &fixture.store()).others {
            used.insert(others::known(&other).unwrap_or_else(|| panic!("{}: nothing is written about {other}", fixture.name)));
        }
    }
    assert_eq!(used, others::KNOWN.map(|(beginning, _)| beginning).into(), "what is known, and is in no fixture");
}

#[test]
fn pods_keep_the_addresses_that_upstream_gave_them() {
    for fixture in Fixture::all() {
        let mut store = fixture.store();
        assert_eq!(store.take_annotations(), [], "{}", fixture.name);
        assert_eq!(store.take_troubles(), [], "{}", fixture.name);
    }
}
