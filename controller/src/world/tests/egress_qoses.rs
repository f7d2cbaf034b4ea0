//! Random changes around EgressQoSes: whatever changes the rows of a key makes the key dirty. And
//! the status, events, and lists that are held back.

use contract::definition::CustomKind;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use crate::{kinds::egress_qos::object::EgressQos, status_writeback::RowsState};

use super::*;

#[derive(Debug, Clone)]
enum QosEvent {
    /// A pod, with one of the labels.
    Pod(u8, u8),
    PodGone(u8),
    Node(u8),
    NodeGone(u8),
    Qos(Vec<u8>),
    QosGone,
    /// The database shows the rows.
    Settle,
}

fn event() -> impl Strategy<Value = QosEvent> {
    prop_oneof![
        3 => (0_u8..3, 0_u8..2).prop_map(|(pod, label)| QosEvent::Pod(pod, label)),
        1 => (0_u8..3).prop_map(QosEvent::PodGone),
        2 => (1_u8..4).prop_map(QosEvent::Node),
        1 => (2_u8..4).prop_map(QosEvent::NodeGone),
        1 => Just(QosEvent::Settle),
        4 => vec(0_u8..5, 0..4).prop_map(QosEvent::Qos),
        1 => Just(QosEvent::QosGone),
    ]
}

fn qos_key() -> Key {
    Key::custom(CustomKind::EgressQos, "shop".into())
}

fn put(egress: Value, status: Value) -> WatchEvent {
    let qos = EgressQos::new("shop", "uid", json!({ "egress": egress }), status);
    WatchEvent::custom(Seen::Applied(("shop".into(), qos)))
}

fn rules(kinds: &[u8]) -> Value {
    let rule = |kind: &u8| match kind {
        0 => json!({"dscp": 10}),
        1 => json!({"dscp": 20, "dstCIDR": "192.0.2.0/24"}),
        2 => json!({"dscp": 64}),
        _ => json!({"dscp": 30, "podSelector": {"matchLabels": {"app": format!("a{}", kind - 3)}}}),
    };
    kinds.iter().map(rule).collect()
}

fn happen(store: &mut Store, event: QosEvent, dirty: &mut Dirty<'_>) {
    let observation = match event {
        QosEvent::Pod(number, label) => {
            let WatchEvent::Pods(Seen::Applied((key, pod))) = numbered_pod(number) else {
                panic!("a pod")
            };
            let labels = [("app".to_owned(), format!("a{label}"))].into_iter().collect();
            WatchEvent::Pods(Seen::Applied((key, Pod { labels, ..pod })))
        }
        QosEvent::PodGone(number) => numbered_pod_gone(number),
        QosEvent::Node(number) => WatchEvent::Nodes(Seen::Applied(node(
            &format!("n{number}"),
            &format!("10.244.{number}.0/24"),
        ))),
        QosEvent::NodeGone(number) => WatchEvent::Nodes(Seen::Deleted(format!("n{number}").into())),
        QosEvent::Qos(kinds) => put(rules(&kinds), json!({})),
        QosEvent::QosGone => WatchEvent::custom::<EgressQos>(Seen::Deleted("shop".into())),
        QosEvent::Settle => return store.settled(&qos_key(), dirty),
    };
    store.observe(observation, dirty);
}

proptest! {
    #[test]
    fn whatever_changes_the_rows_of_an_egress_qos_or_its_sets_makes_them_dirty(
        events in vec(event(), 1..25)
    ) {
        changed_rows_are_dirty(events, happen)?;
    }
}

/// Status, message and time of each status that is to be written.
fn statuses(store: &mut Store) -> Vec<(&'static str, String, Option<Box<str>>)> {
    let statuses = store.take_statuses().into_iter();
    statuses.map(|status| (status.status, status.message, status.since)).collect()
}

#[test]
fn the_status_is_a_condition_of_the_zone_and_says_what_cannot_be_used() {
    const APPLIED: &str = "EgressQoS Rules applied";
    const NOT_APPLIED: &str = "EgressQoS Rules not correctly applied";
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    observe(&mut store, put(rules(&[0]), json!({})));
    assert_eq!(statuses(&mut store), [], "before its rows are there");
    store.settled(&qos_key(), &mut |_, _| ());
    let [status] = &store.take_statuses()[..] else { panic!("one") };
    assert_eq!((status.status, status.message.as_str()), (APPLIED, APPLIED));
    let now = "2026-01-02T03:04:05Z";
    let fields = status.fields(now.parse().unwrap());
    let condition = json!({
        "type": "Ready-In-Zone-global", "status": "True", "reason": "SetupSucceeded",
        "message": APPLIED, "lastTransitionTime": now,
    });
    assert_eq!(fields, json!({"status": APPLIED, "conditions": [condition]}));
    observe(&mut store, put(rules(&[0]), fields.clone()));
    assert_eq!(statuses(&mut store), [], "it arrived");

    observe(&mut store, put(rules(&[0, 2]), fields));
    store.settled(&qos_key(), &mut |_, _| ());
    let why = "rule 1: dscp 64 is not between 0 and 63; rule ignored";
    let expected = (NOT_APPLIED, format!("{NOT_APPLIED}: {why}"), None);
    assert_eq!(statuses(&mut store), [expected]);
    let told = store.take_problems();
    let told: Vec<_> = told.iter().map(|of| (of.object.kind(), of.reason)).collect();
    assert_eq!(told, [("EgressQoS", "UnusableDSCP")]);

    store.custom_stands(CustomKind::EgressQos, &"shop".into(), RowsState::Failed("why".into()));
    let expected = (NOT_APPLIED, format!("{NOT_APPLIED}: why"), None);
    assert_eq!(statuses(&mut store), [expected]);
}

/// A kind that denies nothing holds up no pod.
#[test]
fn an_empty_list_removes_nothing_until_it_is_repeated_and_pods_begin_meanwhile() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    observe(&mut store, put(rules(&[0]), json!({})));
    let none = || WatchEvent::custom::<EgressQos>(Seen::All(Vec::new()));
    assert_eq!(observe(&mut store, none()), []);
    assert_eq!(store.doubted().map(|held| held.missing()), Some(1));
    assert!(store.may_begin(&Key::Pod(key("a"))));
    observe(&mut store, WatchEvent::Cluster(None));
    assert!(observe(&mut store, none()).contains(&qos_key()));
    assert_eq!(store.doubted(), None);
}
