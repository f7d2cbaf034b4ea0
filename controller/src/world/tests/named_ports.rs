//! What the names of pods' ports cost those who name them.

use contract::names::PolicyKey;
use kubeapi::services::Protocol;
use serde_json::json;

use crate::{key::SetId, problem::Problem};

use super::*;

const HTTP: &str = "http";

/// A pod of node n1 that gives the name these numbers, one for each of its containers.
fn pod(
    namespace: &str,
    name: &str,
    host: usize,
    numbers: impl IntoIterator<Item = u16>,
) -> (PodKey, Pod) {
    let named = |number| NamedPort { name: HTTP.into(), protocol: Protocol::Tcp, number };
    let pod = Pod {
        ports: numbers.into_iter().map(named).collect(),
        ..claiming(name, &format!("10.244.1.{host}/24"))
    };
    (PodKey::new(namespace, name).unwrap(), pod)
}

fn policy(namespace: &str) -> (PolicyKey, Policy) {
    let key = PolicyKey::new(namespace, "named").unwrap();
    let ports = json!([{"ports": [{"port": HTTP}]}]);
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": ports, "egress": ports});
    let policy = Policy::new(&key, "uid", spec);
    (key, policy)
}

/// A store in which the policies of these namespaces name the port.
fn store(policies: &[&str], pods: Vec<(PodKey, Pod)>) -> Store {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], pods);
    for namespace in policies {
        observe(&mut store, WatchEvent::Policies(Seen::Applied(policy(namespace))));
    }
    store
}

/// The keys that are dirty once the pod is so.
fn put(store: &mut Store, pod: (PodKey, Pod)) -> BTreeSet<Key> {
    concerned(store, Seen::Applied(pod))
}

/// Whole, or by the pod's address.
fn concerned(store: &mut Store, pod: Seen<PodKey, (PodKey, Pod)>) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    store.observe(WatchEvent::Pods(pod), &mut |key, _| keys.extend([key]));
    keys
}

fn policies(keys: &BTreeSet<Key>) -> Vec<&Key> {
    keys.iter().filter(|key| matches!(key, Key::Policy(_))).collect()
}

fn numbers(store: &Store, namespace: Option<&str>) -> Vec<u16> {
    store.port_numbers(namespace, &HTTP.into(), Protocol::Tcp)
}

/// One pod of five hundred containers was five hundred alternatives, and a thousand sets, in every
/// rule about all pods that has the name.
#[test]
fn a_namespace_that_gives_a_ports_name_many_numbers_adds_its_lowest_sixteen_to_the_rules_of_others()
{
    let mut store = store(&["shop"], vec![pod("shop", "web", 3, [8080])]);
    store.take_problems();
    put(&mut store, pod("evil", "many", 4, 1000..1500));
    let expected: Vec<u16> = (1000..1016).chain([8080]).collect();
    assert_eq!(numbers(&store, None), expected);
    assert_eq!(numbers(&store, Some("shop")), [8080]);
    let sets = store.sets();
    let of_name = sets.iter().filter(|set| matches!(set, SetId::Port(..))).count();
    assert_eq!(of_name, 17, "{sets:?}");
    assert!(sets.iter().all(|set| store.is_set(set)));
    let told = store.take_problems();
    let [Problem { object: Object::Pod(many), reason, note: text, .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((many.namespace(), *reason), ("evil", "TooLarge"));
    assert!(text.contains("500 numbers") && text.contains("16 can be used"), "{text}");

    let dirty = put(&mut store, pod("evil", "more", 5, 2000..2500));
    assert!(policies(&dirty).is_empty(), "nothing counts that did not: {dirty:?}");
    assert_eq!(numbers(&store, None), expected);
    // A number that many give counts because of each of them.
    put(&mut store, pod("shop", "web", 3, [8080, 1499]));
    assert_eq!(numbers(&store, None), (1000..1016).chain([1499, 8080]).collect::<Vec<_>>());
}

#[test]
fn a_number_counts_again_once_there_is_room() {
    let mut store = store(&["shop"], vec![pod("evil", "many", 3, 1000..1500)]);
    let dirty = put(&mut store, pod("evil", "many", 3, (1001..1016).chain([1400])));
    assert_eq!(numbers(&store, None), (1001..1016).chain([1400]).collect::<Vec<_>>());
    assert_eq!(policies(&dirty).len(), 1);
    let [gone, come] = [1000, 1400].map(|number| SetId::Port(HTTP.into(), Protocol::Tcp, number));
    assert!(
        dirty.contains(&Key::Set(gone.clone())) && dirty.contains(&Key::Set(come.clone())),
        "{dirty:?}"
    );
    assert!(store.is_set(&gone), "the rule that names it is still in the database");
    assert_eq!(store.set_addresses(&come).count(), 1);
    let shop = policy("shop").0;
    dirtied(|dirty| store.settled(&Key::Policy(shop), dirty));
    assert!(!store.is_set(&gone) && store.is_set(&come));
    concerned(&mut store, Seen::Deleted(pod("evil", "many", 3, []).0));
    assert_eq!(numbers(&store, None), [0; 0]);
}

/// A roll of a namespace's only pod compared every policy of the cluster that named the port,
/// twice.
#[test]
fn the_first_pod_of_a_namespace_with_a_ports_name_concerns_no_policy_of_others() {
    let namespaces: Vec<String> = (0..50).map(|number| format!("ns{number}")).collect();
    let namespaces: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    let mut store = store(&namespaces, vec![pod("ns0", "web", 3, [8080])]);
    let come = put(&mut store, pod("ns1", "web", 4, [8080]));
    let own = Key::Policy(policy("ns1").0);
    assert_eq!(policies(&come), [&own], "its own rules have the number now");
    let gone = concerned(&mut store, Seen::Deleted(pod("ns1", "web", 4, []).0));
    assert_eq!(policies(&gone), [&own]);
}
