//! Law 6 for what the store knows of the northbound database alone, or by few objects: an empty
//! list of objects that deny opens nothing, and one of slices takes no Service its backends, until
//! a second list says the same.

use std::{collections::BTreeMap, time::Duration};

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, ClusterPolicyKind},
};
use controller::{
    engine::reconcile::Progress,
    kinds::{
        cluster_policy::{
            object::ClusterPolicy,
            wire::{ClusterPolicyObject, OfAdmin},
        },
        egress_firewall::object::{EgressFirewall, EgressFirewallObject},
        egress_qos::object::EgressQos,
    },
    watch_event::{Seen, WatchEvent},
};
use kubeapi::watch::Unlisted;
use serde_json::{Value, json};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod, pod_key},
    database::{Contents, Northbound, contents},
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

fn firewalls() -> WatchEvent {
    let rule = json!({"type": "Deny", "to": {"cidrSelector": "0.0.0.0/0"}});
    let object: Value = json!({
        "metadata": {"namespace": "ns0", "name": "default", "uid": "1"}, "spec": {"egress": [rule]},
    });
    WatchEvent::custom(Seen::All(values::<EgressFirewallObject>(&[object])))
}

fn denials() -> [WatchEvent; 2] {
    [WatchEvent::ClusterPolicies(KIND, Seen::All(policies())), firewalls()]
}

fn no_denials() -> Vec<WatchEvent> {
    WatchEvent::no_optional_kinds()
}

/// All lists but those of what denies.
fn others() -> Vec<WatchEvent> {
    let namespaces = (0..3).map(|number| (namespace(number), labelled(0))).collect();
    vec![
        all_nodes([node(1)]),
        all_pods((0..3).map(|number| pod(number, 1, 0))),
        WatchEvent::Namespaces(Seen::All(namespaces)),
        WatchEvent::Policies(Seen::All(Vec::new())),
        WatchEvent::Services(Seen::All(Vec::new())),
        WatchEvent::Slices(Seen::All(Vec::new())),
    ]
}

fn tell(controller: &Running, observations: impl IntoIterator<Item = WatchEvent>) {
    observations.into_iter().for_each(|observation| controller.observe(observation));
}

/// An API server that was restored without these objects, or a definition that was made anew,
/// opened all that they deny within a second: in the steady state, and at a start.
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
        controller
            .doubted(|of| of.cluster_policies == 1 && of.custom[&CustomKind::EgressFirewall] == 1)
            .await;
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
    controller.told_after([WatchEvent::Cluster(None)].into_iter().chain(no_denials())).await;
    assert_eq!(contents(&connection).await, open);
}

/// That there is no such kind, or only in a version of the future, or that it may not be read.
fn unlisted() -> [Unlisted; 3] {
    let resource = || "things.example".to_owned();
    [
        Unlisted::Undefined(resource()),
        Unlisted::UnknownVersion { resource: resource(), versions: "v9".to_owned() },
        Unlisted::Forbidden { resource: resource(), why: "403".to_owned() },
    ]
}

fn all_unlisted(why: &Unlisted) -> Vec<WatchEvent> {
    let policies = ClusterPolicyKind::ALL
        .map(|kind| WatchEvent::ClusterPolicies(kind, Seen::Unlisted(why.clone())));
    let custom = [
        WatchEvent::custom::<EgressFirewall>(Seen::Unlisted(why.clone())),
        WatchEvent::custom::<EgressQos>(Seen::Unlisted(why.clone())),
    ];
    policies.into_iter().chain(custom).collect()
}

