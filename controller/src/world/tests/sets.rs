//! What the sets of policies cost.

use contract::names::PolicyKey;
use serde_json::json;

use super::*;

const NAMESPACES: usize = 200;

fn namespace(number: usize) -> String {
    format!("ns{number}")
}

/// A pod of each namespace, all with the same label.
fn pod_of(number: usize) -> (PodKey, Pod) {
    let pod = Pod {
        labels: [("app".to_owned(), "web".to_owned())].into_iter().collect(),
        ..claiming(&format!("uid{number}"), &format!("10.244.1.{}/24", number + 3))
    };
    (PodKey::new(&namespace(number), "web").unwrap(), pod)
}

/// A policy of namespace 0 that allows the pods of one namespace with that label.
fn policy(peers: usize) -> (PolicyKey, Policy) {
    let key = PolicyKey::new(&namespace(0), &format!("p{peers}")).unwrap();
    let spec = json!({
        "podSelector": {},
        "ingress": [{"from": [{
            "namespaceSelector": {"matchLabels": {"name": namespace(peers)}},
            "podSelector": {"matchLabels": {"app": "web"}},
        }]}],
    });
    let policy = Policy::new(&key, "uid", spec);
    (key, policy)
}

/// One selector of pods may match those of all namespaces, and be in a set for each of them. A pod
/// was compared with all of these sets at each of its events, and a set with all of these pods.
#[test]
fn a_pod_and_a_set_are_compared_with_nothing_of_other_namespaces() {
    let mut store =
        complete(vec![node("n1", "10.244.1.0/24")], (0..NAMESPACES).map(pod_of).collect());
    for number in 0..NAMESPACES {
        let labels = [("name".to_owned(), namespace(number))].into();
        let seen = Namespace { uid: "uid".into(), labels, ..Namespace::default() };
        observe(
            &mut store,
            WatchEvent::Namespaces(Seen::Applied((namespace(number).into(), seen))),
        );
        observe(&mut store, WatchEvent::Policies(Seen::Applied(policy(number))));
    }
    let compared = |store: &Store| store.policies.sets.compared.replace(0);
    compared(&store);

    let sets: Vec<_> = store.sets().into_iter().collect();
    assert_eq!(sets.len(), NAMESPACES);
    let sizes: Vec<usize> = sets.iter().map(|set| store.set_addresses(set).count()).collect();
    assert_eq!(sizes, [1; NAMESPACES]);
    assert_eq!(compared(&store), 0, "the pods of a set are found by its namespaces");

    let (pod, changed) = pod_of(7);
    let changed =
        Pod { labels: [("app".to_owned(), "other".to_owned())].into_iter().collect(), ..changed };
    let mut keys = Vec::new();
    store.observe(WatchEvent::Pods(Seen::Applied((pod, changed))), &mut |key, _| keys.push(key));
    assert_eq!(keys.iter().filter(|key| matches!(key, Key::Set(_))).count(), 1, "{keys:?}");
    assert!(compared(&store) < 5, "a pod is looked for in the sets of its namespace");
}
