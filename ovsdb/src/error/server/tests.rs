use super::*;

#[test]
fn an_error_is_decoded_from_each_form() {
    let decode = |json: &str| serde_json::from_str::<OvsdbError>(json).unwrap();
    let error = decode(r#"{"error":"syntax error","details":"no column x","syntax":"{\"x\":1}"}"#);
    assert_eq!(error.kind, ErrorKind::SyntaxError);
    assert_eq!(error.to_string(), r#"syntax error: no column x (in {"x":1})"#);
    assert_eq!(decode(r#""unknown method""#).kind, ErrorKind::UnknownMethod);
    assert_eq!(decode(r#"{"error":"aborted"}"#).to_string(), "aborted");
}

/// A database on a full disk said "write failed" only.
#[test]
fn an_error_of_the_servers_disk_keeps_the_reason_of_its_system() {
    let json = r#"{"details":"/var/lib/ovn/ovnnb_db.db: write failed","error":"I/O error","io-error":"No space left on device"}"#;
    let expected = "I/O error: /var/lib/ovn/ovnnb_db.db: write failed (No space left on device)";
    assert_eq!(serde_json::from_str::<OvsdbError>(json).unwrap().to_string(), expected);
    let without_details = r#"{"error":"I/O error","io-error":"No space left on device"}"#;
    let error = serde_json::from_str::<OvsdbError>(without_details).unwrap();
    assert_eq!(error.to_string(), "I/O error: No space left on device");
}

#[test]
fn an_unknown_error_keeps_its_text() {
    let kind = ErrorKind::from("something new");
    assert_eq!(kind, ErrorKind::Other("something new".to_owned()));
    assert_eq!(kind.as_str(), "something new");
}

#[test]
fn what_is_not_an_error_is_refused() {
    for json in ["{}", "7", r#"{"details":"x"}"#] {
        serde_json::from_str::<OvsdbError>(json).expect_err(json);
    }
}
