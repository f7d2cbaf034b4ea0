//! Random changes around EgressFirewalls: whatever changes the rows of a key makes the key dirty.
//! And the status.

use contract::{
    definition::CustomKind,
    namespace_annotation::{AclLogging, Severity},
};
use k8s_openapi::jiff::Timestamp;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use crate::{
    config::{Interconnect, Zone},
    key::SetId,
    select::names::DnsName,
};

use super::*;

#[derive(Debug, Clone)]
enum Event {
    Pod(u8),
    PodGone(u8),
    /// The label of a node, and the number of its second address.
    Node(u8, u8, u8),
    NodeGone(u8),
    /// Whether what is denied is logged.
    Namespace(bool),
    Firewall(Vec<u8>),
    FirewallGone,
    /// What the DNS says of a name.
    Name(u8, Option<u8>),
    /// The database shows the rows.
    Settle,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0_u8..3).prop_map(Event::Pod),
        1 => (0_u8..3).prop_map(Event::PodGone),
        3 => (1_u8..4, 0_u8..2, 0_u8..2).prop_map(|(node, label, host)| Event::Node(node, label, host)),
        1 => (2_u8..4).prop_map(Event::NodeGone),
        1 => any::<bool>().prop_map(Event::Namespace),
        2 => (0_u8..2, proptest::option::of(0_u8..3)).prop_map(|(name, answer)| Event::Name(name, answer)),
        1 => Just(Event::Settle),
        4 => vec(0_u8..8, 0..4).prop_map(Event::Firewall),
        1 => Just(Event::FirewallGone),
    ]
}

fn firewall(spec: Value, status: Value) -> EgressFirewall {
    EgressFirewall::new("uid", spec, status)
}

fn rules(kinds: &[u8]) -> Value {
    let rule = |kind: &u8| match kind {
        0 => json!({"type": "Allow", "to": {"cidrSelector": "192.0.2.0/24"}}),
        1 => json!({"type": "Deny", "to": {"cidrSelector": "0.0.0.0/0"}}),
        2 => json!({"type": "Allow", "to": {"nodeSelector": {}}}),
        3 => json!({"type": "Deny", "to": {"nodeSelector": {"matchLabels": {"label": "v0"}}}}),
        4 => json!({"type": "Allow", "to": {"nodeSelector": {"matchExpressions": [
            {"key": "label", "operator": "NotIn", "values": ["v0"]}]}}}),
        5 => json!({"type": "Allow", "to": {"cidrSelector": "nonsense"}}),
        _ => json!({"type": "Allow", "to": {"dnsName": format!("name{}.example", kind - 6)}}),
    };
    json!({"egress": kinds.iter().map(rule).collect::<Vec<_>>()})
}

fn see(seen: Seen<Arc<str>, (Arc<str>, EgressFirewall)>) -> WatchEvent {
    WatchEvent::custom(seen)
}

fn put(spec: Value, status: Value) -> WatchEvent {
    see(Seen::Applied(("shop".into(), firewall(spec, status))))
}

fn happen(store: &mut Store, event: Event, dirty: &mut Dirty<'_>) {
    let observation = match event {
        Event::Pod(number) => numbered_pod(number),
        Event::PodGone(number) => numbered_pod_gone(number),
        Event::Node(number, label, host) => WatchEvent::Nodes(Seen::Applied(Node {
            labels: Arc::new([("label".to_owned(), format!("v{label}"))].into()),
            host_addresses: vec![net(&format!("172.18.{host}.{number}/32")).addr()],
            ..node(&format!("n{number}"), &format!("10.244.{number}.0/24"))
        })),
        Event::NodeGone(number) => WatchEvent::Nodes(Seen::Deleted(format!("n{number}").into())),
        Event::Namespace(is_logged) => {
            let logging = AclLogging { allow: None, deny: is_logged.then_some(Severity::Alert) };
            let namespace = Namespace { uid: "uid".into(), logging, ..Namespace::default() };
            WatchEvent::Namespaces(Seen::Applied(("shop".into(), namespace)))
        }
        Event::Firewall(kinds) => put(rules(&kinds), json!({})),
        Event::FirewallGone => see(Seen::Deleted("shop".into())),
        Event::Name(name, answer) => {
            let address = |host| [net(&format!("192.0.2.{host}/32")).addr()].into();
            let answer = answer.map(address).ok_or_else(|| "no answer".into());
            WatchEvent::Name(format!("name{name}.example").into(), answer)
        }
        Event::Settle => {
            store.settled(&Key::custom(CustomKind::EgressFirewall, "shop".into()), dirty);
            return;
        }
    };
    store.observe(observation, dirty);
}

