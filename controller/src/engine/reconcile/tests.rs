//! The right to write: the reconciler with a real northbound database whose lock and zone other
//! writers change.

use std::time::Duration;

use ovsdb::{
    Claim, Connection, Endpoint, ErrorKind, Lock, LockState, OvsdbError, Row, Transaction, Where,
};
use testkit::{Database, Scratch};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    config::ClusterConfig,
    engine::{
        northbound::connect,
        reconcile::{Controller, InFlight, database_lock::LOCK},
    },
    kinds::{
        namespace::object::Namespace,
        node::object::Node,
        pod::{annotation::PodAnnotation, object::Pod},
    },
    watch_event::Seen,
};

use super::*;

/// Longer than anything takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Longer than it takes here to see that nothing happens.
const HELD: Duration = Duration::from_secs(2);

struct Run {
    server: Option<Database>,
    scratch: Scratch,
    connection: Connection,
    observations: mpsc::UnboundedSender<WatchEvent>,
    annotations: mpsc::UnboundedReceiver<PodAnnotation>,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<Stopped>,
}

/// That of the pods.
fn namespaces() -> WatchEvent {
    WatchEvent::Namespaces(Seen::All(vec![("default".into(), Namespace::default())]))
}

impl Run {
    /// A controller with one node. `zone`: `NB_Global.name` of the database.
    async fn start(leadership: Leadership, zone: Option<&str>) -> Self {
        Self::start_in(leadership, zone, None).await
    }

    /// The same, with an API server of this cluster; none if it does not tell.
    async fn start_in(leadership: Leadership, zone: Option<&str>, cluster: Option<&str>) -> Self {
        let run = Self::connect(leadership, zone).await;
        if cluster.is_some() {
            run.observe(WatchEvent::Cluster(cluster.map(Into::into)));
        }
        run.observe(WatchEvent::Services(Seen::All(Vec::new())));
        run.observe(WatchEvent::Slices(Seen::All(Vec::new())));
        run.observe(namespaces());
        run.observe(WatchEvent::Policies(Seen::All(Vec::new())));
        WatchEvent::no_optional_kinds().into_iter().for_each(|list| run.observe(list));
        run.observe(WatchEvent::Nodes(Seen::All(vec![node("n1")])));
        run.observe(WatchEvent::Pods(Seen::All(Vec::<(PodKey, Pod)>::new())));
        run
    }

    /// A controller that has observed nothing yet.
    async fn connect(leadership: Leadership, zone: Option<&str>) -> Self {
        let scratch = Scratch::new();
        let server = Database::of_schema(scratch.path(), "nb", "/usr/share/ovn/ovn-nb.ovsschema");
        let endpoint = Endpoint::Unix(scratch.join("nb.sock"));
        let connection =
            Connection::open(&endpoint, "OVN_Northbound", ovsdb::Options::default()).await.unwrap();
        if let Some(zone) = zone {
            let mut transaction = Transaction::new();
            transaction.insert("NB_Global", Row::new().with("name", zone));
            // As another zone's controller would have made it.
            transaction.insert("Logical_Router", Row::new().with("name", "ovn_cluster_router"));
            connection.transact(transaction).await.unwrap();
        }
        let (controller, observations, annotations, progress) = controller(endpoint, leadership);
        let task = tokio::spawn(controller.run());
        Self {
            server: Some(server),
            scratch,
            connection,
            observations,
            annotations,
            progress,
            task,
        }
    }

    fn observe(&self, observation: WatchEvent) {
        self.observations.send(observation).unwrap();
    }

    async fn reaches(&mut self, what: &str, state: impl FnMut(&Progress) -> bool) {
        let seen = timeout(SOON, self.progress.wait_for(state)).await.map(drop);
        seen.unwrap_or_else(|_| {
            panic!("{what} was waited for; last seen: {:?}", self.progress.borrow())
        });
    }

    async fn switches(&self) -> Vec<String> {
        self.rows("Logical_Switch").await.into_iter().map(|(name, _)| name).collect()
    }

    /// Names and UUIDs, sorted by name.
    async fn rows(&self, table: &str) -> Vec<(String, ovsdb::Uuid)> {
        let mut transaction = Transaction::new();
        let rows = transaction.select(table, Where::all(), &["name"]);
        let outcome = self.connection.transact(transaction).await.unwrap();
        let mut names: Vec<_> = outcome
            .rows(rows)
            .iter()
            .map(|row| (row.string("name").unwrap().to_owned(), row.uuid()))
            .collect();
        names.sort();
        names
    }

