//! Laws 1 to 4 and 6 to 8, each on random histories. `OVN_LAWS_CASES` sets their number; the
//! default is a few.
//!
//! Many cases take longer than `cargo nextest` allows: `OVN_LAWS_CASES=500 cargo test -p controller
//! --test laws law_1`.

use std::{
    fmt::Debug,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestError, TestRunner},
};
use tokio::time::Instant;

use contract::ovn::{self, ObjectId};
use controller::{
    kinds::{
        node::object::Node,
        pod::object::{Annotated, Pod},
    },
    watch_event::{Seen, WatchEvent},
};

use crate::{
    cluster::{all_nodes, all_pods, node, pod, pod_key},
    database::{Contents, Row},
    guards::{Closed, NoStaleAddress, Watcher},
    history::{Drift, Step, anything, beside_others, drift, interrupted, observed, one_of_each},
    running::hurry,
    second_writer::port,
    world::World,
};

/// Checks the property on random histories, and prints the shortest one that breaks it.
pub(crate) fn on<S: Debug>(
    cases: u32,
    longest: usize,
    steps: impl Strategy<Value = S>,
    property: impl AsyncFn(Vec<S>),
) {
    let cases = std::env::var("OVN_LAWS_CASES")
        .map_or(cases, |cases| cases.parse().expect("OVN_LAWS_CASES is a number"));
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_time: 20_000,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&vec(steps, 1..longest), |history| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kept = catch_unwind(AssertUnwindSafe(|| runtime.block_on(property(history))));
        kept.map_err(|panic| {
            hurry();
            let text = panic.downcast_ref::<String>().cloned();
            TestCaseError::fail(
                text.or_else(|| panic.downcast_ref().map(|text: &&str| (*text).to_owned()))
                    .unwrap_or_default(),
            )
        })
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, history)) => {
            let steps: String = history.iter().map(|step| format!("  {step:?}\n")).collect();
            panic!("{reason}\nthe shortest history that was found:\n{steps}");
        }
        Err(error) => panic!("{error}"),
    }
}

/// Law 1: after any order of events, restarts, crashes and interference, the database is what
/// `desired` says, computed from nothing.
#[test]
fn law_1_the_database_converges() {
    on(16, 30, anything(), async |history| {
        let world = World::after(history).await;
        world.end().await;
    });
}

/// Law 2: a restart with the database as it should be writes nothing.
#[test]
fn law_2_a_restart_writes_nothing() {
    on(10, 16, anything(), async |history| {
        let mut world = World::after(history).await;
        let before = world.contents().await;
        world.restart(true).await;
        world.rest().await;
        assert_eq!(
            world.controller.counted("ovnkube_controller_nb_transactions_total"),
            0.0,
            "transactions of the new controller"
        );
        same(&world.contents().await, &before);
        world.end().await;
    });
}

/// Law 3: foreign rows stay as they are, whatever they refer to and wherever they are.
#[test]
fn law_3_foreign_rows_stay() {
    on(16, 30, beside_others(), async |history| {
        let world = World::after(history).await;
        let harmed = world.second.harmed(&world.contents().await);
        assert!(harmed.is_empty(), "{harmed:#?}");
        world.end().await;
    });
}

/// Law 4: rows of the controller that another writer has changed are repaired within a second.
#[test]
fn law_4_drift_is_repaired_within_a_second() {
    on(6, MOST_DRIFTS + 1, drift(), repaired_in_time);
}

#[tokio::test]
async fn law_4_every_kind_of_drift_is_repaired_within_a_second() {
    for drifts in one_of_each().chunks(MOST_DRIFTS) {
        repaired_in_time(drifts.to_vec()).await;
    }
}

/// With more repairs of one key the controller would back off.
const MOST_DRIFTS: usize = 4;

