use super::*;
use crate::error::ErrorKind;

fn read(json: &str) -> Result<Message, String> {
    parse(json.as_bytes().to_vec())
}

#[test]
fn an_answer_carries_its_result_where_it_lies() {
    match read(r#"{"id": 7, "error": null, "result": [ {} ] }"#).unwrap() {
        Message::Answer { id: 7, answer: Ok(body) } => assert_eq!(body.as_str(), "[ {} ]"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_may_be_an_error() {
    match read(r#"{"id":7,"result":null,"error":{"error":"unknown database","details":"x"}}"#)
        .unwrap()
    {
        Message::Answer { id: 7, answer: Err(error) } => {
            assert_eq!(error.kind, ErrorKind::UnknownDatabase)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_echo_is_answered_with_its_own_parameters_and_id() {
    match read(r#"{"method":"echo","id":["any", 1],"params":["x",{"y":null}]}"#).unwrap() {
        Message::Echo { reply } => {
            assert_eq!(
                String::from_utf8(reply).unwrap(),
                r#"{"id":["any", 1],"result":["x",{"y":null}],"error":null}"#
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn updates_of_all_forms_name_their_monitor() {
    for (method, params) in
        [("update", "[4,{}]"), ("update2", "[4,{}]"), ("update3", r#"[4,"x",{}]"#)]
    {
        match read(&format!(r#"{{"method":"{method}","id":null,"params":{params}}}"#)).unwrap() {
            Message::Update { monitor: 4, params: body } => assert_eq!(body.as_str(), params),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_needs_no_answer_is_told_apart() {
    assert!(matches!(read(r#"{"id":"probe","result":[],"error":null}"#), Ok(Message::Unnumbered)));
    assert!(
        matches!(read(r#"{"method":"locked","params":["x"],"id":null}"#), Ok(Message::Lock { held: true, name }) if name == "x")
    );
    assert!(matches!(
        read(r#"{"method":"stolen","params":["x"],"id":null}"#),
        Ok(Message::Lock { held: false, .. })
    ));
    assert!(matches!(
        read(r#"{"method":"news","params":["x"],"id":null}"#),
        Ok(Message::Other { .. })
    ));
    assert!(matches!(
        read(r#"{"method":"monitor_canceled","params":[1],"id":null}"#),
        Ok(Message::MonitorCanceled)
    ));
}

#[test]
fn what_is_no_message_is_refused() {
    for json in [
        "{}",
        r#"{"id":null}"#,
        r#"{"id":1}"#,
        r#"{"id":1,"result":null,"error":null}"#,
        r#"{"id":1,"error":7}"#,
        r#"{"method":7}"#,
        r#"{"method":"update","id":null}"#,
        r#"{"method":"update","id":null,"params":[]}"#,
        r#"{"method":"update","id":null,"params":["x",{}]}"#,
        r#"{"id":1,"result":nul}"#,
    ] {
        read(json).expect_err(json);
    }
    parse(b"{\"id\":\"\xff\"}".to_vec()).expect_err("not UTF-8");
}
