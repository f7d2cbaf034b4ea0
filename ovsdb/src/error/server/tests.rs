use super::*;

#[test]
fn an_error_is_decoded_from_each_form() {
    let decode = |json: &str| serde_json::from_str::<OvsdbError>(json).unwrap();
    let error =
        decode(r#"{"error":"syntax error","details":"no column x","syntax":"{\"x\":1}","io-error":"5"}"#);
    assert_eq!(error.kind, ErrorKind::SyntaxError);
    assert_eq!(error.to_string(), r#"syntax error: no column x (in {"x":1})"#);
    assert_eq!(decode(r#""unknown method""#).kind, ErrorKind::UnknownMethod);
    assert_eq!(decode(r#"{"error":"aborted"}"#).to_string(), "aborted");
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
