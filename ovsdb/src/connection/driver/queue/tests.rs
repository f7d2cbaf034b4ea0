use super::*;
use crate::message::{Message, parse};

fn update() -> Body {
    match parse(br#"{"method":"update2","id":null,"params":[1,{}]}"#.to_vec()).expect("an update") {
        Message::Update { params, .. } => params,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_what_waits_counts() {
    let size = update().size();
    let (sender, mut receiver) = updates(2 * size, Overflow::EndsConnection);
    for _ in 0..10 {
        sender.send(update()).expect("what was read does not count");
        receiver.next().await.expect("it was sent").expect("an update");
    }
    for _ in 0..3 {
        sender.send(update()).expect("up to the limit, and the one that goes beyond");
    }
    assert_eq!(sender.send(update()), Err(Full::Backlog(3 * size)));
}

#[tokio::test]
async fn a_reader_whose_monitor_ends_alone_finds_the_reason_after_the_updates() {
    let size = update().size();
    let (sender, mut receiver) = updates(size, Overflow::EndsMonitor);
    for _ in 0..2 {
        sender.send(update()).expect("up to the limit, and the one that goes beyond");
    }
    assert_eq!(sender.send(update()), Err(Full::Overflown));
    for _ in 0..2 {
        receiver.next().await.expect("it was sent").expect("an update");
    }
    let reason = receiver.next().await.expect("a reason");
    assert!(matches!(reason, Err(Closed::Backlog(waiting)) if waiting == 2 * size), "{reason:?}");
}

#[test]
fn a_reader_that_is_gone_is_noticed() {
    let (sender, receiver) = updates(1000, Overflow::EndsConnection);
    drop(receiver);
    assert_eq!(sender.send(update()), Err(Full::NoReader));
}