    /// Whether the database has the mark of a new one.
    async fn is_marked(&self) -> bool {
        let mut transaction = Transaction::new();
        let rows = transaction.select("NB_Global", Where::all(), &["external_ids"]);
        let outcome = self.connection.transact(transaction).await.unwrap();
        outcome.rows(rows).iter().any(|row| row.map("external_ids").contains_key("filling"))
    }

    async fn steal(&self) -> Lock {
        let mut lock = self.connection.lock(LOCK, Claim::Steal);
        while lock.state() == LockState::Asked {
            timeout(SOON, lock.changed()).await.unwrap();
        }
        assert!(lock.is_held());
        lock
    }
}

type Parts = (
    Controller,
    mpsc::UnboundedSender<WatchEvent>,
    mpsc::UnboundedReceiver<PodAnnotation>,
    watch::Receiver<Progress>,
);

fn controller(endpoint: Endpoint, leadership: Leadership) -> Parts {
    let (_client, northbound) = connect(endpoint.into(), ovsdb::Options::default());
    let (observations, observed) = mpsc::unbounded_channel();
    let (annotate, annotations) = mpsc::unbounded_channel();
    let (progress, progressed) = watch::channel(Progress::default());
    let controller = Controller {
        store: Store::new(ClusterConfig::default()),
        observations: observed,
        annotations: annotate,
        conditions: mpsc::unbounded_channel().0,
        statuses: mpsc::unbounded_channel().0,
        northbound,
        leadership,
        reports: mpsc::unbounded_channel().0,
        progress,
        metrics: Metrics::register(&prometheus::Registry::new()).unwrap(),
        hold: HELD,
        patience: UNREAD,
    };
    (controller, observations, annotations, progressed)
}

fn node(name: &str) -> Node {
    Node {
        subnets: vec!["10.244.0.0/24".parse().unwrap()],
        chassis: Some("chassis".to_owned()),
        ..Node::named(name)
    }
}

fn is_blocked(progress: &Progress, by: &str) -> bool {
    progress.blocked.as_deref().is_some_and(|why| why.contains(by))
}

#[tokio::test]
async fn a_leader_whose_lock_was_taken_ends() {
    let mut run = Run::start(Leadership::elected(), None).await;
    run.reaches("convergence", |progress| progress.converged).await;
    assert_eq!(run.switches().await, ["join", "n1"]);
    let _lock = run.steal().await;
    assert_eq!(timeout(SOON, run.task).await.unwrap().unwrap(), Stopped::LockTaken);
}

#[tokio::test]
async fn a_transaction_without_the_lock_changes_nothing_even_if_its_sender_does_not_know_yet() {
    let run = Run::start(Leadership::always(), None).await;
    let _lock = run.steal().await;
    let mut other = Transaction::new();
    other.assert(LOCK);
    other.insert("Logical_Switch", Row::new().with("name", "late"));
    let second =
        Connection::open(run.connection.endpoint(), "OVN_Northbound", ovsdb::Options::default())
            .await
            .unwrap();
    let error = second.transact(other).await.unwrap_err();
    assert_eq!(
        crate::engine::commit::fault::classify(&error),
        crate::engine::commit::fault::Fault::Lock,
        "{error}"
    );
    assert!(!run.switches().await.contains(&"late".to_owned()));
}

#[tokio::test]
async fn a_controller_without_an_election_waits_for_its_turn_and_says_so() {
    let mut run = Run::start(Leadership::always(), None).await;
    run.reaches("convergence", |progress| progress.converged).await;
    let lock = run.steal().await;
    run.reaches("the reason", |progress| is_blocked(progress, LOCK)).await;
    run.observe(WatchEvent::Nodes(Seen::All(vec![
        node("n1"),
        Node { subnets: vec!["10.244.1.0/24".parse().unwrap()], ..node("n2") },
    ])));
    run.reaches("work", |progress| progress.dirty > 0).await;
    assert_eq!(run.switches().await, ["join", "n1"]);
    lock.unlock();
    run.reaches("convergence", |progress| progress.converged && progress.blocked.is_none()).await;
    assert_eq!(run.switches().await, ["join", "n1", "n2"]);
}

