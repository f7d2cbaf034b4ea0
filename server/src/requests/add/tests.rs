use std::sync::Arc;

use contract::{
    error::Code,
    wire::{BridgeFacts, PortWriter},
};

use super::{
    super::{
        Body,
        test_state::{GOOD, TestState, cart, facts, handler_state, request},
    },
    *,
};
use crate::ports::FEW_CALLS;

/// Code and message of the refusal, and how long it took in (paused) time.
async fn refused(handler_state: &HandlerState, request: Request) -> (Code, String, Duration) {
    let started = Instant::now();
    let refusal = handler_state.add(request, started).await.expect_err("a refusal");
    (refusal.code(), refusal.to_string(), started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_appear_is_waited_for_as_long_as_a_source_may_lag() {
    let (code, text, after) = refused(&handler_state(false).handler_state, request(|_| {})).await;
    assert_eq!((code, after.as_secs()), (Code::TryAgain, 5));
    assert_eq!(text, "pod shop/cart-0 is not known on this node");

    let (_, text, _) = refused(&handler_state(true).handler_state, request(|_| {})).await;
    assert_eq!(text, "pod shop/cart-0 is not known on this node (the API server does not answer)");
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_uid_is_refused_once_the_source_had_time_to_catch_up() {
    let played = handler_state(false);
    played.pods.put(&cart(), facts("u2", GOOD));
    let (code, text, after) = refused(&played.handler_state, request(|_| {})).await;
    assert_eq!((code, after.as_secs()), (Code::UnknownContainer, 5));
    assert_eq!(
        text,
        "pod shop/cart-0 has UID \"u2\", not \"u1\": the pod that is meant no longer exists"
    );
}

#[tokio::test(start_paused = true)]
async fn an_annotation_is_waited_for_until_shortly_before_the_caller_gives_up() {
    let played = handler_state(false);
    played.pods.put(&cart(), facts("u1", None));
    let (code, text, after) = refused(&played.handler_state, request(|_| {})).await;
    assert_eq!((code, after.as_secs()), (Code::TryAgain, 110));
    assert_eq!(
        text,
        "pod shop/cart-0 has no network \"default\" in annotation k8s.ovn.org/pod-networks"
    );

    for (timeout_ms, millis) in [(30_000, 29_800), (1_000, 800), (100, 0), (u64::MAX, 3_600_000)] {
        let (.., after) = refused(
            &played.handler_state,
            request(|request| request.timeout_ms = Some(timeout_ms)),
        )
        .await;
        assert!(after.as_millis().abs_diff(millis) <= 2, "{timeout_ms}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_change_of_the_pod_is_acted_on_at_once() {
    for (change, outcome) in [
        (facts("u1", GOOD), Ok(())),
        (facts("u1", Some("[]")), Err(Code::BadAnnotation)),
        (facts("u2", GOOD), Err(Code::UnknownContainer)),
    ] {
        let played = handler_state(false);
        played.pods.put(&cart(), facts("u1", None));
        let handler_state = Arc::clone(&played.handler_state);
        let started = Instant::now();
        let add = tokio::spawn(async move { handler_state.add(request(|_| {}), started).await });
        tokio::time::sleep(Duration::from_secs(60)).await;
        played.pods.put(&cart(), change);
        let answer = add.await.unwrap();
        assert_eq!(answer.map(drop).map_err(|refusal| refusal.code()), outcome);
        assert!(started.elapsed() < Duration::from_millis(60_010), "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_takes_no_new_add_and_lets_go_of_those_in_flight() {
    let played = handler_state(false);
    played.pods.put(&cart(), facts("u1", None));
    let handler_state = Arc::clone(&played.handler_state);
    let add = tokio::spawn(async move { handler_state.add(request(|_| {}), Instant::now()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(played.handler_state.adds.count(), 1);

    played.phase.send_replace(Phase::Draining);
    assert!(matches!(
        played.handler_state.add(request(|_| {}), Instant::now()).await,
        Err(ApiError::Draining)
    ));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!add.is_finished());

    played.phase.send_replace(Phase::Stopping);
    assert!(matches!(add.await.unwrap(), Err(ApiError::ShuttingDown)));
    assert_eq!(played.handler_state.adds.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_invalid_is_refused_before_anything_is_waited_for() {
    let handler_state = handler_state(false).handler_state;
    type Change = fn(&mut Request);
    let cases: [(Change, Code, &str); 6] = [
        (
            |r| drop(r.env.remove("CNI_CONTAINERID")),
            Code::InvalidEnvironment,
            "CNI_CONTAINERID is missing",
        ),
        (|r| drop(r.env.remove("CNI_ARGS")), Code::InvalidEnvironment, "CNI_ARGS is missing"),
        (
            |r| drop(r.env.insert("CNI_IFNAME".into(), "lo".into())),
            Code::InvalidEnvironment,
            "interface name \"lo\" is reserved",
        ),
        (
            |r| drop(r.env.insert("CNI_ARGS".into(), "a=b".into())),
            Code::InvalidEnvironment,
            "CNI_ARGS lacks K8S_POD_NAMESPACE",
        ),
        (|r| r.config = b"{".to_vec(), Code::Decode, "the CNI configuration"),
        (
            |r| r.config = br#"{"cniVersion":"9.0.0"}"#.to_vec(),
            Code::IncompatibleVersion,
            "the CNI configuration",
        ),
    ];
    for (change, code, text) in cases {
        let (refused, message, after) = refused(&handler_state, request(change)).await;
        assert_eq!((refused, message.as_str(), after), (code, text, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn the_plugin_writes_its_port_unless_many_calls_are_under_way() {
    let TestState { handler_state, pods, queue, .. } = handler_state(false);
    pods.put(&cart(), facts("u1", GOOD));
    queue.bridge.send_replace(Some(BridgeFacts {
        datapath_type: "netdev".to_owned(),
        writer: PortWriter::default(),
    }));
    let writer = async || {
        let answer = handler_state.add(request(|_| {}), Instant::now()).await.unwrap();
        let Body::Whole(body) = answer.body else { panic!("an answer to an ADD is whole") };
        serde_json::from_slice::<Response>(&body).unwrap().bridge.unwrap().writer
    };
    let mut calls = Vec::new();
    for _ in 0..FEW_CALLS {
        calls.push(handler_state.calls.enter());
        assert_eq!(writer().await, PortWriter::Plugin, "{} calls", calls.len());
    }
    let one_more = handler_state.calls.enter();
    assert_eq!(writer().await, PortWriter::Server);
    drop(one_more);
    assert_eq!(writer().await, PortWriter::Plugin);
}