proptest! {
    #[test]
    fn whatever_changes_the_rows_of_an_egress_firewall_or_its_pods_makes_them_dirty(
        events in vec(event(), 1..25)
    ) {
        changed_rows_are_dirty(events, happen)?;
    }
}

const OWN: &str = "shop";

fn settle(store: &mut Store) {
    store.settled(&Key::custom(CustomKind::EgressFirewall, OWN.into()), &mut |key, _| {
        panic!("{key} is dirty")
    });
}

/// The status and the message of each status that is to be written.
fn statuses(store: &mut Store) -> Vec<(&'static str, String)> {
    store.take_statuses().into_iter().map(|status| (status.status, status.message)).collect()
}

const APPLIED: &str = "EgressFirewall Rules applied";

/// They stayed for ever.
#[test]
fn the_first_zone_takes_back_what_a_zone_without_nodes_has_said() {
    let zoned = |name: &str, number: u32, zone: &str| Node {
        zone: Some(Zone(zone.to_owned())),
        ..node(name, &format!("10.244.{number}.0/24"))
    };
    let nodes = vec![zoned("n1", 1, "a"), zoned("n2", 2, "b"), zoned("n3", 3, "c")];
    for (own, takes_back) in [("a", true), ("b", false)] {
        let config = ClusterConfig {
            zone: Zone(own.to_owned()),
            interconnect: Interconnect::On,
            ..config()
        };
        let mut store = Store::new(config);
        observe(&mut store, WatchEvent::Nodes(Seen::All(nodes.clone())));
        observe(&mut store, WatchEvent::Pods(Seen::All(Vec::new())));
        without_services(&mut store);
        let messages: Vec<String> = ["a", "b", "c"].map(|zone| format!("{zone}: {APPLIED}")).into();
        let spec = rules(&[0, 1]);
        observe(&mut store, put(spec.clone(), json!({"messages": messages})));
        settle(&mut store);
        assert_eq!(store.take_statuses(), [], "zone {own}: all are there");
        observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n3".into())));
        let withdrawn: Vec<(String, Value)> = store
            .take_statuses()
            .into_iter()
            .map(|status| (status.zone.0.clone(), status.fields(Timestamp::UNIX_EPOCH)))
            .collect();
        let expected = takes_back.then(|| ("c".to_owned(), json!({})));
        assert_eq!(withdrawn, expected.into_iter().collect::<Vec<_>>(), "zone {own}");
        // Once, and not again when it is gone.
        observe(&mut store, put(spec.clone(), json!({"messages": messages})));
        observe(&mut store, put(spec, json!({"messages": messages[..2]})));
        assert_eq!(store.take_statuses(), [], "zone {own}");
    }
}

#[test]
fn a_status_is_written_once_the_rows_are_there_and_not_again() {
    let mut store = complete(vec![], vec![]);
    let spec = rules(&[0, 1]);
    observe(&mut store, put(spec.clone(), json!({})));
    assert_eq!(statuses(&mut store), [], "before the rows are there");
    settle(&mut store);
    let message = format!("global: {APPLIED}");
    assert_eq!(statuses(&mut store), [(APPLIED, message.clone())]);
    settle(&mut store);
    assert_eq!(statuses(&mut store), [], "it is on its way");
    let status = json!({"status": APPLIED, "messages": [message, "other: x"]});
    assert_eq!(
        observe(&mut store, put(spec.clone(), status.clone())),
        [],
        "the status has no rows"
    );
    settle(&mut store);
    assert_eq!(statuses(&mut store), [], "the object has it");
    observe(&mut store, put(spec.clone(), json!({"status": APPLIED, "messages": ["other: x"]})));
    assert_eq!(statuses(&mut store), [(APPLIED, message.clone())], "another writer has removed it");
    observe(&mut store, put(spec.clone(), json!({})));
    assert_eq!(statuses(&mut store), [], "two writers do not fight");
    let list = vec![(OWN.into(), firewall(spec, json!({})))];
    observe(&mut store, see(Seen::All(list)));
    assert_eq!(
        statuses(&mut store),
        [(APPLIED, message)],
        "what was sent may be lost with the watch"
    );
}