#[tokio::test]
async fn nothing_is_changed_in_the_database_of_another_zone() {
    let mut run = Run::start(Leadership::always(), Some("zone-7")).await;
    run.reaches("the reason", |progress| is_blocked(progress, "zone-7")).await;
    assert!(is_blocked(&run.progress.borrow(), "NB_Global.name"));
    assert!(run.switches().await.is_empty());
    // An administrator corrects the name; the address was right.
    let mut transaction = Transaction::new();
    transaction.update("NB_Global", Where::all(), Row::new().with("name", "global"));
    run.connection.transact(transaction).await.unwrap();
    run.reaches("convergence", |progress| progress.converged).await;
    assert_eq!(run.switches().await, ["join", "n1"]);
    // The name is wrong again: the rows stay.
    let mut transaction = Transaction::new();
    transaction.update("NB_Global", Where::all(), Row::new().with("name", "zone-7"));
    run.connection.transact(transaction).await.unwrap();
    run.reaches("the reason", |progress| is_blocked(progress, "zone-7")).await;
    run.observe(WatchEvent::Nodes(Seen::Deleted("n1".into())));
    run.reaches("work", |progress| progress.dirty > 0).await;
    assert_eq!(run.switches().await, ["join", "n1"]);
}

#[tokio::test]
async fn everything_is_compared_in_turns_between_which_others_have_theirs() {
    let mut run = Run::start(Leadership::always(), None).await;
    let many = |number: usize| Node {
        subnets: vec![format!("10.{}.{}.0/24", number / 250, number % 250).parse().unwrap()],
        ..node(&format!("n{number}"))
    };
    run.observe(WatchEvent::Nodes(Seen::All((0..800).map(many).collect())));
    run.reaches("convergence", |progress| progress.converged).await;
    let mut switches = 0;
    while switches < 801 {
        switches = run.switches().await.len();
    }
    // The server comes back with all that it had: there is nothing to write, and everything to
    // compare.
    drop(run.server.take());
    run.reaches("the loss", |progress| !progress.loaded).await;
    let mut progress = run.progress.clone();
    let between = tokio::spawn(async move {
        let mut seen = std::collections::BTreeSet::new();
        loop {
            progress.changed().await.unwrap();
            let Progress { loaded, converged, dirty, .. } = progress.borrow_and_update().clone();
            seen.extend((loaded && dirty > 0).then_some(dirty));
            if loaded && converged {
                return seen;
            }
        }
    });
    run.server = Some(Database::serve(run.scratch.path(), "nb"));
    let seen = timeout(2 * SOON, between).await.expect("convergence").unwrap();
    assert!(seen.iter().any(|dirty| (1..=1000).contains(dirty)), "compared in one go: {seen:?}");
}

/// A race that was lost for one object counted as a repair of all objects in the transaction, up to
/// a thousand. After five in ten seconds all of them rested for up to a minute.
#[tokio::test]
async fn a_lost_race_is_that_of_one_object_and_no_repair_of_the_others_in_its_transaction() {
    let nowhere = Endpoint::Unix(Scratch::new().join("nb.sock"));
    let (mut reconciler, _observations) = controller(nowhere, Leadership::always()).0.begin();
    let [first, second] = ["n1", "n2"].map(|name| Key::Node(name.into()));
    reconciler.in_flight = Some(InFlight {
        partial: HashSet::new(),
        items: [&first, &second].map(|key| Item::whole(key.clone(), Cause::Store)).into(),
        // The assert, and one operation of each key.
        operations: vec![vec![], vec![0], vec![1]],
        written: BTreeMap::new(),
        outcome: Box::pin(std::future::pending()),
    });
    let error = OvsdbError { kind: ErrorKind::TimedOut, details: String::new(), syntax: None };
    reconciler.answered(Err(TransactError::Operation {
        index: 2,
        operation: "wait Logical_Switch".to_owned(),
        error,
    }));
    let marked: BTreeMap<Key, Cause> = std::iter::from_fn(|| reconciler.work_queue.pop())
        .map(|item| (item.key, item.cause))
        .collect();
    assert_eq!(marked, BTreeMap::from([(first, Cause::Store), (second, Cause::Rows)]));
}

