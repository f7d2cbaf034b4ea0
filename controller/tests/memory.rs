//! Memory of 10,000 pods: the bytes that this program allocates, counted exactly, so that neither
//! the allocator nor the machine matters.

#![expect(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]
#![expect(clippy::unwrap_used, reason = "the shared parts of tests fail by panicking")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use contract::names::{Network, PolicyKey};
use controller::{
    allocate::pod_network::pod_network,
    annotate::{AnnotationMetrics, AnnotationWriter},
    kinds::{
        namespace::object::Namespace,
        network_policy::{object::Policy, wire::PolicyObject},
        node::wire::NodeObject,
        pod::wire::PodObject,
    },
    select::peer::Direction,
    watch_event::{Seen, WatchEvent},
    world::Store,
};
use kubeapi::services::{ServiceObject, SliceObject};
use kubeapi::{
    ApiServer, Cluster, Connection, election::Leadership, events::Recorder, watch::Watched,
};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::{sync::mpsc::unbounded_channel, task::yield_now};

use crate::{cluster::config, database::Northbound, running::Running};

#[expect(dead_code, reason = "the laws use more of it")]
#[path = "laws/cluster.rs"]
mod cluster;
#[expect(dead_code, reason = "the laws use more of it")]
#[path = "laws/database.rs"]
mod database;
#[expect(dead_code, reason = "the laws use more of it")]
#[path = "laws/running.rs"]
mod running;

const NODES: usize = 500;
const PODS: usize = 10_000;
/// As many as pods, so that [`Since::each`] serves both.
const SERVICES: usize = PODS;

/// Limit in bytes per pod, with three labels and a port with a name: a list, before the store takes
/// the first of it. The text of its annotation alone is 500.
const LISTED: usize = 650;

/// Limit in bytes per pod: the store with its indexes. Some 100 of them are its labels, which
/// policies select by, and its place among the pods of its namespace.
const STORE: usize = 720;
/// Limit in bytes per pod: its annotation in the queue of the patcher. A hundred of them are
/// requests in flight.
const WAITING: usize = 420;
/// Limit in bytes per pod: the replica and its index, including the pod's share of its node's rows.
const COPY: usize = 1350;
/// Limits in bytes per pod: the whole controller once converged, and its peak while it fills an
/// empty database.
const WHOLE: usize = 2100;
const PEAK: usize = 2300;

/// Limits in bytes per Service with five endpoints: the store, and the whole controller once
/// converged. The latter is 23 MB for 10,000 Services.
const SERVICE_STORE: usize = 1500;
const SERVICE_WHOLE: usize = 2300;

/// NetworkPolicies, twenty in each namespace, as in the runs of `make scale`.
const POLICIES: usize = 1_200;
const TOGETHER: usize = 20;
/// Limits in bytes per policy without a pod: the store, and the whole controller once converged.
const POLICY_STORE: usize = 3800;
const POLICY_WHOLE: usize = 11000;

/// The system's allocator, with a count of what each thread has: each test is one thread.
struct Counted;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTED: Counted = Counted;

// SAFETY: each call goes to the system's allocator. Beside that, only thread-local cells of
// integers are touched, which do not allocate.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(cost(layout.size()), 0);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, cost(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(cost(size), cost(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What malloc of the GNU C library takes for `size` bytes: a word of its own beside them, in steps
/// of 16, 32 at least.
fn cost(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

fn count(more: usize, less: usize) {
    // Fails in a thread that ends: its cells are gone.
    let _ = NOW.try_with(|now| {
        // Memory that another thread has allocated was not counted here.
        now.set((now.get() + more).saturating_sub(less));
        MOST.with(|most| most.set(most.get().max(now.get())));
    });
}

/// Counts the bytes allocated since a moment.
struct Since(usize);

impl Since {
    fn now() -> Self {
        let now = NOW.get();
        MOST.set(now);
        Self(now)
    }

    /// Bytes per pod: now, and at the peak.
    fn each(&self) -> (usize, usize) {
        self.each_of(PODS)
    }

    /// The same for each of so many.
    fn each_of(&self, count: usize) -> (usize, usize) {
        let each = |bytes: usize| bytes.saturating_sub(self.0) / count;
        (each(NOW.get()), each(MOST.get()))
    }
}

#[test]
fn a_pod_with_its_annotation_is_small_in_the_store() {
    let mut store = without_pods();
    let before = Since::now();
    for number in 0..PODS {
        store.observe(applied(number, json!({})), &mut |_, _| ());
        let [annotation] = &store.take_annotations()[..] else { panic!("one annotation") };
        store.observe(applied(number, json!(annotation.annotations())), &mut |_, _| ());
    }
    let (each, _) = before.each();
    println!("store: {each} bytes for each pod");
    assert!(each > 100, "{each} bytes: this measures nothing");
    assert!(each < STORE, "{each} bytes for each pod");
}

/// At the start all pods wait for their annotations, of which the API server takes about a thousand
/// a second.
#[tokio::test]
async fn an_annotation_that_waits_for_the_api_server_is_small() {
    let mut store = without_pods();
    (0..PODS).for_each(|number| store.observe(applied(number, json!({})), &mut |_, _| ()));
    // Nothing listens there.
    let cluster = Cluster::Url { url: "http://127.0.0.1:9".to_owned(), authority: None };
    let api = Connection::open(ApiServer { cluster, credential: None });
    let registry = Registry::new();
    let metrics = AnnotationMetrics::register(&registry).unwrap();
    let (wishes, wished) = unbounded_channel();
    let before = Since::now();
    store.take_annotations().into_iter().for_each(|annotation| wishes.send(annotation).unwrap());
    let (recorder, _) = Recorder::fake(16);
    let _writer = AnnotationWriter::start(api, Leadership::always(), recorder, metrics, wished);
    let waiting = || {
        let families = registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == "ovnkube_controller_annotations_waiting");
        family.map(|family| family.get_metric()[0].get_gauge().get_value())
    };
    while waiting() != Some(PODS as f64) {
        yield_now().await;
    }
    let (each, most) = before.each();
    println!("waiting annotations: {each} bytes for each pod, {most} at the most");
    assert!(each > 50, "{each} bytes: this measures nothing");
    assert!(each < WAITING, "{each} bytes for each pod");
}

