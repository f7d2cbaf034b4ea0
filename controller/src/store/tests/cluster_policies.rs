//! Random changes around policies of the whole cluster: whatever changes the rows of a key makes the key dirty.

use contract::names::{ClusterPolicyKey, ClusterPolicyKind};
use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::*;

#[derive(Debug, Clone)]
enum Event {
    /// The label of a pod, and the number of its port.
    Pod(u8, u8, u16),
    PodGone(u8),
    /// The label of a namespace.
    Namespace(u8),
    Policy(u8, Is),
    PolicyGone(u8),
    /// The rows of all policies are written.
    Settle,
}

#[derive(Debug, Clone, Copy)]
struct Is {
    baseline: bool,
    priority: u16,
    subject: u8,
    peer: u8,
    rules: usize,
    named: bool,
}

fn event() -> impl Strategy<Value = Event> {
    let is = (any::<bool>(), 0_u16..4, 0_u8..2, 0_u8..2, 0_usize..4, any::<bool>()).prop_map(
        |(baseline, priority, subject, peer, rules, named)| Is {
            baseline,
            priority,
            subject,
            peer,
            rules,
            named,
        },
    );
    prop_oneof![
        3 => (0_u8..3, 0_u8..2, 80_u16..82).prop_map(|(pod, label, port)| Event::Pod(pod, label, port)),
        1 => (0_u8..3).prop_map(Event::PodGone),
        2 => (0_u8..2).prop_map(Event::Namespace),
        4 => (0_u8..3, is).prop_map(|(policy, is)| Event::Policy(policy, is)),
        2 => (0_u8..3).prop_map(Event::PolicyGone),
        2 => Just(Event::Settle),
    ]
}

const KIND: ClusterPolicyKind = ClusterPolicyKind::ClusterNetworkPolicy;

fn policy_key(number: u8) -> ClusterPolicyKey {
    ClusterPolicyKey::new(KIND, &format!("p{number}")).unwrap()
}

fn policy(Is { baseline, priority, subject, peer, rules, named }: Is) -> ClusterPolicy {
    let label = |value: u8| json!({"matchLabels": {"label": format!("v{value}")}});
    let ports = if named { json!([{"destinationNamedPort": "web"}]) } else { json!([]) };
    let rules = (0..rules).map(|number| {
        let action = if number % 2 == 0 { "Deny" } else { "Accept" };
        let pods = json!({"namespaceSelector": {}, "podSelector": label(peer)});
        json!({"action": action, "from": [{"pods": pods}], "protocols": ports})
    });
    let spec = json!({
        "tier": if baseline { "Baseline" } else { "Admin" },
        "priority": priority,
        "subject": {"pods": {"namespaceSelector": label(subject), "podSelector": {}}},
        "ingress": rules.collect::<Vec<_>>(),
    });
    ClusterPolicy::new(KIND, "uid", 1, spec)
}

fn labels(value: u8) -> BTreeMap<String, String> {
    [("label".to_owned(), format!("v{value}"))].into()
}

fn happen(store: &mut Store, event: Event, dirty: &mut Dirty<'_>) {
    let name = |pod| format!("pod{pod}");
    let policies = |seen| Observation::ClusterPolicies(KIND, seen);
    let observation = match event {
        Event::Pod(number, label, port) => {
            let named =
                NamedPort { name: "web".into(), protocol: kubeapi::services::Protocol::Tcp, number: port };
            let pod = Pod {
                labels: labels(label).into_iter().collect(),
                ports: [named].into(),
                ..claiming(&name(number), &format!("10.244.1.{}/24", number + 3))
            };
            Observation::Pods(Seen::Applied((key(&name(number)), pod)))
        }
        Event::PodGone(number) => Observation::Pods(Seen::Deleted(key(&name(number)))),
        Event::Namespace(label) => {
            let namespace = Namespace { uid: "uid".into(), labels: labels(label), ..Namespace::default() };
            Observation::Namespaces(Seen::Applied(("shop".into(), namespace)))
        }
        Event::Policy(number, is) => policies(Seen::Applied((policy_key(number), policy(is)))),
        Event::PolicyGone(number) => policies(Seen::Deleted(policy_key(number))),
        Event::Settle => {
            (0..3).for_each(|number| store.settled(&Key::ClusterPolicy(policy_key(number)), dirty));
            return;
        }
    };
    store.observe(observation, dirty);
}

proptest! {
    #[test]
    fn whatever_changes_the_rows_of_a_policy_its_pods_or_its_sets_makes_them_dirty(
        events in vec(event(), 1..25)
    ) {
        changed_rows_are_dirty(events, happen)?;
    }
}