#[test]
fn a_status_names_the_rule_that_cannot_be_used_and_so_does_one_event() {
    let mut store = complete(vec![], vec![]);
    observe(
        &mut store,
        put(rules(&[0, 5]), json!({"status": APPLIED, "messages": [format!("global: {APPLIED}")]})),
    );
    settle(&mut store);
    let why =
        "its rule 1 has the cidrSelector \"nonsense\", which is no network; the rule is left out";
    let not_applied = "EgressFirewall Rules not correctly applied";
    assert_eq!(statuses(&mut store), [(not_applied, format!("global: {not_applied}: {why}"))]);
    let reasons = |store: &mut Store| -> Vec<&'static str> {
        store.take_problems().into_iter().map(|trouble| trouble.reason).collect()
    };
    assert_eq!(reasons(&mut store), ["NoNetwork"]);
    observe(&mut store, put(rules(&[1, 5]), json!({})));
    assert_eq!(reasons(&mut store), [""; 0], "the same as before");
    observe(
        &mut store,
        put(
            json!({"egress": [{"type": "Deny", "to": {"cidrSelector": "10.244.8.0/24"}}]}),
            json!({}),
        ),
    );
    assert_eq!(reasons(&mut store), ["OnlyPods"]);
}

#[test]
fn a_status_says_that_the_database_refuses_the_rows_until_it_has_them() {
    let mut store = complete(vec![], vec![]);
    observe(&mut store, put(rules(&[0]), json!({})));
    store.rows_failed(&Key::custom(CustomKind::EgressFirewall, OWN.into()), "syntax error");
    let not_applied = "EgressFirewall Rules not correctly applied";
    assert_eq!(
        statuses(&mut store),
        [(not_applied, format!("global: {not_applied}: syntax error"))]
    );
    settle(&mut store);
    assert_eq!(statuses(&mut store), [(APPLIED, format!("global: {APPLIED}"))]);
}

#[test]
fn a_name_keeps_its_last_addresses_and_its_set_until_no_rule_names_it() {
    let mut store = complete(vec![], vec![]);
    let name = || DnsName::from("name0.example");
    let set = || SetId::Name(name());
    let says = |answer: Result<&str, &str>| {
        let answer =
            answer.map(|address| [net(address).addr(), net("10.244.1.3/24").addr()].into());
        WatchEvent::Name(name(), answer.map_err(Into::into))
    };
    let addresses = |store: &Store| -> Vec<String> {
        store.set_addresses(&set()).map(|address| address.to_string()).collect()
    };
    let firewall = || Key::custom(CustomKind::EgressFirewall, OWN.into());
    let first = [Key::Set(set()), Key::Namespace(OWN.into()), firewall()];
    assert_eq!(observe(&mut store, put(rules(&[6, 1]), json!({}))), first);
    assert!(store.take_names().unwrap().into_keys().eq([name()]));
    assert_eq!(store.take_names(), None, "the same as before");
    assert!(!store.knows_addresses(&set()), "those that the set has from before stay");
    settle(&mut store);
    store.take_statuses();

    assert_eq!(observe(&mut store, says(Err("servfail"))), []);
    let not_applied = "EgressFirewall Rules not correctly applied";
    let why = "the name \"name0.example\" of its rule 0 has no addresses: servfail; until then no connection \
               fits the rule";
    assert_eq!(statuses(&mut store), [(not_applied, format!("global: {not_applied}: {why}"))]);
    let reasons: Vec<&str> = store.take_problems().iter().map(|trouble| trouble.reason).collect();
    assert_eq!(reasons, ["NoAddresses"]);

    assert_eq!(observe(&mut store, says(Ok("192.0.2.1/32"))), [Key::Set(set())]);
    assert_eq!(statuses(&mut store), [(APPLIED, format!("global: {APPLIED}"))]);
    assert_eq!(addresses(&store), ["192.0.2.1"], "without those of pods");
    assert_eq!(observe(&mut store, says(Err("servfail"))), []);
    assert_eq!((addresses(&store), statuses(&mut store)), (vec!["192.0.2.1".to_owned()], vec![]));

    assert_eq!(observe(&mut store, put(rules(&[1]), json!({}))), [firewall()]);
    assert_eq!(store.take_names(), Some([].into()));
    assert!(store.is_set(&set()), "the rule that names it may still be there");
    let dirty = dirtied(|dirty| store.settled(&firewall(), dirty));
    assert_eq!((dirty, store.is_set(&set())), (vec![Key::Set(set())], false));
}
