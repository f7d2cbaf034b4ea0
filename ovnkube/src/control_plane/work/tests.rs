//! Both roles with a real northbound database and a scripted API server.

use std::time::Duration;

use kubeapi::{ApiServer, Cluster as Place};
use ovsdb::{Datum, Endpoint, Row, Transaction};
use prometheus::Registry;
use serde_json::{Value, json};
use server::conditions::Part;
use testkit::{Database as Server, Scratch, scripted_api::ScriptedApi};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use super::*;
use crate::{
    options::{Options, Program},
    roles::CLUSTER,
};

const SOON: Duration = Duration::from_secs(20);

/// An API server with one node and no pod.
struct Cluster {
    connection: Connection,
    /// Watches of nodes that were begun, and patches: the object and its annotations.
    watches: UnboundedReceiver<String>,
    patches: UnboundedReceiver<(String, Value)>,
}

impl Cluster {
    /// `uid`: the UID of its namespace `kube-system`.
    async fn start(uid: &'static str) -> Self {
        let mut api = ScriptedApi::start().await;
        let connection = Connection::open(ApiServer {
            cluster: Place::Url { url: api.url.clone(), authority: None },
            credential: None,
        });
        let (watched, watches) = unbounded_channel();
        let (patched, patches) = unbounded_channel();
        tokio::spawn(async move {
            let mut streams = Vec::new();
            loop {
                let asked = api.asked().await;
                let path = asked.path.split('?').next().unwrap().to_owned();
                if asked.is_watch() {
                    let (kind, nodes) = if path.ends_with("/nodes") {
                        ("Node", vec![node()])
                    } else {
                        ("Pod", Vec::new())
                    };
                    watched.send(path).unwrap();
                    let mut stream = asked.begin().await;
                    for node in nodes {
                        stream.send("ADDED", &node).await;
                    }
                    let metadata = json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
                    stream
                        .send(
                            "BOOKMARK",
                            &json!({"kind": kind, "apiVersion": "v1", "metadata": metadata}),
                        )
                        .await;
                    streams.push(stream);
                } else if asked.method == "PATCH" {
                    let body: Value = serde_json::from_slice(&asked.body).unwrap();
                    patched.send((path, body["metadata"]["annotations"].clone())).unwrap();
                    asked.json(&json!({})).await;
                } else if path == "/api/v1/namespaces/kube-system" {
                    let metadata = json!({"name": "kube-system", "uid": uid});
                    asked.json(&json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})).await;
                } else if let Some(version) = path.strip_prefix("/apis/policy.networking.k8s.io/") {
                    let names: &[&str] = match version {
                        "v1alpha2" => &["clusternetworkpolicies"],
                        _ => &["adminnetworkpolicies", "baselineadminnetworkpolicies"],
                    };
                    let resources: Vec<_> =
                        names.iter().map(|name| json!({"name": name})).collect();
                    asked.json(&json!({"resources": resources})).await;
                } else if path == "/apis/policy.networking.k8s.io" {
                    asked
                        .json(&json!({"versions": [{"version": "v1alpha1"}, {"version": "v1alpha2"}]}))
                        .await;
                } else if path == "/apis/k8s.ovn.org" {
                    asked.json(&json!({"versions": [{"version": "v1"}]})).await;
                } else if path == "/apis/k8s.ovn.org/v1" {
                    asked.json(&json!({"resources": [{"name": "egressfirewalls"}]})).await;
                } else if path == "/api/v1/pods" {
                    let metadata = json!({"resourceVersion": "1"});
                    asked.json(&json!({"metadata": metadata, "items": []})).await;
                } else {
                    asked.json(&json!({})).await;
                }
            }
        });
        Self { connection, watches, patches }
    }
}