async fn repaired_in_time(drifts: Vec<Drift>) {
    let mut world = World::new().await;
    for node in 1..4 {
        world.happen(Step::Node(node)).await;
    }
    for pod in 1..7 {
        world.happen(Step::Pod { pod, node: 1 + pod % 3 }).await;
    }
    for policy in 0..6 {
        world.happen(Step::Policy { policy, kind: policy }).await;
    }
    world.rest().await;
    for drift in once_each(drifts) {
        world.drift(drift).await;
        let begun = Instant::now();
        world.rest().await;
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "{drift:?}: {took:?}");
    }
    world.end().await;
}

/// Each drift once: the same one again and again is a fight, which `refusals` tests.
fn once_each(drifts: Vec<Drift>) -> Vec<Drift> {
    let mut different: Vec<Drift> = Vec::new();
    drifts
        .into_iter()
        .for_each(|drift| different.extend((!different.contains(&drift)).then_some(drift)));
    different
}

/// Law 6: a restart never removes a running pod's port, not even for a moment, whatever is read
/// first.
#[test]
fn law_6_nothing_that_serves_a_pod_is_removed_at_the_start() {
    on(8, 16, observed(), async |history| {
        let mut world = World::after(history).await;
        let before = world.ports_of_pods(&world.contents().await);
        for nodes_first in [true, false] {
            world.restart(nodes_first).await;
            world.rest().await;
            assert_eq!(world.ports_of_pods(&world.contents().await), before);
        }
        // And through a crash of the server, for the reconnection reads everything anew.
        world.happen(Step::Crash).await;
        world.rest().await;
        assert_eq!(world.ports_of_pods(&world.contents().await), before);
        world.end().await;
    });
}

/// Law 6 in the steady state and at a start: annotations of nodes that are lost or cannot be parsed
/// change no row. Two nodes with all of their pods lost the network until their annotations were
/// corrected.
#[test]
fn law_6_nothing_is_removed_because_of_what_cannot_be_read() {
    on(8, 16, observed(), async |history| {
        let mut world = World::after(history).await;
        let before = world.contents().await;
        for (spoilt, restarts) in [
            (Step::NodeAnnotationLost as fn(u32) -> Step, false),
            (Step::NodeAnnotationGarbled, true),
        ] {
            spoil(&mut world, spoilt, 1..4, restarts).await;
            same(&world.contents().await, &before);
        }
        world.rest().await;
        same(&world.contents().await, &before);
        world.end().await;
    });
}

/// The same with one node beside others that can be read: a rule about nodes lost the addresses of
/// the one. Without Services, whose merged rows are named after the nodes that can be read; they
/// have the next law.
#[test]
fn law_6_nothing_is_removed_because_of_one_node_that_cannot_be_read() {
    on(8, 16, observed(), async |mut history| {
        history.retain(|step| !matches!(step, Step::Service { .. }));
        let mut world = World::after(history).await;
        let before = world.contents().await;
        spoil(&mut world, Step::NodeAnnotationGarbled, 2..3, true).await;
        same(&world.contents().await, &before);
        world.rest().await;
        same(&world.contents().await, &before);
        world.end().await;
    });
}

/// Makes annotations of these nodes useless, also to a new process if it `restarts`.
async fn spoil(world: &mut World, spoilt: fn(u32) -> Step, nodes: Range<u32>, restarts: bool) {
    for node in nodes {
        world.happen(spoilt(node)).await;
    }
    world.happen(Step::Relist).await;
    if restarts {
        world.restart(false).await;
    }
    world.controller.converged().await;
}

