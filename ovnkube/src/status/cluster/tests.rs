use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

#[test]
fn a_lease_that_was_renewed_in_time_names_the_leader_and_an_old_one_none() {
    for (spec, state, said) in [
        (
            json!({"holderIdentity": "n1", "leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:55Z"}),
            State::Ok,
            "n1, renewed 5 s ago",
        ),
        (
            json!({"holderIdentity": "n1", "leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:00Z"}),
            State::Failed,
            "n1 renewed its Lease 60 s ago",
        ),
        (json!({"holderIdentity": "", "leaseDurationSeconds": 30}), State::Failed, "no holder"),
    ] {
        let finding = of_lease(&spec, now(), "ovn");
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.summary.contains(said), "{finding:?}");
    }
}

#[test]
fn a_node_is_well_if_it_is_ready_has_a_subnet_and_a_chassis_and_the_right_time() {
    let node = |ready: &str, annotations: Value| {
        json!({
            "metadata": {"name": "n1", "annotations": annotations},
            "status": {"conditions": [{"type": "Ready", "status": ready, "message": "CNI is not ready"}]},
        })
    };
    let whole =
        json!({NODE_SUBNETS: r#"{"default":["10.244.1.0/24","fd00::/64"]}"#, CHASSIS_ID: "c"});
    let mut moving = whole.clone();
    moving[ZONE] = json!("global");
    moving[NEXT_ZONE] = json!("n1");
    for (node, renewed, state, said) in [
        (
            node("True", whole.clone()),
            Some(3),
            State::Ok,
            "ready, pods in 10.244.1.0/24, fd00::/64",
        ),
        (node("False", whole.clone()), Some(3), State::Failed, "not ready: CNI is not ready"),
        (node("True", json!({})), Some(3), State::Failed, "has no subnet"),
        (node("True", json!({NODE_SUBNETS: "{}"})), Some(3), State::Failed, "chassis' id"),
        (node("True", whole.clone()), Some(-60), State::Warning, "60 s ahead"),
        (node("True", whole.clone()), Some(100), State::Warning, "behind"),
        (node("True", moving), Some(3), State::Warning, "move from zone global to n1"),
    ] {
        let finding = of_node(&node, "n1", renewed);
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.summary.contains(said), "{finding:?}");
        assert_eq!(finding.next.is_some(), state != State::Ok, "{finding:?}");
    }
}

#[test]
fn a_workload_with_fewer_replicas_than_wanted_has_failed_and_one_half_way_through_an_upgrade_needs_attention()
 {
    let daemon_set = |ready: i64, updated: i64| {
        json!({
            "metadata": {"name": "ovnkube-node"},
            "spec": {"template": {"spec": {"containers": [{"image": "ovn:1"}]}}},
            "status": {"desiredNumberScheduled": 3, "numberReady": ready, "updatedNumberScheduled": updated},
        })
    };
    let fields = ["desiredNumberScheduled", "numberReady", "updatedNumberScheduled"];
    for (ready, updated, state) in
        [(3, 3, State::Ok), (2, 3, State::Failed), (3, 1, State::Warning)]
    {
        let finding = workload(&daemon_set(ready, updated), "daemonsets", fields, "ovn");
        assert_eq!(finding.state, state, "{finding:?}");
    }
}