fn node() -> Value {
    json!({"kind": "Node", "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "3", "annotations": {}}})
}

/// Both roles without an election.
struct Both {
    _work: Work,
    conditions: Conditions,
    registry: Registry,
    _server: Server,
    _scratch: Scratch,
}

impl Both {
    /// `database_of`: the cluster that the database was written for.
    async fn start(cluster: &Cluster, database_of: Option<&str>) -> Self {
        let scratch = Scratch::new();
        let server = Server::of_schema(scratch.path(), "nb", "/usr/share/ovn/ovn-nb.ovsschema");
        let socket = scratch.join("nb.sock");
        if let Some(uid) = database_of {
            let endpoint = Endpoint::Unix(socket.clone());
            let connection =
                ovsdb::Connection::open(&endpoint, "OVN_Northbound", ovsdb::Options::default())
                    .await
                    .unwrap();
            let mut transaction = Transaction::new();
            let router = Row::new()
                .with("name", "ovn_cluster_router")
                .with("external_ids", Datum::map([("k8s-cluster-uid", uid)]));
            transaction.insert("Logical_Router", router);
            connection.transact(transaction).await.unwrap();
        }
        let line = format!(
            "--init-master m --nb-address unix:{} --k8s-apiserver {}",
            socket.display(),
            cluster.connection.url()
        );
        let Ok(Program::ControlPlane(config, _)) = line.parse::<Options>().unwrap().program()
        else {
            panic!("{line}")
        };
        let config = ControlPlaneConfig { election: None, ..*config };
        let conditions = Conditions::of(config.needs());
        let registry = Registry::new();
        let metrics = Arc::new(ControlPlaneMetrics::register(config.roles, &registry).unwrap());
        let work = Work::start(&config, &cluster.connection, &conditions, &metrics);
        Self { _work: work, conditions, registry, _server: server, _scratch: scratch }
    }

    /// The metric on which an alert looks.
    fn leads(&self) -> f64 {
        let families = self.registry.gather();
        let leader = families.iter().find(|family| family.name() == "ovnkube_controller_leader");
        leader.unwrap().get_metric()[0].get_gauge().get_value()
    }

    async fn lacks(&self, part: Part, what: &str) {
        let mut missing = self.conditions.watch();
        let says =
            missing.wait_for(|missing| missing.get(&part).is_some_and(|why| why.contains(what)));
        let found = timeout(SOON, says).await.map(drop);
        assert!(
            found.is_ok(),
            "{what:?} was waited for; missing: {:?}",
            self.conditions.all_missing()
        );
    }
}

/// The controller knew from its database that the API server was another cluster's. By then the
/// cluster manager in the same process had given that cluster's nodes subnets.
#[tokio::test]
async fn nodes_of_another_cluster_than_the_databases_get_no_annotation() {
    let mut cluster = Cluster::start("another").await;
    let both = Both::start(&cluster, Some("own")).await;
    both.lacks(CLUSTER, "another cluster").await;
    let patched = timeout(Duration::from_secs(2), cluster.patches.recv()).await;
    assert!(patched.is_err(), "{patched:?}");
}

#[tokio::test]
async fn nodes_of_the_databases_cluster_and_of_a_new_database_get_theirs() {
    for database_of in [Some("own"), None] {
        let mut cluster = Cluster::start("own").await;
        let both = Both::start(&cluster, database_of).await;
        let (node, annotations) =
            timeout(SOON, cluster.patches.recv()).await.expect("it is annotated").unwrap();
        assert_eq!(both.leads(), 1.0, "without an election, the process leads");
        assert!(
            node == "/api/v1/nodes/n1/status"
                && annotations["k8s.ovn.org/node-subnets"].is_string(),
            "{node} {annotations}"
        );
    }
}

/// Each role had a watch of its own, and so all nodes were in memory twice.
#[tokio::test]
async fn both_roles_share_one_watch_of_nodes() {
    let mut cluster = Cluster::start("own").await;
    let _both = Both::start(&cluster, None).await;
    timeout(SOON, cluster.patches.recv()).await.expect("the node is annotated").unwrap();
    let mut watches = Vec::new();
    while let Ok(watch) = timeout(Duration::from_secs(1), cluster.watches.recv()).await {
        watches.extend(watch);
    }
    watches.sort();
    let expected = [
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/services",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/apis/k8s.ovn.org/v1/egressfirewalls",
        "/apis/networking.k8s.io/v1/networkpolicies",
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies",
        "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies",
        "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies",
    ];
    assert_eq!(watches, expected);
}

#[test]
fn the_connections_to_the_databases_take_the_copy_of_a_whole_cluster() {
    let endpoints = "tcp:192.0.2.1:6641".parse().unwrap();
    let options = Database { endpoints, ssl: None, probe: None }.options();
    let large = ovsdb::Options::large();
    assert_eq!((options.frame, options.backlog), (large.frame, large.backlog));
}

/// A leader on a machine without a database kept the Lease for ever, and all others stood by.
#[tokio::test(start_paused = true)]
async fn a_leader_resigns_when_it_has_had_no_database_for_three_minutes_and_not_before() {
    let (progress, progressed) = watch::channel(Progress { loaded: true, ..Progress::default() });
    let resigned = tokio::spawn(without_database(Leadership::elected(), progressed));
    let loaded = |is| drop(progress.send_replace(Progress { loaded: is, ..Progress::default() }));
    loaded(false);
    sleep(WITHOUT_DATABASE - Duration::from_secs(1)).await;
    loaded(true);
    sleep(Duration::from_secs(2)).await;
    assert!(!resigned.is_finished(), "it was back in time");
    loaded(false);
    let begun = tokio::time::Instant::now();
    resigned.await.unwrap();
    assert!(
        (WITHOUT_DATABASE..WITHOUT_DATABASE + Duration::from_secs(1)).contains(&begun.elapsed())
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_is_ready_to_lead_once_it_has_a_copy_of_the_database() {
    let (progress, progressed) = watch::channel(Progress::default());
    let ready = with_copy(progressed);
    sleep(Duration::from_secs(3600)).await;
    assert!(!ready.is_leader() && ready.waits_for().unwrap().contains("database"));
    progress.send_replace(Progress { loaded: true, ..Progress::default() });
    ready.won().await;
    // Later it is for the leader to resign.
    progress.send_replace(Progress::default());
    sleep(Duration::from_secs(1)).await;
    assert!(ready.is_leader());
}
