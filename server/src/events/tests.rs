use tokio::sync::mpsc;

use super::*;

/// Events that a test reads.
fn events() -> (Events, mpsc::Receiver<Event>) {
    let (recorder, waiting) = Recorder::fake(2);
    (Events { recorder }, waiting)
}

fn cart() -> PodKey {
    PodKey::new("shop", "cart-0").unwrap()
}

fn report(change: impl FnOnce(&mut wire::Metrics)) -> wire::Metrics {
    let mut report: wire::Metrics = serde_json::from_str(
        r#"{"command":"ADD","elapsedTime":30.0,"hasErr":true,"code":11,"message":"no flows","pod":"shop/cart-0","failedStage":"ovn_installed"}"#,
    )
    .unwrap();
    change(&mut report);
    report
}

#[test]
fn failures_of_the_plugin_are_told_once_and_only_if_they_are_the_owners_business() {
    let (events, mut waiting) = events();
    events.reported(&cart(), "u1", &report(|_| {}));
    let told = waiting.try_recv().unwrap();
    assert_eq!(
        told.note(),
        "no flows (stage ovn_installed); see the log of the CNI plugin on the node"
    );
    let event = told.to_api(&reporter("node1"));
    let regarding = event.regarding.unwrap();
    assert_eq!(
        (event.reason.as_deref(), event.type_.as_deref()),
        (Some("NetworkFailed"), Some("Warning"))
    );
    assert_eq!((regarding.name.as_deref(), regarding.uid.as_deref()), (Some("cart-0"), Some("u1")));
    assert_eq!(
        (event.reporting_controller.as_deref(), event.reporting_instance.as_deref()),
        (Some("ovn-kubernetes/ovnkube-node"), Some("node1"))
    );

    type Change = fn(&mut wire::Metrics);
    let quiet: [Change; 4] = [
        |report| report.has_err = false,
        |report| report.command = "DEL".to_owned(),
        // The server refused it, and said so then.
        |report| report.failed_stage = Some(Stage::Annotation),
        |report| report.code = Some(Code::Superseded.number()),
    ];
    for change in quiet {
        events.reported(&cart(), "u1", &report(change));
        assert!(waiting.try_recv().is_err());
    }
    // Upstream's plugin says that it failed, and no more.
    events.reported(
        &cart(),
        "",
        &report(|report| (report.message, report.failed_stage, report.code) = (None, None, None)),
    );
    assert!(waiting.try_recv().unwrap().note().starts_with("the CNI plugin failed; "));
}

#[test]
fn refusals_are_told_unless_they_happen_in_a_healthy_cluster() {
    let (events, mut waiting) = events();
    events.refused(&cart(), "u1", &ApiError::NoSuchPod { pod: cart(), why: None }, "look there");
    assert_eq!(
        waiting.try_recv().unwrap().note(),
        "pod shop/cart-0 is not known on this node; look there"
    );
    for expected in [
        ApiError::ShuttingDown,
        ApiError::Busy,
        ApiError::PodChanged { pod: cart(), change: wire::PodChange::Deleted },
    ] {
        events.refused(&cart(), "u1", &expected, "");
        assert!(waiting.try_recv().is_err(), "{expected}");
    }
}

#[test]
fn nobody_waits_where_there_is_no_room_and_what_is_lost_is_counted() {
    let (events, _waiting) = events();
    (0..5).for_each(|_| events.reported(&cart(), "u1", &report(|_| {})));
    assert_eq!(events.recorder.lost(), 3);
    Events::default().reported(&cart(), "u1", &report(|_| {}));
}

#[test]
fn notes_are_one_line_of_bounded_length_and_names_are_names() {
    let long = format!("a\nb\u{1b}[2J{}", "é".repeat(2000));
    let name = format!("{}.{}", "a".repeat(199), "b".repeat(53));
    let late = late(&PodKey::new("shop", &name).unwrap(), "", Stage::Annotation, long);
    assert!(
        late.note().len() <= 1024
            && late.note().ends_with("...")
            && !late.note().contains(char::is_control),
        "{}",
        late.note()
    );
    let event = late.to_api(&reporter("node1"));
    let name = event.metadata.name.unwrap();
    assert!(name.len() <= 253 && !name.contains(".."), "{name}");
    assert_eq!(event.regarding.unwrap().uid, None);
}

#[test]
fn a_switch_that_will_abort_is_an_event_on_the_node() {
    let (events, mut waiting) = events();
    events.aborting_switch("node1", "3.1.0", "3.1.3");
    let event = waiting.try_recv().unwrap().to_api(&reporter("node1"));
    assert_eq!(event.reason.as_deref(), Some("OpenVSwitchAborts"));
    assert_eq!(event.regarding.unwrap().kind.as_deref(), Some("Node"));
    assert!(event.note.unwrap().starts_with("Open vSwitch 3.1.0 aborts"));
}

#[test]
fn a_limit_that_does_not_hold_is_an_event_on_the_pod() {
    let (events, mut waiting) = events();
    events.not_limited(&cart(), "u1");
    let event = waiting.try_recv().unwrap().to_api(&reporter("node1"));
    assert_eq!(event.reason.as_deref(), Some("EgressNotLimited"));
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some("cart-0"));
    assert!(event.note.unwrap().contains("datapath_type=netdev"));
}