/// Any leftover row of the object in the same table was taken for the wanted one and renamed, which
/// is wrong for rows that other rows refer to by name.
#[tokio::test]
async fn a_row_that_is_left_over_is_not_renamed_into_one_that_is_wanted() {
    let run = Run::start(Leadership::always(), None).await;
    let mut rows = Vec::new();
    for chassis in ["chassis", "another"] {
        run.observe(WatchEvent::Nodes(Seen::Applied(Node {
            chassis: Some(chassis.to_owned()),
            ..node("n1")
        })));
        let deadline = Instant::now() + SOON;
        while !matches!(&run.rows("Gateway_Chassis").await[..], [(name, _)] if name.ends_with(&format!("-{chassis}")))
        {
            assert!(Instant::now() < deadline, "{:?}", run.rows("Gateway_Chassis").await);
        }
        rows.extend(run.rows("Gateway_Chassis").await);
    }
    assert_ne!(rows[0].1, rows[1].1, "{rows:?}");
}

/// The identity is compared whatever the database's zone is: another zone's database belongs to the
/// same cluster.
#[tokio::test]
async fn the_cluster_of_the_database_is_compared_with_that_of_the_api_server() {
    for (seen, same) in [(Some("own"), true), (Some("another"), false), (None, true)] {
        let mut run = Run::start(Leadership::always(), Some("zone-7")).await;
        let mut transaction = Transaction::new();
        let ids = Row::new().with("external_ids", ovsdb::Datum::map([("k8s-cluster-uid", "own")]));
        transaction.update("Logical_Router", Where::all(), ids);
        run.connection.transact(transaction).await.unwrap();
        run.reaches("the reason", |progress| is_blocked(progress, "zone-7")).await;
        assert!(!run.progress.borrow().own_cluster, "nobody has asked the API server yet");
        run.observe(WatchEvent::Cluster(seen.map(Into::into)));
        // An observation that comes later.
        run.observe(WatchEvent::Nodes(Seen::Applied(node("n2"))));
        if same {
            run.reaches("the identity", |progress| progress.own_cluster).await;
        } else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(!run.progress.borrow().own_cluster);
        }
    }
}

/// A garbled chassis id or zone may be a name, too: the node's rows left, or went to a chassis that
/// there is not, until the node had written the annotation again. Packets were lost meanwhile.
#[tokio::test]
async fn another_chassis_or_zone_of_a_node_counts_once_it_has_lasted() {
    let mut run = Run::start(Leadership::always(), None).await;
    run.reaches("convergence", |progress| progress.converged).await;
    let before = (run.rows("Logical_Switch").await, run.rows("Gateway_Chassis").await);
    let zone = || Some(crate::config::Zone("null".to_owned()));
    let began = Instant::now();
    for garbled in [
        Node { chassis: Some("-1".to_owned()), ..node("n1") },
        Node { zone: zone(), ..node("n1") },
        Node { zone: zone(), chassis: Some("999999".to_owned()), ..node("n1") },
    ] {
        run.observe(WatchEvent::Nodes(Seen::Applied(garbled)));
        // A list says the same.
        run.observe(WatchEvent::Nodes(Seen::All(vec![Node { zone: zone(), ..node("n1") }])));
        run.observe(WatchEvent::Nodes(Seen::Applied(node("n1"))));
    }
    run.observe(WatchEvent::Nodes(Seen::Applied(Node {
        chassis: Some("other".to_owned()),
        ..node("n1")
    })));
    while began.elapsed() < HELD / 2 {
        assert_eq!((run.rows("Logical_Switch").await, run.rows("Gateway_Chassis").await), before);
    }
    let deadline = Instant::now() + SOON;
    while !matches!(&run.rows("Gateway_Chassis").await[..], [(name, _)] if name.ends_with("-other"))
    {
        assert!(Instant::now() < deadline, "{:?}", run.rows("Gateway_Chassis").await);
    }
    assert!(began.elapsed() >= HELD, "{:?}", began.elapsed());
}

/// The flows of other nodes led to the former place for seconds.
#[tokio::test]
async fn a_node_that_has_said_where_it_goes_leaves_at_once() {
    let mut run = Run::start(Leadership::always(), None).await;
    run.reaches("convergence", |progress| progress.converged).await;
    let other = || Some(crate::config::Zone("other".to_owned()));
    run.observe(WatchEvent::Nodes(Seen::Applied(Node { next_zone: other(), ..node("n1") })));
    assert!(!run.rows("Gateway_Chassis").await.is_empty());
    let began = Instant::now();
    run.observe(WatchEvent::Nodes(Seen::Applied(Node { zone: other(), ..node("n1") })));
    while !run.rows("Gateway_Chassis").await.is_empty() {
        assert!(began.elapsed() < HELD, "{:?}", run.rows("Gateway_Chassis").await);
    }
}

