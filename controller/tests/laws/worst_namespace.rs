//! The worst namespace that the API server takes: thousands of objects of a megabyte, which come
//! while pods of another namespace do. What counts is what these notice, and for how long the
//! northbound database is silent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use controller::{
    kinds::network_policy::wire::PolicyObject,
    watch_event::{Seen, WatchEvent},
};
use kubeapi::watch::Watched;
use ovsdb::{Condition, Connection, Transaction, Where};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod},
    database::Northbound,
    running::Running,
};

/// Pods that are measured alone, and beside the namespace at least.
const PODS: usize = 40;
/// Between two questions to the database. It answers in less, so that it is asked most of the time.
const PACE: Duration = Duration::from_millis(2);

/// Specifications of the largest sizes and the largest costs, as text. With each number in the
/// place of `NUMBER` they are others.
fn specifications() -> Vec<String> {
    let ingress = |rules: Vec<Value>| json!({"podSelector": {}, "ingress": rules}).to_string();
    let net = |number: usize| format!("10.{}.{}.0/24", number / 256 % 256, number % 256);
    let block = |number: usize| json!({"ipBlock": {"cidr": net(number)}});
    let except = |number: usize| {
        let except = net(number).replace(".0/24", ".17/32");
        json!({"ipBlock": {"cidr": net(number), "except": [except]}})
    };
    let ports = |ports: std::ops::Range<usize>| -> Vec<Value> {
        ports.map(|port| json!({"ports": [{"port": port}]})).collect()
    };
    let differs = |number: usize| {
        json!({"namespaceSelector": {}, "podSelector": {"matchExpressions": [
            {"key": "app", "operator": "NotIn", "values": [format!("NUMBER-{number}")]},
        ]}})
    };
    vec![
        // Beyond the bytes: 1.2 MB in 400,000 rules.
        ingress(vec![json!({}); 400_000]),
        // Beyond the ACLs, and nearly as many bytes as are read.
        ingress(ports(1..34_000)),
        // At the limits of ACLs, elements and sets.
        ingress(ports(1..4_090)),
        ingress(vec![json!({"from": (0..32_000).map(block).collect::<Vec<_>>()})]),
        ingress(vec![json!({"from": (0..250).map(differs).collect::<Vec<_>>()})]),
        // A remainder of eight networks each.
        ingress(vec![json!({"from": (0..4_000).map(except).collect::<Vec<_>>()})]),
    ]
}

