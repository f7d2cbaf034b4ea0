//! The cluster manager against a scripted API server, on a paused clock.

use std::time::Duration;

use kubeapi::{
    election::{Durations, ElectionConfig, LeaderElector, OwnLease},
    events::Reporter,
    metrics::Metrics as ApiMetrics,
};
use prometheus::Registry;
use serde_json::{Value, json};
use testkit::{
    ScriptedApi,
    scripted_api::{Asked, WatchStream},
};
use tokio::time::Instant;

use crate::{
    cluster_watch::{ClusterWatch, Subscriber},
    config::{ClusterConfig, ClusterSubnet},
    node_assignments::NodeRules,
    scripted,
};

use super::*;

/// The role with room for two nodes, and the watch that the test feeds.
struct Played {
    api: ScriptedApi,
    events: WatchStream,
    registry: Registry,
    role: ClusterManager,
    _watch: ClusterWatch,
}

/// Answers the request for the cluster's identity; without a uid it is forbidden.
async fn identified(api: &mut ScriptedApi, uid: Option<&str>) {
    identify(api.asked().await, uid).await;
}

async fn identify(asked: Asked, uid: Option<&str>) {
    assert_eq!(asked.path.trim_end_matches('?'), "/api/v1/namespaces/kube-system");
    match uid {
        Some(uid) => {
            let metadata = json!({"name": "kube-system", "uid": uid});
            asked.json(&json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})).await;
        }
        None => asked.status(403, "namespaces \"kube-system\" is forbidden").await,
    }
}

impl Played {
    async fn start() -> Self {
        let (mut api, server) = scripted::start().await;
        let (registry, role, watch) = start(server, Leadership::always());
        identified(&mut api, Some("own")).await;
        let events = api.asked().await.begin().await;
        Self { api, events, registry, role, _watch: watch }
    }

    async fn list(&mut self, nodes: &[Value]) {
        for node in nodes {
            self.events.send("ADDED", node).await;
        }
        list_ends(&mut self.events).await;
    }

    /// Accepts the next patch of a node: its name and its new annotations.
    async fn patched(&mut self) -> (String, Value) {
        let mut asked = self.api.asked().await;
        // The paused clock advances while a request is on its way, so a second look may come first.
        while asked.method != "PATCH" && !asked.is_watch() {
            if asked.path.starts_with("/api/v1/pods?") {
                pods(asked, &[]).await;
            } else if !asked.path.contains("/leases") {
                identify(asked, Some("own")).await;
            } else if asked.method == "GET" {
                asked.status(404, "no lease").await;
            } else {
                let lease: Value = serde_json::from_slice(&asked.body).unwrap();
                asked.json(&lease).await;
            }
            asked = self.api.asked().await;
        }
        assert_eq!(asked.method, "PATCH", "{}", asked.path);
        let node = asked
            .path
            .strip_prefix("/api/v1/nodes/")
            .unwrap()
            .strip_suffix("/status?")
            .unwrap()
            .to_owned();
        let body: Value = serde_json::from_slice(&asked.body).unwrap();
        assert_eq!(body["metadata"]["uid"], format!("uid-{node}"));
        asked.json(&json!({})).await;
        (node, body["metadata"]["annotations"].clone())
    }

    fn lacking(&self) -> f64 {
        let families = self.registry.gather();
        let lacking = families
            .iter()
            .filter(|family| family.name() == "ovnkube_clustermanager_nodes_lacking");
        lacking
            .flat_map(|family| family.get_metric())
            .map(|metric| metric.get_gauge().get_value())
            .sum()
    }
}

async fn list_ends(events: &mut WatchStream) {
    let metadata =
        json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
    events
        .send("BOOKMARK", &json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata}))
        .await;
}

/// Answers a question for pods.
async fn pods(asked: Asked, pods: &[Value]) {
    assert!(asked.path.starts_with("/api/v1/pods?"), "{}", asked.path);
    asked.json(&json!({"metadata": {"resourceVersion": "1"}, "items": pods})).await;
}

