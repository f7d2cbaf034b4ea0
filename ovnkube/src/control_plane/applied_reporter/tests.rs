//! The events.

use kubeapi::events::Reporter;

use super::*;

fn told(answers: &Answers, is_late: bool) -> [String; 3] {
    let reporter =
        Reporter { controller: "ovn-kubernetes/ovnkube-controller", instance: "test".to_owned() };
    let object = Object::Service("shop/cart".parse().unwrap());
    let told = Told { took: Duration::from_micros(45_100), is_late, round: 7 };
    let event = event(object, "1234", answers, &told).to_api(&reporter);
    [event.type_, event.reason, event.note].map(Option::unwrap_or_default)
}

#[test]
fn an_event_says_on_how_many_nodes_and_how_soon_or_who_has_not_answered() {
    let soon = Some(Duration::from_millis(20));
    let all = Answers::given([("n1", soon), ("n2", soon)]);
    let note = "in force on 2 of 2 nodes, 45.1 ms after the change";
    assert_eq!(told(&all, false), ["Normal", "Applied", note]);
    let note = "in force on 2 of 2 nodes, within 45.1 ms of the change: nodes are asked every 5 s";
    assert_eq!(told(&all, true), ["Normal", "Applied", note]);
    let names: Vec<String> = (1..=9).map(|number| format!("n{number}")).collect();
    let silent = names.iter().map(|name| (name.as_str(), (name == "n1").then_some(Duration::ZERO)));
    let note = "in force on 1 of 9 nodes after 30 s; the ovn-controller of n2, n3, n4, n5, n6 and \
                3 more has not answered: see `ovnkube status`";
    assert_eq!(told(&Answers::given(silent), false), ["Warning", "NotApplied", note]);
    let note = "in force on no node: the southbound database has none";
    assert_eq!(told(&Answers::given([]), false), ["Warning", "NotApplied", note]);
}