/// As the watch reads it.
fn policy(number: usize, specifications: &[String]) -> WatchEvent {
    let spec = specifications[number % specifications.len()].replace("NUMBER", &number.to_string());
    let (minutes, seconds) = (number / 60 % 60, number % 60);
    let created = format!("2024-01-01T{:02}:{minutes:02}:{seconds:02}Z", number / 3600);
    let metadata = json!({
        "namespace": "ns0", "name": format!("worst-{number}"), "uid": format!("uid-{number}"),
        "creationTimestamp": created,
    });
    let object = format!(r#"{{"metadata": {metadata}, "spec": {spec}}}"#);
    let object = serde_json::from_str::<PolicyObject>(&object).unwrap();
    WatchEvent::Policies(Seen::Applied(object.value().unwrap()))
}

/// How long the database takes to answer, at worst, in microseconds.
#[derive(Clone, Default)]
struct Silence(Arc<AtomicU64>);

impl Silence {
    async fn watch(self, connection: Connection) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            let begun = Instant::now();
            let mut transaction = Transaction::new();
            transaction.select("NB_Global", Where::all(), &["name"]);
            connection.transact(transaction).await.unwrap();
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap();
            self.0.fetch_max(took, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Duration {
        Duration::from_micros(self.0.swap(0, Ordering::Relaxed))
    }
}

/// The time until the pod's port is in the database.
async fn attached(controller: &Running, connection: &Connection, number: u32) -> Duration {
    // Of the namespace `ns1`.
    let (key, pod) = pod(3 * number + 1, 1 + number, 0);
    let name = format!("{}_{}", key.namespace(), key.name());
    let begun = Instant::now();
    controller.observe(WatchEvent::Pods(Seen::Applied((key, pod))));
    loop {
        let mut transaction = Transaction::new();
        let named = Condition::equal("name", name.as_str());
        let found = transaction.select("Logical_Switch_Port", named, &["name"]);
        let outcome = connection.transact(transaction).await.unwrap();
        if !outcome.rows(found).is_empty() {
            return begun.elapsed();
        }
    }
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |line: &str| {
        line.strip_prefix("VmRSS:")?.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    status.lines().find_map(of).unwrap() / 1024
}

fn figures(mut all: Vec<Duration>) -> (Duration, Duration) {
    all.sort_unstable();
    (all[all.len() / 2], all[all.len() - 1])
}

/// `OBJECTS=5000` for as many as the API server takes of one namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, of minutes: the worst namespace beside another one's pods"]
async fn the_worst_namespace() {
    let objects: usize = std::env::var("OBJECTS").map_or(200, |text| text.parse().unwrap());
    let northbound = Northbound::start();
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes((1..=300).map(node)));
    controller.observe(all_pods((0..3).map(|number| pod(number, 1, 0))));
    controller.converged().await;
    let specifications = specifications();
    let connection = northbound.open().await;
    let silence = Silence::default();
    let watch = tokio::spawn(silence.clone().watch(northbound.open().await));

    let mut alone = Vec::new();
    for number in 1..=PODS {
        alone.push(attached(&controller, &connection, u32::try_from(number).unwrap()).await);
    }
    let (median_alone, most_alone) = figures(alone);
    let (silent_alone, memory_alone) = (silence.take(), memory());
    eprintln!(
        "alone: {median_alone:.1?} (at most {most_alone:.1?}), silent {silent_alone:.1?}, {memory_alone} MB"
    );

    let begun = Instant::now();
    let is_over = Arc::new(AtomicBool::new(false));
    let sender = controller.sender();
    let hostile = {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            for number in 0..objects {
                sender.send(policy(number, &specifications)).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            specifications
        })
    };
    let (mut beside, mut most_memory) = (Vec::new(), 0);
    while !is_over.load(Ordering::Relaxed) || beside.len() < PODS {
        let number = u32::try_from(PODS + 1 + beside.len() % 150).unwrap();
        beside.push(attached(&controller, &connection, number).await);
        most_memory = most_memory.max(memory());
        let gone = pod(3 * number + 1, 1 + number, 0).0;
        controller.observe(WatchEvent::Pods(Seen::Deleted(gone)));
    }
    let specifications = hostile.join().unwrap();
    let (pods, came) = (beside.len(), begun.elapsed());
    let (median, most) = figures(beside);
    let silent = silence.take();
    eprintln!(
        "beside {objects} policies in {came:.1?}: {pods} pods, {median:.1?} (at most {most:.1?}), silent {silent:.1?}, \
         {most_memory} MB"
    );

    // The largest that counts is changed again and again.
    let mut churned = Vec::new();
    for number in 0..PODS {
        let ports: Vec<Value> = (0..4_000)
            .map(|port| json!({"ports": [{"port": 1 + port + number % 2 * 4_000}]}))
            .collect();
        let spec = [json!({"podSelector": {}, "ingress": ports}).to_string()];
        controller.observe(policy(2, &spec));
        churned
            .push(attached(&controller, &connection, u32::try_from(200 + number).unwrap()).await);
        let gone = pod(u32::try_from(3 * (200 + number) + 1).unwrap(), 1, 0).0;
        controller.observe(WatchEvent::Pods(Seen::Deleted(gone)));
    }
    let (median_churned, most_churned) = figures(churned);
    let silent_churned = silence.take();
    controller.converged().await;
    let memory_after = memory();
    eprintln!(
        "beside 4,000 rules that change: {median_churned:.1?} (at most {most_churned:.1?}), silent {silent_churned:.1?}; \
         {memory_after} MB at rest"
    );
    watch.abort();
    drop(specifications);
    for silent in [silent, silent_churned] {
        assert!(silent < Duration::from_secs(1), "the database was silent for {silent:?}");
    }
}
