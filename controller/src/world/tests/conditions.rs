//! The condition of a policy of the whole cluster is written when it is not so in its status, and
//! only then.

use contract::names::{ClusterPolicyKey, ClusterPolicyKind};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::cluster_policy::wire::{ClusterPolicyObject, OfAdmin};

use super::*;

const KIND: ClusterPolicyKind = ClusterPolicyKind::AdminNetworkPolicy;
const READY: &str = "its rows are in OVN's northbound database";

fn policy_key() -> ClusterPolicyKey {
    ClusterPolicyKey::new(KIND, "p").unwrap()
}

/// The policy as the API server has it, with these conditions.
fn object(generation: i64, priority: i64, conditions: &Value) -> (ClusterPolicyKey, ClusterPolicy) {
    let object = json!({
        "metadata": {"name": "p", "uid": "uid", "generation": generation},
        "spec": {"priority": priority, "subject": {"namespaces": {}}},
        "status": {"conditions": conditions},
    });
    serde_json::from_value::<ClusterPolicyObject<OfAdmin>>(object).unwrap().into_policy().unwrap()
}

fn see(store: &mut Store, object: (ClusterPolicyKey, ClusterPolicy)) -> Vec<Key> {
    observe(store, WatchEvent::ClusterPolicies(KIND, Seen::Applied(object)))
}

fn settle_policy(store: &mut Store) {
    dirtied(|dirty| store.settled(&Key::from(policy_key()), dirty));
}

/// What is to be written, as the API spells it, at a fixed time.
fn written(store: &mut Store) -> Vec<Value> {
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let conditions = store.take_conditions().into_iter();
    conditions.map(|wish| serde_json::to_value(wish.condition(now)).unwrap()).collect()
}

fn condition(status: &str, reason: &str, message: &str, generation: i64) -> Value {
    json!({
        "type": "Ready-In-Zone-global", "status": status, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": "2023-11-14T22:13:20Z",
    })
}

fn begun() -> Store {
    complete(vec![node("n1", "10.244.1.0/24")], vec![])
}

#[test]
fn a_policy_is_ready_once_its_rows_are_written_and_that_is_said_once() {
    let mut store = begun();
    see(&mut store, object(1, 5, &json!([])));
    assert_eq!(written(&mut store), [Value::Null; 0], "before its rows are there");
    settle_policy(&mut store);
    let ready = condition("True", "SetupSucceeded", READY, 1);
    assert_eq!(written(&mut store), std::slice::from_ref(&ready));
    // Its rows are compared again, and other events come, before the watch shows the condition.
    settle_policy(&mut store);
    see(&mut store, object(1, 5, &json!([])));
    assert_eq!(written(&mut store), [Value::Null; 0]);
    let keys = see(&mut store, object(1, 5, &json!([ready])));
    assert_eq!(keys, [], "a status concerns no row");
    settle_policy(&mut store);
    assert_eq!(written(&mut store), [Value::Null; 0]);
    // Another program removes it.
    see(&mut store, object(1, 5, &json!([])));
    assert_eq!(written(&mut store), [ready]);
}

#[test]
fn a_condition_that_a_list_does_not_show_is_handed_out_again() {
    let mut store = begun();
    see(&mut store, object(1, 5, &json!([])));
    settle_policy(&mut store);
    let ready = condition("True", "SetupSucceeded", READY, 1);
    assert_eq!(written(&mut store), std::slice::from_ref(&ready));
    let list = || WatchEvent::ClusterPolicies(KIND, Seen::All(vec![object(1, 5, &json!([]))]));
    assert_eq!(observe(&mut store, list()), [], "a status concerns no row");
    assert_eq!(written(&mut store), [ready], "what was sent may be lost with the watch");
}

#[test]
fn a_start_with_the_right_condition_in_the_status_writes_nothing_and_other_zones_conditions_do_not_count()
 {
    let ready = condition("True", "SetupSucceeded", READY, 1);
    let mut other = ready.clone();
    other["type"] = json!("Ready-In-Zone-global2");
    for (conditions, expected) in [
        (json!([ready]), 0),
        (json!([other, ready]), 0),
        (json!([other]), 1),
        (json!(["nonsense", {"type": "Ready-In-Zone-global"}, 5]), 1),
        (json!("nonsense"), 1),
    ] {
        let mut store = begun();
        see(&mut store, object(1, 5, &conditions));
        settle_policy(&mut store);
        assert_eq!(written(&mut store).len(), expected, "{conditions}");
    }
}

#[test]
fn another_specification_is_said_to_be_ready_only_when_its_own_rows_are_there() {
    let mut ready = condition("True", "SetupSucceeded", READY, 1);
    ready["lastTransitionTime"] = json!("2023-01-01T00:00:00Z");
    let mut store = begun();
    see(&mut store, object(1, 5, &json!([ready])));
    settle_policy(&mut store);
    let keys = see(&mut store, object(2, 6, &json!([ready])));
    assert_eq!((keys, written(&mut store)), (vec![Key::from(policy_key())], vec![]));
    settle_policy(&mut store);
    let mut second = condition("True", "SetupSucceeded", READY, 2);
    // It was ready before, too.
    second["lastTransitionTime"] = json!("2023-01-01T00:00:00Z");
    assert_eq!(written(&mut store), [second]);
}

#[test]
fn a_policy_that_cannot_be_used_and_one_whose_rows_are_refused_are_not_ready_and_say_why() {
    let mut store = begun();
    see(&mut store, object(1, 2000, &json!([])));
    settle_policy(&mut store);
    let why = "its priority 2000 is not in 0 to 1000; the policy has no effect";
    assert_eq!(written(&mut store), [condition("False", "SetupFailed", why, 1)]);
    see(&mut store, object(2, 5, &json!([])));
    let refused = "x".repeat(100_000);
    store.rows_failed(&Key::from(policy_key()), &refused);
    assert_eq!(written(&mut store), [condition("False", "SetupFailed", &refused[..1000], 2)]);
    settle_policy(&mut store);
    assert_eq!(written(&mut store), [condition("True", "SetupSucceeded", READY, 2)]);
    // A policy that is gone has no status.
    store.rows_failed(&Key::from(policy_key()), "it is refused again");
    observe(&mut store, WatchEvent::ClusterPolicies(KIND, Seen::Deleted(policy_key())));
    settle_policy(&mut store);
    assert_eq!(written(&mut store), [Value::Null; 0]);
}