/// All pods of a list are in memory before the store takes the first of them.
#[test]
fn a_list_of_annotated_pods_has_no_copy_of_what_follows_from_their_addresses() {
    let config = config();
    let before = Since::now();
    let mut list = Vec::with_capacity(PODS);
    for number in 0..PODS {
        let address = format!(
            "10.{}.{}.{}/24",
            128 + number / 250 / 256,
            number / 250 % 256,
            number % 250 + 3
        );
        let network = pod_network(&config, vec![address.parse().unwrap()]).unwrap();
        let text = network.write(&Network::Default, None).unwrap();
        let labels = json!({
            "app": format!("web-{number:06}"), "pod-template-hash": "6d4cf56db6",
            "app.kubernetes.io/part-of": "scale",
        });
        let object: PodObject = object(&json!({
            "metadata": {
                "name": format!("web-{number:06}-6d4cf56db6-x2vlp"), "namespace": format!("team-{:04}", number / 100),
                "uid": format!("4b5f1c2e-0000-4000-8000-{number:012}"), "labels": labels,
                "annotations": {"k8s.ovn.org/pod-networks": text},
            },
            "spec": {
                "nodeName": format!("node-{}", number % NODES),
                "containers": [{"name": "a", "ports": [{"name": "http", "containerPort": 8080}]}],
            },
        }));
        let (key, mut pod) = object.into_pod().unwrap();
        pod.shorten(&config);
        list.push((key, pod));
    }
    let (each, _) = before.each();
    println!("list: {each} bytes for each pod");
    assert!(each > 100, "{each} bytes: this measures nothing");
    assert!(each < LISTED, "{each} bytes for each pod");
}

/// From an empty database, and then a controller that only reads what the first one wrote.
#[tokio::test]
async fn ten_thousand_pods_are_small_in_the_controller_and_in_the_copy_of_their_rows() {
    let northbound = Northbound::start();
    let before = Since::now();
    let mut controller = Running::without_services(northbound.endpoint(), config());
    let namespace = ("benchmark".into(), Namespace::default());
    controller.observe(WatchEvent::Namespaces(Seen::Applied(namespace)));
    controller.observe(nodes());
    controller.observe(WatchEvent::Pods(Seen::All(
        (0..PODS).map(|number| pod(number, json!({}))).collect(),
    )));
    for _ in 0..PODS {
        let annotation = controller.annotations.recv().await.unwrap();
        let number = annotation.pod.name().rsplit('-').next().unwrap().parse().unwrap();
        controller.observe(applied(number, json!(annotation.annotations())));
    }
    controller.converged().await;
    let (whole, peak) = before.each();
    println!("controller: {whole} bytes for each pod, {peak} at the most");
    controller.kill().await;

    let before = Since::now();
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.reaches("the copy", |progress| progress.loaded).await;
    let (copy, loading) = before.each();
    println!("copy and index: {copy} bytes for each pod, {loading} at the most");
    controller.kill().await;

    assert!(copy > 300, "{copy} bytes: this measures nothing");
    assert!(copy < COPY, "{copy} bytes for each pod");
    assert!(whole < WHOLE && peak < PEAK, "{whole} bytes for each pod, {peak} at the most");
}

