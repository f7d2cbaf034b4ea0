//! Rows that the database refuses or another writer contests: only the objects of these rows wait.

use std::time::Duration;

use controller::{engine::reconcile::Report, key::Key};
use tokio::time::{Instant, timeout};

use crate::{
    cluster::{node_name, pod_key},
    history::{Drift, Foreign, Step},
    running::deadline,
    world::World,
};

#[tokio::test]
async fn a_refused_pod_is_reported_once_holds_up_nobody_and_goes_on_when_it_can() {
    let mut world = World::new().await;
    world.happen(Step::Node(1)).await;
    world.rest().await;
    world.foreign(Foreign::TakesName(3)).await;
    for pod in 1..7 {
        world.happen(Step::Pod { pod, node: 1 }).await;
    }
    world
        .controller
        .reaches("one is refused", |progress| progress.converged && progress.failing == 1)
        .await;
    let ports = world.ports_of_pods(&world.contents().await);
    assert_eq!(ports.len(), 6, "five of ours and the one in the way: {ports:?}");

    let report = timeout(deadline(), world.controller.reports.recv()).await.unwrap().unwrap();
    let Report::Refused { key, uid, error } = report else { panic!("{report:?}") };
    assert_eq!(key, Key::Pod(pod_key(3)));
    assert!(
        uid.is_some_and(|uid| uid.starts_with("uid-3-")),
        "events without it are not shown by kubectl describe"
    );
    assert!(error.contains("ns0_p3") && error.contains("index"), "{error}");

    // Said for as long as it lasts, once it is clear that it does not pass.
    let refused = "refuses the rows of pod";
    let is_said = |why: Option<&str>| why.is_some_and(|why| why.contains(refused));
    world
        .controller
        .reaches("it is in the state", |progress| is_said(progress.refused_objects.as_deref()))
        .await;

    // The row in the way is gone: the retry does not wait for a timer.
    let begun = Instant::now();
    world.rest().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let report = world.controller.reports.recv().await;
    assert_eq!(report, Some(Report::Recovered { key: Key::Pod(pod_key(3)) }));
    assert!(world.controller.reports.try_recv().is_err());
    world.end().await;
}

#[tokio::test]
async fn rows_that_somebody_changes_again_and_again_are_repaired_more_and_more_slowly() {
    let mut world = World::new().await;
    world.happen(Step::Node(1)).await;
    world.happen(Step::Pod { pod: 1, node: 1 }).await;
    world.happen(Step::Pod { pod: 2, node: 1 }).await;
    world.rest().await;
    let before = world.controller.transactions().get();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        world.drift(Drift::PortLosesAddresses(1)).await;
    }
    let repairs = world.controller.transactions().get() - before;
    assert!((5..=10).contains(&repairs), "{repairs} repairs");
    let report = world.controller.reports.recv().await.unwrap();
    assert_eq!(
        report,
        Report::Contested {
            key: Key::Pod(pod_key(1)),
            uid: Some("uid-1-2".into()),
            row: "Logical_Switch_Port ns1_p1".to_owned()
        }
    );
    // Other keys are not delayed, and in the end the controller wins.
    world.drift(Drift::PortLosesAddresses(2)).await;
    world.rest().await;
    world.end().await;
}

#[tokio::test]
async fn pods_wait_for_a_switch_that_cannot_be_made_yet() {
    let mut world = World::new().await;
    world.rest().await;
    // The name of the node's link is taken. The node's rows are refused together, so there is no
    // switch for the pod.
    world.foreign(Foreign::TakesLink(1)).await;
    world.happen(Step::Pod { pod: 1, node: 1 }).await;
    world.happen(Step::Node(1)).await;
    world
        .controller
        .reaches("the pod waits", |progress| {
            progress.converged && progress.failing == 1 && progress.waiting == 1
        })
        .await;
    let report = world.controller.reports.recv().await.unwrap();
    assert!(
        matches!(&report, Report::Refused { key: Key::Node(node), .. } if *node == node_name(1)),
        "{report:?}"
    );
    world.rest().await;
    world.end().await;
}
