//! The conditions in the status of policies of the whole cluster, with a real database.

use contract::names::{ClusterPolicyKey, ClusterPolicyKind};
use controller::{
    kinds::{
        cluster_policy::{
            condition::PolicyCondition,
            wire::{ClusterPolicyObject, OfCluster},
        },
        node::object::Node,
    },
    status_writeback::RowsState,
    watch_event::{Seen, WatchEvent},
};
use ovsdb::{Condition, Row, Transaction};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    database::Northbound,
    reference::config,
    running::{Running, deadline},
};

const KIND: ClusterPolicyKind = ClusterPolicyKind::ClusterNetworkPolicy;

/// A policy whose conditions are those that were written of it.
fn policy(
    said: Option<&PolicyCondition>,
) -> (ClusterPolicyKey, controller::kinds::cluster_policy::object::ClusterPolicy) {
    let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
    let conditions: Vec<Value> =
        said.into_iter().map(|wish| serde_json::to_value(wish.condition(now)).unwrap()).collect();
    let rule = json!({"action": "Deny", "from": [{"namespaces": {}}]});
    let object = json!({
        "metadata": {"name": "p", "uid": "uid", "generation": 4},
        "spec": {"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}, "ingress": [rule]},
        "status": {"conditions": conditions},
    });
    serde_json::from_value::<ClusterPolicyObject<OfCluster>>(object).unwrap().into_policy().unwrap()
}

fn start(database: &Northbound, said: Option<&PolicyCondition>) -> Running {
    let controller = Running::without_services(database.endpoint(), config());
    controller.observe(WatchEvent::ClusterPolicies(KIND, Seen::All(vec![policy(said)])));
    controller.observe(WatchEvent::Nodes(Seen::All(vec![Node::named("n1")])));
    controller.observe(WatchEvent::Pods(Seen::All(Vec::new())));
    controller
}

async fn next(controller: &mut Running) -> PolicyCondition {
    timeout(deadline(), controller.conditions.recv())
        .await
        .expect("a condition is written")
        .unwrap()
}

#[tokio::test]
async fn a_policy_is_said_to_be_ready_when_the_database_has_its_rows_and_a_restart_says_nothing_again()
 {
    let database = Northbound::start();
    let connection = database.open().await;
    let mut controller = start(&database, None);
    let said = next(&mut controller).await;
    let mut rows = Transaction::new();
    let acls = rows.select("ACL", Condition::equal("priority", 32767 - 5 * 31), &["match"]);
    let outcome = connection.transact(rows).await.unwrap();
    assert_eq!(outcome.rows(acls).len(), 1, "the rule is there when it is said to be");
    assert_eq!((&said.standing, said.generation), (&RowsState::Ready, 4));
    controller.converged().await;
    controller.stop().await;

    let mut controller = start(&database, Some(&said));
    controller.converged().await;
    assert!(controller.conditions.try_recv().is_err());
    controller.stop().await;
}

#[tokio::test]
async fn a_policy_whose_rows_another_program_changes_again_and_again_is_not_ready_until_it_stops() {
    let database = Northbound::start();
    let connection = database.open().await;
    let mut controller = start(&database, None);
    assert_eq!(next(&mut controller).await.standing, RowsState::Ready);
    let begun = tokio::time::Instant::now();
    let failed = loop {
        let mut drift = Transaction::new();
        let of_policy = Condition::equal("priority", 32767 - 5 * 31);
        drift.update("ACL", of_policy, Row::new().with("action", "allow"));
        connection.transact(drift).await.unwrap();
        if let Ok(said) = controller.conditions.try_recv() {
            break said;
        }
        tokio::task::yield_now().await;
        assert!(begun.elapsed() < deadline(), "it is still said to be ready");
    };
    let RowsState::Failed(why) = failed.standing else { panic!("{failed:?}") };
    assert!(why.contains("another program changes ACL"), "{why}");
    assert_eq!(next(&mut controller).await.standing, RowsState::Ready, "the program has stopped");
    controller.stop().await;
}