/// Each of these answers was an empty list: all that the cluster's administrators deny was open
/// within half a minute, and everything was ready.
#[tokio::test]
async fn law_12_an_answer_that_a_kind_cannot_be_read_opens_nothing_that_it_closes() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::start(northbound.endpoint(), config());
    tell(&controller, no_denials().into_iter().chain(others()));
    controller.converged().await;
    controller.told_after(denials()).await;
    let before = contents(&connection).await;
    // While it runs.
    for why in unlisted() {
        tell(&controller, all_unlisted(&why));
        let expected = why.to_string();
        let names = |progress: &Progress| {
            progress.unread.as_ref().is_some_and(|unread| {
                unread.contains(&expected)
                    && unread.contains("AdminNetworkPolicies")
                    && unread.contains("Egress")
            })
        };
        controller.reaches("it says so", names).await;
        // Events of other kinds go on.
        controller.told_after([WatchEvent::Pods(Seen::Applied(pod(7, 1, 0)))]).await;
        controller.told_after([WatchEvent::Pods(Seen::Deleted(pod_key(7)))]).await;
        assert_eq!(contents(&connection).await, before, "{why}");
    }
    // At a start: all wait for a while, and then go on.
    for why in unlisted() {
        controller.kill().await;
        controller =
            Running::with_patience(Duration::from_millis(500), northbound.endpoint(), config());
        controller.reaches("the database is read", |progress| progress.loaded).await;
        tell(&controller, others().into_iter().chain(all_unlisted(&why)));
        controller.converged().await;
        assert!(controller.progress.borrow().unread.is_some(), "{why}");
        assert_eq!(contents(&connection).await, before, "{why}");
        // What stays is about new pods of the namespace, too.
        controller.told_after([WatchEvent::Pods(Seen::Applied(pod(9, 1, 0)))]).await;
        assert!(is_limited(&contents(&connection).await, "ns0_p9"), "{why}");
        controller.told_after([WatchEvent::Pods(Seen::Deleted(pod_key(9)))]).await;
        assert_eq!(contents(&connection).await, before, "{why}");
    }
    // The next pod with the address of one that has gone is not in the sets that stay.
    let address = "10.0.1.85";
    assert!(has_set_with(&contents(&connection).await, address), "{before:#?}");
    controller.told_after([WatchEvent::Pods(Seen::Deleted(pod_key(2)))]).await;
    controller.told_after([WatchEvent::Pods(Seen::Applied(pod(2, 1, 1)))]).await;
    assert!(!has_set_with(&contents(&connection).await, address));
    // Once they can be read all is as before.
    controller.told_after([WatchEvent::Pods(Seen::Deleted(pod_key(2)))]).await;
    controller.told_after([WatchEvent::Pods(Seen::Applied(pod(2, 1, 0)))]).await;
    tell(&controller, no_denials().into_iter().chain(denials()));
    controller
        .reaches("all is read", |progress| progress.unread.is_none() && progress.converged)
        .await;
    let rows = |contents: &Contents| {
        let rows = contents
            .0
            .iter()
            .map(|((table, name, _), row)| ((table.clone(), name.clone()), row.clone()));
        rows.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(rows(&contents(&connection).await), rows(&before));
}

/// Whether the port is in a group with the rules of an EgressFirewall.
fn is_limited(contents: &Contents, port: &str) -> bool {
    let has = |row: &BTreeMap<String, String>, column: &str, text: &str| {
        row.get(column).is_some_and(|value| value.contains(text))
    };
    let mut groups =
        contents.0.iter().filter(|((table, ..), _)| table == "Port_Group").map(|(_, row)| row);
    groups.any(|row| has(row, "ports", &format!("<{port}>")) && has(row, "acls", "EgressFirewall"))
}

fn has_set_with(contents: &Contents, address: &str) -> bool {
    let mut sets =
        contents.0.iter().filter(|((table, ..), _)| table == "Address_Set").map(|(_, row)| row);
    sets.any(|row| {
        row.get("addresses").is_some_and(|all| all.split(", ").any(|own| own == address))
    })
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
    world.controller.observe(WatchEvent::Slices(Seen::All(Vec::new())));
    world.controller.doubted(|of| of.slices == 3).await;
    assert_eq!(world.contents().await, before);
    world.rest().await;
    assert_eq!(world.contents().await, before);
    world.end().await;
}
