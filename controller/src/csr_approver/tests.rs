use serde_json::{Value, json};
use testkit::scripted_api::{Asked, ScriptedApi as Scripted};

use crate::{
    csr_approver::{
        CsrApprover, PACE,
        request::tests::{object, of_node},
    },
    scripted,
};

use super::*;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// An approver that leads, its API server, and the events that it reports.
struct Running {
    api: Scripted,
    events: tokio::sync::mpsc::Receiver<Event>,
    _leads: Leadership,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn start(leadership: Leadership) -> Running {
    let (api, connection) = scripted::start().await;
    let (recorder, events) = Recorder::fake(16);
    let approver = CsrApprover {
        api: connection,
        leadership: leadership.clone(),
        recorder,
        metrics: Metrics::register(&prometheus::Registry::new(), "t").unwrap(),
        bootstrap_users: BTreeSet::new(),
    };
    Running { api, events, _leads: leadership, task: tokio::spawn(approver.run()) }
}

/// The first events of a streaming list, and the watch that goes on.
async fn listed(api: &mut Scripted, objects: &[Value]) -> testkit::scripted_api::WatchStream {
    let asked = api.asked().await;
    assert!(asked.path.starts_with(REQUESTS) && asked.is_watch(), "{}", asked.path);
    let mut watch = asked.begin().await;
    for object in objects {
        watch.send("ADDED", object).await;
    }
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": "9", "annotations": annotations});
    watch.send("BOOKMARK", &json!({"kind": "K", "apiVersion": "v1", "metadata": metadata})).await;
    watch
}

/// Answers whether the node exists.
async fn node(api: &mut Scripted, name: &str, exists: Result<(), u16>) {
    let asked = api.asked().await;
    assert_eq!(asked.path.split('?').next(), Some(&*format!("/api/v1/nodes/{name}")));
    match exists {
        Ok(()) => {
            let metadata = json!({"name": name});
            asked
                .json(&json!({"kind": "PartialObjectMetadata", "apiVersion": "v1", "metadata": metadata}))
                .await;
        }
        Err(code) => asked.status(code, "nodes not found").await,
    }
}

/// The condition that is written about request `name`.
fn decided(asked: &Asked, name: &str) -> Value {
    assert_eq!(asked.method, "PATCH");
    assert_eq!(asked.path.split('?').next(), Some(&*format!("{REQUESTS}/{name}/approval")));
    let patch: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(patch["metadata"], json!({"uid": format!("uid-{name}"), "resourceVersion": "7"}));
    let [condition] = &patch["status"]["conditions"].as_array().unwrap()[..] else {
        panic!("{patch}")
    };
    condition.clone()
}

#[tokio::test(start_paused = true)]
async fn the_leader_approves_what_fits_and_denies_the_rest_with_a_reason() {
    let mut running = start(Leadership::always()).await;
    let mut for_another = object("csr-2", &of_node("n2"));
    for_another["spec"]["username"] = json!("system:node:n1");
    let foreign = object("csr-3", "not even PEM");
    let mut watch =
        listed(&mut running.api, &[object("csr-1", &of_node("n1")), for_another, foreign]).await;
    node(&mut running.api, "n1", Ok(())).await;
    let asked = running.api.asked().await;
    let condition = decided(&asked, "csr-1");
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Approved"), &json!("True")));
    asked.json(&json!({})).await;

    let asked = running.api.asked().await;
    let condition = decided(&asked, "csr-2");
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Denied"), &json!("CSRDenied")));
    let why = condition["message"].as_str().unwrap();
    assert!(
        why.starts_with("user \"system:node:n1\" may not request the certificate of node \"n2\""),
        "{why}"
    );
    asked.json(&json!({})).await;

    // What others have decided is left alone, and so is the foreign one.
    let mut by_hand = object("csr-4", &of_node("n1"));
    by_hand["status"] = json!({"conditions": [{"type": "Denied", "status": "True"}]});
    watch.send("MODIFIED", &by_hand).await;
    running.api.nothing_within(Duration::from_secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_node_that_does_not_exist_waits_for_the_node() {
    let mut running = start(Leadership::always()).await;
    let mut watch = listed(&mut running.api, &[object("csr-1", &of_node("n1"))]).await;
    for answer in [Err(404), Err(500), Err(404)] {
        node(&mut running.api, "n1", answer).await;
    }
    node(&mut running.api, "n1", Ok(())).await;
    let asked = running.api.asked().await;
    assert_eq!(decided(&asked, "csr-1")["type"], "Approved");
    // Refused for the moment: tried again, with a new look at the node.
    asked.status(503, "etcd is away").await;
    node(&mut running.api, "n1", Err(404)).await;
    watch.send("DELETED", &object("csr-1", &of_node("n1"))).await;
    running.api.nothing_within(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_decides_nothing_and_one_that_led_stops() {
    let (leadership, win) = Leadership::waiting();
    let mut running = start(leadership.clone()).await;
    running.api.nothing_within(Duration::from_secs(60)).await;
    win();
    let mut watch = listed(&mut running.api, &[object("csr-1", &of_node("n1"))]).await;
    node(&mut running.api, "n1", Ok(())).await;
    let asked = running.api.asked().await;
    decided(&asked, "csr-1");
    asked.json(&json!({})).await;
    leadership.resign();
    watch.send("ADDED", &object("csr-2", &of_node("n1"))).await;
    running.api.nothing_within(Duration::from_secs(60)).await;
}

/// A flood must neither delay another node nor take the API server's time.
#[tokio::test(start_paused = true)]
async fn a_flood_of_one_nodes_requests_is_left_out_with_an_event_and_another_nodes_is_approved() {
    let mut running = start(Leadership::always()).await;
    let of_n1 = of_node("n1");
    let mut all: Vec<Value> =
        (0..200).map(|number| object(&format!("csr-{number:03}"), &of_n1)).collect();
    let mut other = object("other", &of_node("n2"));
    other["spec"]["username"] = json!("system:node:n2");
    all.push(other);
    let began = Instant::now();
    let _watch = listed(&mut running.api, &all).await;
    let mut approved = Vec::new();
    for _ in 0..=OF_ONE_USER {
        // Of the node, whether it exists.
        let asked = running.api.asked().await;
        asked
            .json(&json!({"kind": "PartialObjectMetadata", "apiVersion": "v1", "metadata": {"name": "n"}}))
            .await;
        let asked = running.api.asked().await;
        approved.push(asked.path.split('/').nth_back(1).unwrap().to_owned());
        asked.json(&json!({})).await;
    }
    assert_eq!(approved, ["csr-000", "csr-001", "csr-002", "csr-003", "other"]);
    assert!(began.elapsed() >= PACE * 4, "decisions have a pace: {:?}", began.elapsed());
    let event = running.events.recv().await.unwrap();
    assert!(
        event.note().starts_with("user system:node:n1 has more than 4 open"),
        "{}",
        event.note()
    );
    // Later, the rest is listed again; it is not asked for before.
    running.api.nothing_within(Duration::from_secs(20)).await;
    let asked = running.api.asked().await;
    assert!(asked.path.starts_with(REQUESTS), "{}", asked.path);
}
