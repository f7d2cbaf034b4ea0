//! Law 6 for what the store knows of the northbound database alone, or by few objects: an empty list of objects
//! that deny opens nothing, and one of slices takes no Service its backends, until a second list says the same.

use contract::names::{ClusterPolicyKey, ClusterPolicyKind};
use controller::{
    observation::{Observation, Seen},
    store::{
        ClusterPolicy,
        wire::{ClusterPolicyObject, EgressFirewallObject, OfAdmin},
    },
};
use serde_json::{Value, json};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod},
    database::{Northbound, contents},
    history::Step,
    policies::objects::{labelled, namespace},
    reference::values,
    running::Running,
    world::World,
};

const KIND: ClusterPolicyKind = ClusterPolicyKind::AdminNetworkPolicy;

fn policies() -> Vec<(ClusterPolicyKey, ClusterPolicy)> {
    let rule = json!({"action": "Deny", "to": [{"namespaces": {}}]});
    values::<ClusterPolicyObject<OfAdmin>>(&[json!({
        "metadata": {"name": "closed", "uid": "1", "generation": 1},
        "spec": {"priority": 5, "subject": {"namespaces": {}}, "egress": [rule]},
    })])
}

fn firewalls() -> Observation {
    let rule = json!({"type": "Deny", "to": {"cidrSelector": "0.0.0.0/0"}});
    let object: Value = json!({
        "metadata": {"namespace": "ns0", "name": "default", "uid": "1"}, "spec": {"egress": [rule]},
    });
    Observation::EgressFirewalls(Seen::All(values::<EgressFirewallObject>(&[object])))
}

fn denials() -> [Observation; 2] {
    [Observation::ClusterPolicies(KIND, Seen::All(policies())), firewalls()]
}

fn no_denials() -> Vec<Observation> {
    Observation::no_optional_kinds()
}

/// All lists but those of what denies.
fn others() -> Vec<Observation> {
    let namespaces = (0..3).map(|number| (namespace(number), labelled(0))).collect();
    vec![
        all_nodes([node(1)]),
        all_pods((0..3).map(|number| pod(number, 1, 0))),
        Observation::Namespaces(Seen::All(namespaces)),
        Observation::Policies(Seen::All(Vec::new())),
        Observation::Services(Seen::All(Vec::new())),
        Observation::Slices(Seen::All(Vec::new())),
    ]
}

fn tell(controller: &Running, observations: impl IntoIterator<Item = Observation>) {
    observations.into_iter().for_each(|observation| controller.observe(observation));
}

/// An API server that was restored without these objects, or a definition that was made anew, opened all that
/// they deny within a second: in the steady state, and at a start.
#[tokio::test]
async fn law_6_an_empty_list_of_what_denies_opens_nothing_until_a_second_one_says_the_same() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::start(northbound.endpoint(), config());
    tell(&controller, no_denials().into_iter().chain(others()));
    controller.converged().await;
    let open = contents(&connection).await;
    controller.told_after(denials()).await;
    let before = contents(&connection).await;
    assert!(before.0.len() > open.0.len() + 3, "two ACLs in two groups: {before:#?}");
    for restarts in [false, true] {
        if restarts {
            controller.kill().await;
            controller = Running::start(northbound.endpoint(), config());
            controller.reaches("the database is read", |progress| progress.loaded).await;
            tell(&controller, others());
        }
        tell(&controller, no_denials());
        controller.doubted(|of| of.cluster_policies == 1 && of.egress_firewalls == 1).await;
        // What came before the definitions were there again is not part of a second look.
        tell(&controller, no_denials());
        assert_eq!(contents(&connection).await, before);
        tell(&controller, denials());
        controller.doubts.wait_for(Option::is_none).await.unwrap();
        controller.converged().await;
        assert_eq!(contents(&connection).await, before);
    }
    // A true list is believed in the end.
    tell(&controller, no_denials());
    controller.doubted(|of| of.missing() == 2).await;
    controller.told_after([Observation::Cluster(None)].into_iter().chain(no_denials())).await;
    assert_eq!(contents(&connection).await, open);
}

/// A restored API server with Services and no slices emptied all load balancers at the next start.
#[tokio::test]
async fn law_6_services_keep_their_backends_when_a_start_finds_no_slices() {
    let services = (1..4).map(|service| Step::Service { service, kind: 0 });
    let slices = (1..4).map(|number| Step::Slice { slice: number, service: number, node: 1 });
    let mut world = World::after([Step::Node(1)].into_iter().chain(services).chain(slices)).await;
    world.rest().await;
    let before = world.contents().await;
    world.replace().await;
    world.controller.reaches("the database is read", |progress| progress.loaded).await;
    world.controller.observe(Observation::Slices(Seen::All(Vec::new())));
    world.controller.doubted(|of| of.slices == 3).await;
    assert_eq!(world.contents().await, before);
    world.rest().await;
    assert_eq!(world.contents().await, before);
    world.end().await;
}