/// Law 6 for Services: node ports of a node were removed when a restart found its annotations
/// garbled, and the load balancers of all nodes with them. A Service that is gone still takes its
/// rows with it.
#[tokio::test]
async fn law_6_load_balancers_of_a_node_that_cannot_be_read_at_a_start_stay() {
    for kind in 0..8 {
        let services = (1..4).map(|service| Step::Service { service, kind });
        let history: Vec<Step> = [Step::Node(1), Step::Node(2)]
            .into_iter()
            .chain(services)
            .chain([Step::Rest])
            .collect();
        let mut world = World::after(history).await;
        let before = load_balancers(&world.contents().await);
        // A merged row is named after the first node that can be read; it stays the same row.
        for node in 1..3 {
            world.happen(Step::NodeAnnotationGarbled(node)).await;
            world.restart(false).await;
            world.rest().await;
            assert_eq!(load_balancers(&world.contents().await), before);
        }
        for service in 1..4 {
            world.happen(Step::ServiceGone(service)).await;
        }
        world.rest().await;
        assert_eq!(load_balancers(&world.contents().await), []);
        world.end().await;
    }
}

/// Law 6 for pods: lost annotations are written again with the pods' addresses, after a restart
/// with those of their ports.
#[test]
fn law_6_pods_keep_their_addresses_when_their_annotations_are_lost_while_nobody_looks() {
    on(8, 16, observed(), async |history| {
        let mut world = World::after(history).await;
        let before = world.contents().await;
        world.replace().await;
        // A pod whose annotation was unreadable from the start has no address to keep: it gets its
        // first one.
        let ports = world.ports_of_pods(&before);
        for pod in (1..7).filter(|pod| ports.contains_key(&port(*pod))) {
            world
                .happen(if pod % 2 == 0 {
                    Step::PodAnnotationLost(pod)
                } else {
                    Step::PodAnnotationGarbled(pod)
                })
                .await;
        }
        world.restart(true).await;
        world.controller.converged().await;
        world.rest().await;
        same(&world.contents().await, &before);
        world.end().await;
    });
}

/// Law 6 for lists: an empty list is not believed, in the steady state or at a start, until another
/// one says the same after some time. A list of another cluster is never believed.
#[test]
fn law_6_a_list_that_is_suddenly_empty_removes_nothing() {
    on(8, 16, observed(), async |history| {
        let mut world = World::new().await;
        world.happen(Step::Node(1)).await;
        world.happen(Step::Pod { pod: 1, node: 1 }).await;
        world.happen(Step::Pod { pod: 2, node: 1 }).await;
        for step in history {
            world.happen(step).await;
        }
        world.happen(Step::Node(2)).await;
        world.happen(Step::Pod { pod: 3, node: 2 }).await;
        world.happen(Step::Pod { pod: 4, node: 2 }).await;
        world.rest().await;
        let before = world.contents().await;
        for (restarts, id) in [(false, None), (true, None), (true, Some("other"))] {
            if restarts {
                world.replace().await;
                world.controller.reaches("the database is read", |progress| progress.loaded).await;
            }
            if let Some(id) = id {
                world.controller.observe(WatchEvent::Cluster(Some("own".into())));
                world.controller.observe(WatchEvent::Cluster(Some(id.into())));
            }
            world.controller.observe(all_nodes([]));
            world.controller.observe(all_pods([]));
            world.controller.observe(all_pods([]));
            world
                .controller
                .doubted(|doubted| id.is_some() || doubted.nodes > 0 && doubted.pods > 1)
                .await;
            if id.is_some() {
                // However long it stays.
                for _ in 0..3 {
                    world.controller.observe(WatchEvent::Cluster(Some("other".into())));
                    world.controller.observe(all_nodes([]));
                    world.controller.observe(all_pods([]));
                }
                world.controller.doubted(|doubted| doubted.other_cluster.is_some()).await;
                world.controller.observe(WatchEvent::Cluster(Some("own".into())));
            }
            same(&world.contents().await, &before);
            world.rest().await;
            same(&world.contents().await, &before);
        }
        // A true list is believed in the end.
        world.controller.observe(all_nodes([]));
        world.controller.observe(all_pods([]));
        world.controller.observe(WatchEvent::Cluster(None));
        world.controller.observe(all_nodes([]));
        world.controller.observe(all_pods([]));
        world.controller.reaches("work", |progress| !progress.converged).await;
        world.controller.converged().await;
        let left = world.contents().await;
        assert_eq!(left.row("Logical_Switch", "n2"), None);
        assert!(world.ports_of_pods(&left).is_empty());
        world.end().await;
    });
}

