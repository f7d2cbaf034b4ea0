//! The objects that events are on.

use kubeapi::events::Reporter;

use super::*;

fn regarding(report: Report) -> (String, String) {
    let reporter = Reporter {
        controller: "ovn-kubernetes/ovnkube-control-plane",
        instance: "test".to_owned(),
    };
    let object = event(report).expect("an event").to_api(&reporter).regarding.expect("an object");
    (object.name.unwrap_or_default(), object.uid.unwrap_or_default())
}

/// `kubectl describe` selects events by the UID: without one it does not show them.
#[test]
fn an_event_about_a_doubted_list_has_the_uid_of_its_node_or_the_name_in_its_place() {
    let doubted = |uid: Option<&str>| {
        let example = Example { name: "n1".into(), uid: uid.map(Arc::from) };
        Report::HeldLists(Some(HeldLists {
            nodes: 3,
            example: Some(example),
            ..HeldLists::default()
        }))
    };
    assert_eq!(regarding(doubted(Some("1234"))), ("n1".to_owned(), "1234".to_owned()));
    assert_eq!(
        regarding(doubted(None)),
        ("n1".to_owned(), "n1".to_owned()),
        "as a kubelet writes it"
    );
}

#[test]
fn an_event_about_an_idled_service_has_its_uid() {
    let service = "shop/cart".parse().expect("a key");
    let report = Report::NeedPods { service, uid: "1234".into() };
    assert_eq!(regarding(report), ("cart".to_owned(), "1234".to_owned()));
}