/// The record of whose database it is.
async fn write_cluster(run: &Run, id: Option<&str>) {
    let mut transaction = Transaction::new();
    let pairs =
        id.map(|id| ("k8s-cluster-uid", id)).into_iter().chain([("k8s-cluster-router", "yes")]);
    let ids = Row::new().with("external_ids", ovsdb::Datum::map(pairs));
    let router = Where::from(ovsdb::Condition::equal("name", "ovn_cluster_router"));
    transaction.update("Logical_Router", router, ids);
    run.connection.transact(transaction).await.unwrap();
}

/// The address of the database leads elsewhere after a reconnection: all pods of the other cluster
/// were unknown, and so their ports were removed.
#[tokio::test]
async fn nothing_is_changed_once_the_database_is_another_clusters() {
    let mut run = Run::start_in(Leadership::always(), None, Some("own")).await;
    run.reaches("convergence", |progress| progress.converged).await;
    write_cluster(&run, Some("other")).await;
    run.reaches("the reason", |progress| is_blocked(progress, "written for the cluster other"))
        .await;
    run.observe(WatchEvent::Nodes(Seen::Deleted("n1".into())));
    run.reaches("work", |progress| progress.dirty > 0).await;
    assert_eq!(run.switches().await, ["join", "n1"]);
    write_cluster(&run, Some("own")).await;
    run.reaches("convergence", |progress| progress.converged && progress.blocked.is_none()).await;
    assert_eq!(run.switches().await, ["join"]);
}

/// Each of two clusters' controllers took the lock from the other, and ended, again and again.
#[tokio::test]
async fn the_lock_of_another_clusters_database_is_not_taken_from_its_controller() {
    let mut own = Run::start_in(Leadership::elected(), None, Some("own")).await;
    own.reaches("convergence", |progress| progress.converged).await;
    write_cluster(&own, Some("own")).await;
    let (controller, observations, _annotations, mut progress) =
        controller(own.connection.endpoint().clone(), Leadership::elected());
    let _task = tokio::spawn(controller.run());
    observations.send(WatchEvent::Cluster(Some("other".into()))).unwrap();
    let blocked = progress.wait_for(|progress| is_blocked(progress, "written for the cluster own"));
    timeout(SOON, blocked).await.unwrap().unwrap();
    own.observe(WatchEvent::Nodes(Seen::All(vec![])));
    own.observe(WatchEvent::Cluster(Some("own".into())));
    own.observe(WatchEvent::Nodes(Seen::All(vec![])));
    own.reaches("work", |progress| !progress.converged).await;
    own.reaches("convergence", |progress| progress.converged).await;
    assert_eq!(own.switches().await, ["join"]);
    // The kubeconfig is corrected: it is the same cluster after all.
    observations.send(WatchEvent::Cluster(Some("own".into()))).unwrap();
    assert_eq!(timeout(SOON, own.task).await.unwrap().unwrap(), Stopped::LockTaken);
}

/// A database of which nobody has recorded whose it is, written by upstream's programs for example:
/// a second list of the API server confirmed the first, and everything in it was removed after ten
/// seconds.
#[tokio::test]
async fn rows_of_which_the_api_server_knows_none_stay_until_somebody_says_whose_they_are() {
    let other = Run::start_in(Leadership::always(), None, Some("other")).await;
    let pods = ["a", "b"].map(|name| {
        let pod = Pod { node: Some("n1".into()), ..Pod::with_uid(name) };
        (PodKey::new("default", name).unwrap(), pod)
    });
    other.observe(WatchEvent::Pods(Seen::All(pods.into())));
    let ports = async || {
        let ports = other.rows("Logical_Switch_Port").await;
        ports.into_iter().filter(|(name, _)| name.starts_with("default_")).count()
    };
    let deadline = Instant::now() + SOON;
    while ports().await < 2 {
        assert!(Instant::now() < deadline, "{:?}", other.progress.borrow());
    }
    other.task.abort();
    write_cluster(&other, None).await;

    let (controller, observations, _annotations, mut progress) =
        controller(other.connection.endpoint().clone(), Leadership::always());
    let _task = tokio::spawn(controller.run());
    let deadline = Instant::now() + SOON;
    while !is_blocked(&progress.borrow(), "1 nodes and 2 ports of pods") {
        assert!(Instant::now() < deadline, "{:?}", progress.borrow());
        // A node of the same name, and no pod; however often it is said.
        observations.send(WatchEvent::Cluster(Some("own".into()))).unwrap();
        observations.send(WatchEvent::Services(Seen::All(vec![]))).unwrap();
        observations.send(WatchEvent::Slices(Seen::All(vec![]))).unwrap();
        observations.send(namespaces()).unwrap();
        observations.send(WatchEvent::Policies(Seen::All(Vec::new()))).unwrap();
        for list in WatchEvent::no_optional_kinds() {
            observations.send(list).unwrap();
        }
        observations.send(WatchEvent::Nodes(Seen::All(vec![node("n1")]))).unwrap();
        observations.send(WatchEvent::Pods(Seen::All(vec![]))).unwrap();
        assert_eq!(ports().await, 2);
    }
    assert!(is_blocked(&progress.borrow(), "external_ids:k8s-cluster-uid=own"));
    write_cluster(&other, Some("own")).await;
    let unblocked = progress.wait_for(|progress| progress.converged && progress.blocked.is_none());
    timeout(SOON, unblocked).await.unwrap().unwrap();
    assert_eq!(ports().await, 0);
}