/// Number of commits that kept the guards' laws, up to one that comes after all others.
pub(crate) async fn kept_to_the_end(world: &mut World, watcher: &mut Watcher) -> usize {
    world.foreign_switch("foreign-last").await;
    watcher.kept_until("foreign-last").await
}

/// Laws 7 and 8, through restarts and crashes: a port comes with its addresses, its port security
/// and its groups in one transaction, and an address leaves with its port before it is given again.
#[test]
fn laws_7_and_8_hold_at_every_commit() {
    on(12, 40, interrupted(), async |history| {
        let mut world = World::new().await;
        let mut watcher = world.watched_by(vec![
            Box::new(Closed { groups: of_management_ports }),
            Box::new(NoStaleAddress),
        ]);
        world.happen(Step::Node(1)).await;
        for step in history {
            world.happen(step).await;
        }
        world.rest().await;
        let commits = kept_to_the_end(&mut world, &mut watcher).await;
        assert!(commits > 1, "the guards have seen {commits} commits");
        world.end().await;
    });
}

/// Law 7 for policies: a namespace whose pods are all isolated, and pods that come, go, move and
/// change their labels under it, while other policies come and go and the controller is killed. At
/// no commit is a port outside of the groups.
#[test]
fn law_7_a_selected_pod_is_isolated_at_every_commit() {
    on(12, 40, interrupted(), async |history| {
        let mut world = World::new().await;
        world.happen(Step::Policy { policy: 0, kind: 0 }).await;
        world.happen(Step::Node(1)).await;
        world.rest().await;
        let mut watcher = world.watched_by(vec![Box::new(Closed { groups: of_isolated_pods })]);
        world.happen(Step::Pod { pod: 3, node: 1 }).await;
        let stays =
            |step: &Step| !matches!(step, Step::Policy { policy: 0, .. } | Step::PolicyGone(0));
        for step in history.into_iter().filter(stays) {
            world.happen(step).await;
        }
        world.rest().await;
        let commits = kept_to_the_end(&mut world, &mut watcher).await;
        assert!(commits > 1, "the guards have seen {commits} commits");
        world.end().await;
    });
}

/// Law 7 for EgressFirewalls: the same for the rules of a namespace, which change meanwhile.
#[test]
fn law_7_a_pod_of_a_namespace_with_an_egress_firewall_has_its_rules_at_every_commit() {
    on(12, 40, interrupted(), async |history| {
        let mut world = World::new().await;
        world.happen(Step::Firewall { namespace: 0, kind: 0 }).await;
        world.happen(Step::Node(1)).await;
        world.rest().await;
        let mut watcher = world.watched_by(vec![Box::new(Closed { groups: of_pods_with_rules })]);
        world.happen(Step::Pod { pod: 3, node: 1 }).await;
        let has_rules = |step: &Step| {
            !matches!(step, Step::Firewall { namespace: 0, kind: 3 | 5.. } | Step::FirewallGone(0))
        };
        for step in history.into_iter().filter(has_rules) {
            world.happen(step).await;
        }
        world.rest().await;
        let commits = kept_to_the_end(&mut world, &mut watcher).await;
        assert!(commits > 1, "the guards have seen {commits} commits");
        world.end().await;
    });
}