/// A pod on the node, with this address in its annotation and in its status.
fn pod(name: &str, node: &str, address: &str, reported: &[&str]) -> Value {
    let network =
        json!({"default": {"ip_addresses": [address], "mac_address": "0a:58:0a:f4:01:05"}});
    let annotations = json!({"k8s.ovn.org/pod-networks": network.to_string()});
    let reported: Vec<_> = reported.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": node, "containers": []}, "status": {"podIPs": reported}})
}

fn start(server: Connection, leadership: Leadership) -> (Registry, ClusterManager, ClusterWatch) {
    start_for(server, leadership, None, None)
}

/// `own`: the cluster that the northbound database was written for.
fn start_for(
    server: Connection,
    leadership: Leadership,
    own: ClusterId,
    own_namespace: Option<String>,
) -> (Registry, ClusterManager, ClusterWatch) {
    let registry = Registry::new();
    let recorder = Recorder::start(
        server.clone(),
        Reporter { controller: "ovn-kubernetes/test", instance: "m".to_owned() },
    );
    let (annotation_metrics, metrics) = (
        annotate::AnnotationMetrics::register(&registry).unwrap(),
        ClusterManagerMetrics::register(&registry).unwrap(),
    );
    let api_metrics = ApiMetrics::register(&registry, "test").unwrap();
    let assignments = NodeAssignments::new(config(), NodeRules::default());
    let (observed, observations) = unbounded_channel();
    let (api, leading) = (server.clone(), leadership.clone());
    let told = ClusterManagerInputs {
        api,
        leadership: leading,
        recorder,
        namespace: own_namespace,
        observations,
    };
    let role = ClusterManager::start(
        told,
        assignments,
        std::future::ready(own),
        annotation_metrics,
        metrics,
    );
    let party = Subscriber {
        observations: observed,
        wants: ClusterManager::KINDS,
        doubted: role.doubted(),
    };
    let watch = ClusterWatch::start(&server, &leadership, &api_metrics, &config(), &[party]);
    (registry, role, watch)
}

fn config() -> ClusterConfig {
    ClusterConfig {
        cluster_subnets: vec![ClusterSubnet {
            cidr: "10.244.0.0/23".parse().unwrap(),
            host_length: 24,
        }],
        service_cidrs: Vec::new(),
        transit_subnets: Vec::new(),
        hairpin_addresses: Vec::new(),
        ..ClusterConfig::default()
    }
}