/// The successor has read the database long before, and must still see what the former leader wrote
/// last.
#[tokio::test]
async fn a_pod_keeps_the_address_of_its_port_when_the_leader_before_did_not_come_to_write_its_annotation()
 {
    let mut first = Run::start(Leadership::always(), None).await;
    first.reaches("convergence", |progress| progress.converged).await;
    let (leadership, win) = Leadership::waiting();
    let (second, observations, mut annotations, mut progress) =
        controller(first.connection.endpoint().clone(), leadership);
    let _task = tokio::spawn(second.run());
    timeout(SOON, progress.wait_for(|progress| progress.loaded)).await.unwrap().unwrap();

    let [gone, stays] = ["gone", "stays"].map(|name| {
        let pod = Pod { node: Some("n1".into()), ..Pod::with_uid(name) };
        (PodKey::new("default", name).unwrap(), pod)
    });
    first.observe(WatchEvent::Pods(Seen::All(vec![gone, stays.clone()])));
    let mut given = None;
    while given.as_ref().is_none_or(|given: &PodAnnotation| given.pod != stays.0) {
        given = timeout(SOON, first.annotations.recv()).await.unwrap();
    }
    first.reaches("convergence", |progress| progress.converged).await;
    first.task.abort();

    win();
    observations.send(WatchEvent::Services(Seen::All(Vec::new()))).unwrap();
    observations.send(WatchEvent::Slices(Seen::All(Vec::new()))).unwrap();
    observations.send(namespaces()).unwrap();
    observations.send(WatchEvent::Policies(Seen::All(Vec::new()))).unwrap();
    for list in WatchEvent::no_optional_kinds() {
        observations.send(list).unwrap();
    }
    observations.send(WatchEvent::Nodes(Seen::All(vec![node("n1")]))).unwrap();
    observations.send(WatchEvent::Pods(Seen::All(vec![stays]))).unwrap();
    assert_eq!(timeout(SOON, annotations.recv()).await.unwrap(), given);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mark_of_a_new_database_goes_with_the_last_row_and_not_before() {
    let mut run = Run::connect(Leadership::always(), Some("global")).await;
    let mark = BTreeMap::from([("filling".to_owned(), "true".to_owned())]);
    let mut transaction = Transaction::new();
    let set = ovsdb::Mutation::insert("external_ids", mark);
    transaction.mutate("NB_Global", Where::all(), vec![set]);
    run.connection.transact(transaction).await.unwrap();
    run.observe(WatchEvent::Services(Seen::All(Vec::new())));
    run.observe(WatchEvent::Slices(Seen::All(Vec::new())));
    run.observe(namespaces());
    run.observe(WatchEvent::Policies(Seen::All(Vec::new())));
    WatchEvent::no_optional_kinds().into_iter().for_each(|list| run.observe(list));
    run.observe(WatchEvent::Nodes(Seen::All(vec![node("n1")])));
    tokio::time::sleep(HELD).await;
    assert!(run.is_marked().await, "pods are not known yet");
    run.observe(WatchEvent::Pods(Seen::All(Vec::<(PodKey, Pod)>::new())));
    run.reaches("all rows", |progress| progress.converged).await;
    timeout(SOON, async {
        while run.is_marked().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the mark goes");
    assert!(run.switches().await.contains(&"n1".to_owned()));
}