/// A node with four addresses and five pods: whenever one goes, another gets its address, and must
/// not have it before the first one's port has left.
#[tokio::test]
async fn law_8_an_address_leaves_before_it_is_given_again() {
    let mut world = World::new().await;
    let mut watcher = world.watched_by(vec![Box::new(NoStaleAddress)]);
    let without_annotation = |number: u32| {
        let (key, pod) = pod(number, 1, 0);
        WatchEvent::Pods(Seen::Applied((key, Pod { annotated: Annotated::Nothing, ..pod })))
    };
    let node = Node { subnets: vec!["10.0.1.0/29".parse().unwrap()], ..node(1) };
    world.controller.observe(all_nodes([node]));
    (0..5).for_each(|number| world.controller.observe(without_annotation(number)));
    world.controller.reaches("work", |progress| !progress.converged).await;
    world.controller.converged().await;
    for number in 5..25 {
        let ports = world.ports_of_pods(&world.contents().await);
        assert_eq!(ports.len(), 4, "{ports:?}");
        let gone = (0..number).find(|other| ports.contains_key(&port(*other))).unwrap();
        world.controller.observe(WatchEvent::Pods(Seen::Deleted(pod_key(gone))));
        world.controller.observe(without_annotation(number));
        world.controller.reaches("work", |progress| !progress.converged).await;
        world.controller.converged().await;
    }
    let commits = kept_to_the_end(&mut world, &mut watcher).await;
    assert!(commits > 20, "the guards have seen {commits} commits");
    world.end().await;
}

/// Each load balancer with its backends.
fn load_balancers(contents: &Contents) -> Vec<(String, String)> {
    let rows = contents.0.iter().filter(|((table, _, _), _)| table == "Load_Balancer");
    let mut rows: Vec<_> = rows
        .map(|((_, _, uuid), row)| {
            (format!("{uuid:?}"), row.get("vips").cloned().unwrap_or_default())
        })
        .collect();
    rows.sort();
    rows
}

/// The groups of the first namespace's isolated pods, of which [`Step::Policy`] 0 of kind 0 selects
/// all.
fn of_isolated_pods(port: &str) -> Vec<String> {
    let groups =
        ["Ingress", "Egress"].map(|direction| ObjectId::isolated("ns0", direction).hashed());
    if port.starts_with("ns0_") { groups.into() } else { Vec::new() }
}

/// The group of the first namespace's pods, which has the rules of its EgressFirewall.
fn of_pods_with_rules(port: &str) -> Vec<String> {
    port.starts_with("ns0_")
        .then(|| ObjectId::namespace_group("ns0").hashed())
        .into_iter()
        .collect()
}

/// The group that lets nodes reach their pods, whatever policies say.
fn of_management_ports(port: &str) -> Vec<String> {
    let group = || ObjectId::cluster_port_group(ovn::CLUSTER_PORT_GROUP).hashed();
    port.starts_with("k8s-").then(group).into_iter().collect()
}

pub(crate) fn same(now: &Contents, before: &Contents) {
    let differing = |a: &Contents, b: &Contents| -> Vec<String> {
        let other = |((table, name, uuid), row): &(&(String, String, _), &Row)| {
            b.0.get(&(table.clone(), name.clone(), *uuid)) != Some(*row)
        };
        a.0.iter()
            .filter(other)
            .map(|((table, name, _), row)| format!("{table} {name}: {row:?}"))
            .collect()
    };
    let (now, before) = (differing(now, before), differing(before, now));
    assert!(now.is_empty() && before.is_empty(), "now: {now:#?}\nbefore: {before:#?}");
}

/// Law 1 again, without interference, on longer histories.
#[test]
fn law_1_restarts_and_crashes_lose_nothing() {
    on(8, 60, interrupted(), async |history| {
        let world = World::after(history).await;
        world.end().await;
    });
}

/// Found by law 7: an address stayed in a set after its pod had lost the annotation, while the
/// pod's node was not there.
#[test]
fn an_address_that_no_annotation_has_any_longer_leaves_its_sets() {
    let history = [
        Step::Node(1),
        Step::Pod { pod: 5, node: 3 },
        Step::Policy { policy: 1, kind: 6 },
        Step::PodAnnotationLost(5),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { World::after(history).await.end().await });
}