/// Services with five endpoints each: in the store, and with the replica of their rows.
#[tokio::test]
async fn ten_thousand_services_are_small_in_the_store_and_in_the_copy_of_their_rows() {
    let before = Since::now();
    let mut store = Store::new(config());
    (0..SERVICES)
        .flat_map(service)
        .for_each(|observation| store.observe(observation, &mut |_, _| ()));
    let (stored, _) = before.each();
    println!("store: {stored} bytes for each Service");
    drop(store);

    let (whole, peak) = controller_with((0..SERVICES).flat_map(service), SERVICES).await;
    println!("controller: {whole} bytes for each Service, {peak} at the most");

    assert!(stored > 300 && whole > stored, "{stored} and {whole} bytes: this measures nothing");
    assert!(
        stored < SERVICE_STORE && whole < SERVICE_WHOLE,
        "{stored} and {whole} bytes for each Service"
    );
}

/// Policies with a rule for each direction: some pods of other namespaces and five blocks, at five
/// ports and five ranges.
#[tokio::test]
async fn policies_are_small_in_the_store_and_in_the_copy_of_their_rows() {
    let all = || (0..POLICIES).map(policy);
    let mut store = Store::new(config());
    let before = Since::now();
    store.observe(WatchEvent::Policies(Seen::All(all().collect())), &mut |_, _| ());
    let (stored, _) = before.each_of(POLICIES);
    println!("store: {stored} bytes for each policy");
    drop(store);

    let list = std::iter::once_with(|| WatchEvent::Policies(Seen::All(all().collect())));
    let (whole, peak) = controller_with(list, POLICIES).await;
    println!("controller: {whole} bytes for each policy, {peak} at the most");

    assert!(stored > 500 && whole > stored, "{stored} and {whole} bytes: this measures nothing");
    assert!(
        stored < POLICY_STORE && whole < POLICY_WHOLE,
        "{stored} and {whole} bytes for each policy"
    );
}