fn node(name: &str, annotations: &Value) -> Value {
    json!({"kind": "Node", "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "3", "annotations": annotations}})
}

fn subnets(annotations: &Value) -> String {
    annotations["k8s.ovn.org/node-subnets"].as_str().unwrap_or_default().to_owned()
}

async fn event(asked: Asked) -> Value {
    assert_eq!(
        (asked.method.as_str(), asked.path.as_str()),
        ("POST", "/apis/events.k8s.io/v1/namespaces/default/events?")
    );
    let event: Value = serde_json::from_slice(&asked.body).unwrap();
    asked.json(&event).await;
    event
}

#[tokio::test(start_paused = true)]
async fn nodes_get_what_no_other_has_and_the_one_too_many_is_told_and_served_when_another_goes() {
    let mut played = Played::start().await;
    let first = json!({"k8s.ovn.org/node-subnets": "{\"default\":[\"10.244.0.0/24\"]}", "k8s.ovn.org/node-id": "2"});
    played.list(&[node("b", &json!({})), node("a", &first)]).await;
    let mut given = [played.patched().await, played.patched().await];
    given.sort_by(|one, other| one.0.cmp(&other.0));
    let [(a, of_a), (b, of_b)] = given;
    assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
    assert!(
        subnets(&of_b).contains("10.244.1.0/24") && of_b["k8s.ovn.org/node-id"] == "3",
        "{of_b}"
    );
    assert!(subnets(&of_a).is_empty(), "what it has is not written again: {of_a}");

    played.events.send("MODIFIED", &node("b", &of_b)).await;
    played.events.send("ADDED", &node("c", &json!({}))).await;
    let (mut told, mut written) = (None, None);
    while told.is_none() || written.is_none() {
        let asked = played.api.asked().await;
        if asked.method == "POST" {
            told = Some(event(asked).await);
        } else {
            written = Some(
                serde_json::from_slice::<Value>(&asked.body).unwrap()["metadata"]["annotations"]
                    .clone(),
            );
            asked.json(&json!({})).await;
        }
    }
    let told = told.unwrap();
    assert_eq!(
        (told["reason"].as_str(), told["regarding"]["name"].as_str()),
        (Some("NoFreeSubnet"), Some("c"))
    );
    assert!(told["note"].as_str().unwrap().contains("--cluster-subnets"), "{told}");
    assert!(subnets(&written.unwrap()).is_empty());
    assert!(played.lacking() > 0.0);

    played.events.send("DELETED", &node("b", &of_b)).await;
    let (node, given) = played.patched().await;
    assert!(node == "c" && subnets(&given).contains("10.244.1.0/24"), "{node} {given}");
    assert!(played.lacking() < 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_its_annotation_at_the_start_gets_the_subnet_that_most_of_its_pods_are_in() {
    let mut played = Played::start().await;
    let has_id = json!({"k8s.ovn.org/node-id": "2"});
    played.list(&[node("a", &has_id), node("new", &json!({}))]).await;
    let asked = played.api.asked().await;
    assert!(asked.path.starts_with("/api/v1/pods?"), "{}", asked.path);
    assert!(
        asked.path.contains("spec.nodeName%21%3D") && !asked.path.contains("nodeName%21%3Da"),
        "{}",
        asked.path
    );
    asked.status(503, "the API server has just started").await;
    let all = [
        // Its creator has chosen annotation and node. It has no such address.
        pod("preset1", "a", "10.244.0.9/24", &[]),
        pod("preset2", "a", "10.244.0.10/24", &["10.244.1.9"]),
        pod("preset3", "a", "10.244.0.11/24", &[]),
        pod("p1", "a", "10.244.1.5/24", &["10.244.1.5"]),
        json!({"metadata": {"name": "of-the-host"}}),
        json!({"metadata": {"name": "garbled", "annotations": {"k8s.ovn.org/pod-networks": "{"}}}),
    ];
    pods(played.api.asked().await, &all).await;
    let mut given = [played.patched().await, played.patched().await];
    given.sort_by(|one, other| one.0.cmp(&other.0));
    let [(_, of_a), (_, of_new)] = given;
    assert!(subnets(&of_a).contains("10.244.1.0/24"), "{of_a}");
    assert!(subnets(&of_new).contains("10.244.0.0/24"), "{of_new}");
}

/// It went while no cluster manager ran, or the leader that saw it go has ended.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_keeps_its_subnet_over_a_restart() {
    let first = json!({"k8s.ovn.org/node-subnets": "{\"default\":[\"10.244.0.0/24\"]}", "k8s.ovn.org/node-id": "2"});
    let of_lease = "/apis/coordination.k8s.io/v1/namespaces/ovn/leases";
    let mut record = None;
    for round in 0..2 {
        let (mut api, server) = scripted::start().await;
        let (registry, role, watch) =
            start_for(server, Leadership::always(), None, Some("ovn".to_owned()));
        let (mut events, mut has_record) = (None, false);
        while events.is_none() || !has_record {
            let asked = api.asked().await;
            if asked.path.starts_with(of_lease) {
                has_record = true;
                match &record {
                    Some(lease) => asked.json(lease).await,
                    None => asked.status(404, "no lease").await,
                }
            } else if asked.is_watch() {
                events = Some(asked.begin().await);
            } else {
                identify(asked, Some("own")).await;
            }
        }
        let mut played = Played { api, events: events.unwrap(), registry, role, _watch: watch };
        if round == 0 {
            played.list(&[node("a", &first)]).await;
            played.patched().await;
            played.events.send("DELETED", &node("a", &first)).await;
            let asked = played.api.asked().await;
            assert!(asked.method == "GET" && asked.path.starts_with(of_lease), "{}", asked.path);
            asked.status(404, "no lease").await;
            let created = played.api.asked().await;
            assert_eq!(
                (created.method.as_str(), created.path.as_str()),
                ("POST", &*format!("{of_lease}?"))
            );
            let lease: Value = serde_json::from_slice(&created.body).unwrap();
            created.json(&lease).await;
            record = Some(lease);
        } else {
            played.list(&[node("b", &json!({}))]).await;
            let (_, of_b) = played.patched().await;
            assert!(
                subnets(&of_b).contains("10.244.1.0/24"),
                "the other one is kept for a: {of_b}"
            );
            played.events.send("MODIFIED", &node("b", &of_b)).await;
            played.events.send("ADDED", &node("a", &json!({}))).await;
            let (name, of_a) = played.patched().await;
            assert!(name == "a" && subnets(&of_a).contains("10.244.0.0/24"), "{name} {of_a}");
        }
    }
}

/// It matters to nodes that come back, and no other node may wait for it for long.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_not_there_or_cannot_be_read_holds_up_nodes_for_a_minute_at_most() {
    for status in [Some(404), Some(403), Some(500), None] {
        let (mut api, server) = scripted::start().await;
        let begun = Instant::now();
        let _running = start_for(server, Leadership::always(), None, Some("ovn".to_owned()));
        let (mut streams, mut unanswered) = (Vec::new(), Vec::new());
        loop {
            let asked = api.asked().await;
            if asked.path.starts_with("/apis/coordination.k8s.io/v1/namespaces/ovn/leases/") {
                match status {
                    Some(code) => asked.status(code, "no record").await,
                    None => unanswered.push(asked),
                }
            } else if asked.is_watch() {
                let mut stream = asked.begin().await;
                stream.send("ADDED", &node("a", &json!({}))).await;
                list_ends(&mut stream).await;
                streams.push(stream);
            } else if asked.method == "PATCH" {
                break;
            } else if asked.path.starts_with("/api/v1/pods?") {
                pods(asked, &[]).await;
            } else {
                identify(asked, Some("own")).await;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{status:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_reads_and_writes_nothing() {
    let (mut lease, of_lease) = scripted::start().await;
    let (mut api, server) = scripted::start().await;
    let candidate = ElectionConfig {
        identity: "m".to_owned(),
        namespace: "ovn".to_owned(),
        lease: "l".to_owned(),
        durations: Durations::default(),
        own_lease: OwnLease::Wait,
    };
    let (leadership, _campaign) = LeaderElector::start(
        of_lease,
        candidate.into(),
        ApiMetrics::register(&Registry::new(), "test").unwrap(),
    );
    let _role = start(server, leadership);
    api.nothing_within(Duration::from_secs(5)).await;
    lease.asked().await.status(404, "no lease").await;
    let created = lease.asked().await;
    let body: Value = serde_json::from_slice(&created.body).unwrap();
    created.json(&body).await;
    // It reads nothing before it leads.
    identified(&mut api, Some("own")).await;
    let read = api.asked().await;
    assert!(read.is_watch() && read.path.starts_with("/api/v1/nodes?"), "{}", read.path);
}

/// With the kubeconfig of another cluster, or an API server without its data, nodes were forgotten
/// and their subnets given to others; the other cluster's nodes got some, too.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_suddenly_gone_keep_their_subnets_and_another_clusters_get_none() {
    let mut played = Played::start().await;
    played.list(&[node("a", &json!({})), node("b", &json!({}))]).await;
    let mut given = [played.patched().await, played.patched().await];
    given.sort_by(|one, other| one.0.cmp(&other.0));
    let [(_, of_a), (_, of_b)] = given;
    let mut doubted = played.role.doubted();
    played.events.send("MODIFIED", &node("a", &of_a)).await;
    played.events.send("MODIFIED", &node("b", &of_b)).await;

    played
        .events
        .send("ERROR", &json!({"kind": "Status", "code": 410, "message": "too old"}))
        .await;
    played.events = played.api.asked().await.begin().await;
    let begun = Instant::now();
    played.list(&[]).await;
    assert_eq!(doubted.wait_for(Option::is_some).await.unwrap().as_ref().unwrap().nodes, 2);
    // The second look finds another cluster: its lists are not believed, however often they are
    // repeated.
    for _ in 0..3 {
        identified(&mut played.api, Some("another")).await;
        played.events = played.api.asked().await.begin().await;
        played.list(&[node("c", &json!({}))]).await;
        played.events.send("ADDED", &node("d", &json!({}))).await;
        doubted
            .wait_for(|doubted| {
                doubted.as_ref().is_some_and(|doubted| doubted.other_cluster.is_some())
            })
            .await
            .unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_secs(30), "{:?}", begun.elapsed());
    // The right cluster again, in which one node has lost its annotations and one is gone.
    identified(&mut played.api, Some("own")).await;
    played.events = played.api.asked().await.begin().await;
    played.list(&[node("b", &json!({}))]).await;
    let (name, again) = played.patched().await;
    assert_eq!((name.as_str(), subnets(&again)), ("b", subnets(&of_b)));
    assert_eq!(*doubted.wait_for(Option::is_none).await.unwrap(), None);
    assert_ne!(subnets(&of_a), subnets(&of_b));
}

/// Started with the kubeconfig of another cluster, the role took that cluster for its own, and did
/// nothing in the right one.
#[tokio::test(start_paused = true)]
async fn the_right_cluster_is_served_once_it_answers_though_another_was_asked_first() {
    let (mut api, server) = scripted::start().await;
    let (registry, role, watch) = start_for(server, Leadership::always(), Some("own".into()), None);
    identified(&mut api, Some("another")).await;
    let events = api.asked().await.begin().await;
    let mut played = Played { api, events, registry, role, _watch: watch };
    played.list(&[node("foreign", &json!({}))]).await;
    identified(&mut played.api, Some("own")).await;
    played.events = played.api.asked().await.begin().await;
    played.list(&[node("a", &json!({}))]).await;
    let (name, given) = played.patched().await;
    assert!(name == "a" && subnets(&given).contains("10.244.0.0/24"), "{name} {given}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_may_not_be_asked_for_its_identity_is_believed_when_it_says_the_same_twice()
{
    let (mut api, server) = scripted::start().await;
    let (registry, role, watch) = start(server, Leadership::always());
    identified(&mut api, None).await;
    let events = api.asked().await.begin().await;
    let mut played = Played { api, events, registry, role, _watch: watch };
    played.list(&[node("a", &json!({}))]).await;
    let (_, of_a) = played.patched().await;
    played
        .events
        .send("ERROR", &json!({"kind": "Status", "code": 410, "message": "too old"}))
        .await;
    played.events = played.api.asked().await.begin().await;
    played.list(&[node("new", &json!({}))]).await;
    identified(&mut played.api, None).await;
    played.events = played.api.asked().await.begin().await;
    played.list(&[node("new", &json!({}))]).await;
    let (name, of_new) = played.patched().await;
    assert!(
        name == "new" && !subnets(&of_new).is_empty() && subnets(&of_new) != subnets(&of_a),
        "what was freed comes last: {of_new}"
    );
}
