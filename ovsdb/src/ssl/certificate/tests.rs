use proptest::prelude::*;
use time::macros::datetime;

use super::*;

#[test]
fn both_forms_of_time_are_read() {
    assert_eq!(moment((UTC_TIME, b"260102030405Z")), Some(datetime!(2026-01-02 03:04:05 UTC)));
    assert_eq!(moment((UTC_TIME, b"991231235959Z")), Some(datetime!(1999-12-31 23:59:59 UTC)));
    assert_eq!(moment((GENERALIZED_TIME, b"20510102030405Z")), Some(datetime!(2051-01-02 03:04:05 UTC)));
    for wrong in [&b"26010203040"[..], b"261302030405Z", b"260102030405+0100", b"", b"\xff"] {
        assert_eq!(moment((UTC_TIME, wrong)), None);
    }
    assert_eq!(shown(datetime!(2026-01-02 03:04:05 UTC)), "2026-01-02 03:04:05 UTC");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        if let Some(facts) = Facts::of(&CertificateDer::from(bytes)) {
            facts.common_name();
        }
    }

    #[test]
    fn no_bytes_in_the_right_shape_make_it_panic(bytes in proptest::collection::vec(prop_oneof![Just(0x30_u8), Just(0x17), 0_u8..20], 0..40)) {
        if let Some(facts) = Facts::of(&CertificateDer::from(bytes)) {
            facts.common_name();
        }
    }
}