/// What the API server takes, and is a million of values: 400,000 rules are 1.2 MB.
#[test]
fn a_hostile_specification_takes_a_small_multiple_of_its_text() {
    let list = |element: &str, bytes: usize| vec![element; bytes / (element.len() + 1)].join(",");
    let bytes = 1_000_000;
    for spec in [
        format!(r#"{{"ingress":[{}]}}"#, list("{}", 1_200_000)),
        format!(r#"{{"ingress":[{}]}}"#, list("{}", bytes)),
        format!(r#"{{"egress":[{}]}}"#, list(r#"{},{"ports":[]}"#, bytes)),
        format!(r#"{{"ingress":[{{"from":[{}]}}]}}"#, list(r#"{},{"podSelector":{}}"#, bytes)),
        format!(r#"{{"ingress":[{{"ports":[{}]}}]}}"#, list(r#"{"port":1},{"port":2}"#, bytes)),
        format!(
            r#"{{"ingress":[{{"from":[{{"ipBlock":{{"cidr":"::/0","except":[{}]}}}}]}}]}}"#,
            list(r#""1::/64""#, bytes)
        ),
        format!(
            r#"{{"podSelector":{{"matchExpressions":[{{"key":"a","operator":"In","values":[{}]}}]}}}}"#,
            list(r#""a""#, bytes)
        ),
    ] {
        let text =
            format!(r#"{{"metadata":{{"namespace":"a","name":"b","uid":"c"}},"spec":{spec}}}"#);
        let before = Since::now();
        let read = serde_json::from_str::<PolicyObject>(&text).unwrap().into_policy().unwrap();
        let (now, most) = before.each_of(1);
        println!("{}: {now} bytes, {most} at the most", &spec[..40]);
        assert!(most < 30 * text.len(), "{most} bytes at the most: {}", &spec[..40]);
        assert!(now < 3 * text.len(), "{now} bytes: {}", &spec[..40]);
        assert!(read.1.rules(Direction::Ingress).is_some(), "{}", &spec[..40]);
    }
}

/// What a controller without pods takes for each of `count` objects in these observations: once
/// converged, and at the most.
async fn controller_with(
    observations: impl IntoIterator<Item = WatchEvent>,
    count: usize,
) -> (usize, usize) {
    let northbound = Northbound::start();
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(nodes());
    controller.observe(WatchEvent::Pods(Seen::All(Vec::new())));
    controller.converged().await;
    let before = Since::now();
    observations.into_iter().for_each(|observation| controller.observe(observation));
    controller.reaches("work", |progress| !progress.converged).await;
    controller.converged().await;
    let each = before.each_of(count);
    controller.kill().await;
    each
}

/// The policy with this number.
fn policy(number: usize) -> (PolicyKey, Policy) {
    let (namespace, place) = (number / TOGETHER, number % TOGETHER);
    let rule = |direction: usize, side: &str| {
        let places: Vec<String> = (0..5)
            .map(|index| ((namespace + 2 * place + direction + index) % 42).to_string())
            .collect();
        let pods = json!({
            "namespaceSelector": {"matchLabels": {"ring": format!("r{}", (7 * namespace + 3 * place) % 12)}},
            "podSelector": {"matchExpressions": [{"key": "place", "operator": "In", "values": places}]},
        });
        let block = |index: usize| json!({"ipBlock": {"cidr": format!("198.{}.{}.0/24", 18 + direction, (5 * place + index) % 250)}});
        let port = |index: usize| json!({"protocol": "TCP", "port": 8_000 + 10 * place + index});
        let range = |index: usize| {
            let first = 10_000 + 100 * place + 20 * index;
            json!({"protocol": "TCP", "port": first, "endPort": first + 9})
        };
        let peers: Vec<Value> = [pods].into_iter().chain((0..5).map(block)).collect();
        let ports: Vec<Value> = (0..5).map(port).chain((0..5).map(range)).collect();
        json!([{side: peers, "ports": ports}])
    };
    let own = [place.to_string(), (place + TOGETHER).to_string()];
    let policy: PolicyObject = object(&json!({
        "metadata": {
            "name": format!("policy-{place:02}"), "namespace": format!("team-{namespace:04}"),
            "uid": format!("9c1d7a3e-0000-4000-8000-{number:012}"),
        },
        "spec": {
            "podSelector": {"matchExpressions": [{"key": "place", "operator": "In", "values": own}]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": rule(0, "from"), "egress": rule(1, "to"),
        },
    }));
    policy.into_policy().unwrap()
}

/// A Service and its slice.
fn service(number: usize) -> [WatchEvent; 2] {
    let (namespace, name) = (format!("team-{:04}", number / 100), format!("web-{number:06}"));
    let service = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("0b8f7d0c-6f57-4a57-9d86-{number:012}")},
        "spec": {"clusterIPs": [format!("172.16.{}.{}", number / 250, number % 250)], "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    });
    let endpoint = |place: usize| {
        let node = (number + place) % NODES;
        json!({
            "addresses": [format!("10.{}.{}.{}", 128 + node / 256, node % 256, 3 + number % 250)],
            "nodeName": format!("node-{node}"), "conditions": {"ready": true},
        })
    };
    let slice = json!({
        "metadata": {"namespace": namespace, "name": format!("{name}-x7k2p"), "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
        "endpoints": (0..5).map(endpoint).collect::<Vec<_>>(),
    });
    let (service, slice) = (object::<ServiceObject>(&service), object::<SliceObject>(&slice));
    [
        WatchEvent::Services(Seen::Applied(service.value().unwrap())),
        WatchEvent::Slices(Seen::Applied(slice.value().unwrap())),
    ]
}

/// A store that has read that there are nodes and nothing else.
fn without_pods() -> Store {
    let mut store = Store::new(config());
    let lists = [
        nodes(),
        WatchEvent::Pods(Seen::All(Vec::new())),
        WatchEvent::Services(Seen::All(Vec::new())),
        WatchEvent::Slices(Seen::All(Vec::new())),
        WatchEvent::Namespaces(Seen::All(Vec::new())),
        WatchEvent::Policies(Seen::All(Vec::new())),
    ];
    let lists = lists.into_iter().chain(WatchEvent::no_optional_kinds());
    lists.for_each(|list| store.observe(list, &mut |_, _| ()));
    store
}

fn nodes() -> WatchEvent {
    let node = |number: usize| {
        let annotations = json!({
            "k8s.ovn.org/node-subnets": json!({"default": [subnet(number)]}).to_string(),
            "k8s.ovn.org/node-chassis-id": format!("7aa1c0d2-0000-4000-8000-{number:012}"),
        });
        object::<NodeObject>(
            &json!({"metadata": {"name": format!("node-{number}"), "annotations": annotations}}),
        )
        .into_node()
    };
    WatchEvent::Nodes(Seen::All((0..NODES).map(node).collect()))
}

fn subnet(node: usize) -> String {
    format!("10.{}.{}.0/24", 128 + node / 256, node % 256)
}

fn applied(number: usize, annotations: Value) -> WatchEvent {
    WatchEvent::Pods(Seen::Applied(pod(number, annotations)))
}

fn pod(
    number: usize,
    annotations: Value,
) -> (contract::names::PodKey, controller::kinds::pod::object::Pod) {
    let pod: PodObject = object(&json!({
        "metadata": {"name": format!("deployment-5f6d8c7b9-{number:05}"), "namespace": "benchmark",
            "uid": format!("4b5f1c2e-0000-4000-8000-{number:012}"), "annotations": annotations},
        "spec": {"nodeName": format!("node-{}", number % NODES), "containers": [{"name": "a", "image": "b"}]},
        "status": {"phase": "Running"},
    }));
    pod.into_pod().unwrap()
}

fn object<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_str(&object.to_string()).unwrap()
}
