//! Random changes around multicast: whatever changes rows makes their keys dirty, and a set stays
//! as long as the database may have a rule that names it.

use contract::{names::PolicyKey, namespace_annotation::Multicast};
use proptest::{collection::vec, prelude::*};
use serde_json::json;

use crate::key::SetId;

use super::*;

#[derive(Debug, Clone)]
enum Event {
    Pod(u8),
    PodGone(u8),
    /// Whether it has multicast.
    Namespace(bool),
    NamespaceGone,
    /// Whether it has a rule.
    Firewall(bool),
    FirewallGone,
    /// A policy that names the namespace's set.
    Policy,
    PolicyGone,
    /// The database shows the rows.
    Settle,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0_u8..3).prop_map(Event::Pod),
        1 => (0_u8..3).prop_map(Event::PodGone),
        4 => any::<bool>().prop_map(Event::Namespace),
        1 => Just(Event::NamespaceGone),
        2 => any::<bool>().prop_map(Event::Firewall),
        1 => Just(Event::FirewallGone),
        1 => Just(Event::Policy),
        1 => Just(Event::PolicyGone),
        3 => Just(Event::Settle),
    ]
}

fn policy_key() -> PolicyKey {
    PolicyKey::new("bank", "of-shop").unwrap()
}

fn multicast(is_on: bool) -> WatchEvent {
    let multicast = if is_on { Multicast::On } else { Multicast::Off };
    let labels = [("name".to_owned(), "shop".to_owned())].into();
    let namespace = Namespace { uid: "uid".into(), labels, multicast, ..Namespace::default() };
    WatchEvent::Namespaces(Seen::Applied(("shop".into(), namespace)))
}

fn happen(store: &mut Store, event: Event, dirty: &mut Dirty<'_>) {
    let observation = match event {
        Event::Pod(number) => numbered_pod(number),
        Event::PodGone(number) => numbered_pod_gone(number),
        Event::Namespace(is_on) => multicast(is_on),
        Event::NamespaceGone => WatchEvent::Namespaces(Seen::Deleted("shop".into())),
        Event::Firewall(has_rule) => {
            let rule = json!({"type": "Deny", "to": {"cidrSelector": "0.0.0.0/0"}});
            let rules: Vec<_> = has_rule.then_some(rule).into_iter().collect();
            let firewall = EgressFirewall::new("uid", json!({ "egress": rules }), json!({}));
            WatchEvent::custom(Seen::Applied(("shop".into(), firewall)))
        }
        Event::FirewallGone => WatchEvent::custom::<EgressFirewall>(Seen::Deleted("shop".into())),
        Event::Policy => {
            let peers = json!([{"namespaceSelector": {"matchLabels": {"name": "shop"}}}]);
            let spec = json!({"podSelector": {}, "ingress": [{"from": peers}]});
            let policy = Policy::new(&policy_key(), "uid", spec);
            WatchEvent::Policies(Seen::Applied((policy_key(), policy)))
        }
        Event::PolicyGone => WatchEvent::Policies(Seen::Deleted(policy_key())),
        Event::Settle => {
            store.settled(&Key::Policy(policy_key()), dirty);
            store.settled(&Key::Namespace("shop".into()), dirty);
            return;
        }
    };
    store.observe(observation, dirty);
}

fn with_multicast() -> Store {
    let mut store = Store::new(ClusterConfig { multicast: Multicast::On, ..config() });
    observe(&mut store, WatchEvent::Nodes(Seen::All(vec![node("n1", "10.244.1.0/24")])));
    observe(&mut store, WatchEvent::Pods(Seen::All(vec![])));
    without_services(&mut store);
    store
}

proptest! {
    #[test]
    fn whatever_changes_the_rows_of_a_namespace_or_its_pods_makes_them_dirty(events in vec(event(), 1..30)) {
        let mut store = with_multicast();
        for event in events {
            let rows = changed_rows_are_dirty_after(&mut store, event, happen)?;
            let mut needs = rows.into_values().flatten().flat_map(|row| row.needs);
            let is_named = needs.any(|set| set.table == Table::AddressSet);
            let is_there = store.is_set(&SetId::Namespace("shop".into()));
            prop_assert!(!is_named || is_there, "a rule names a set");
        }
    }
}

#[test]
fn the_set_stays_until_the_rule_that_names_it_is_gone() {
    let mut store = with_multicast();
    let set = || SetId::Namespace("shop".into());
    let of_namespace = || Key::Namespace("shop".into());
    happen(&mut store, Event::Pod(0), &mut |_, _| ());
    let on = observe(&mut store, multicast(true));
    assert!(
        [Key::Set(set()), of_namespace(), Key::Pod(key("pod0"))].iter().all(|key| on.contains(key)),
        "{on:?}"
    );
    assert_eq!(store.set_addresses(&set()).count(), 1);
    let off = observe(&mut store, multicast(false));
    assert!(off.contains(&of_namespace()) && off.contains(&Key::Pod(key("pod0"))), "{off:?}");
    assert!(store.is_set(&set()), "the database still has the rule");
    let settled = dirtied(|dirty| store.settled(&of_namespace(), dirty));
    assert_eq!((settled, store.is_set(&set())), (vec![Key::Set(set())], false));
}
