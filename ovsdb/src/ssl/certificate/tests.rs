use proptest::prelude::*;
use time::macros::datetime;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::*;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// A moment of the DER type with this tag.
fn read(tag: u8, text: &[u8]) -> Option<OffsetDateTime> {
    let length = u8::try_from(text.len()).unwrap();
    Time::from_der(&[&[tag, length], text].concat()).ok().and_then(moment)
}

#[test]
fn both_forms_of_time_are_read() {
    assert_eq!(read(UTC_TIME, b"260102030405Z"), Some(datetime!(2026-01-02 03:04:05 UTC)));
    assert_eq!(read(UTC_TIME, b"991231235959Z"), Some(datetime!(1999-12-31 23:59:59 UTC)));
    assert_eq!(
        read(GENERALIZED_TIME, b"20510102030405Z"),
        Some(datetime!(2051-01-02 03:04:05 UTC))
    );
    // RFC 5280 §4.1.2.5: a certificate without an end.
    assert_eq!(
        read(GENERALIZED_TIME, b"99991231235959Z"),
        Some(datetime!(9999-12-31 23:59:59 UTC))
    );
    for wrong in [&b"26010203040"[..], b"261302030405Z", b"260102030405+0100", b"", b"\xff"] {
        assert_eq!(read(UTC_TIME, wrong), None);
    }
    assert_eq!(shown(datetime!(2026-01-02 03:04:05 UTC)), "2026-01-02 03:04:05 UTC");
}

/// openssl-ca(1) without `x509_extensions` makes version 1, of two common names, with any serial
/// number.
#[test]
fn a_certificate_of_version_1_with_a_serial_number_of_32_bytes_is_read() {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("version_1.pem")).unwrap();
    let facts = Facts::of(&certificate).unwrap();
    assert_eq!(facts.common_name().as_deref(), Some("the last"));
    assert_eq!(facts.not_before, datetime!(1999-12-31 23:59:59 UTC));
    assert_eq!(facts.not_after, datetime!(2051-01-02 03:04:05 UTC));
    assert!(facts.is_self_signed());
    assert!(Facts::of(&CertificateDer::from(&certificate[..certificate.len() - 1])).is_none());
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
