//! 200 pods a second come and go. The burst records each address that a pod or port ever had, as
//! the API server and the northbound database report it. Most pods are on nodes without a kubelet,
//! some on a real one.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use contract::{annotation::PodNetwork, names::Network};
use futures_util::{StreamExt as _, pin_mut};
use http::Request;
use integration::{
    Cluster,
    central::NORTHBOUND,
    cluster::{
        attached::is_ready,
        manifest::{idle_pod, on_node},
    },
    let_pass,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _, core::PartialObjectMeta, runtime::watcher};
use ovsdb::{ChangeKind, Event, Monitor, Options, Uuid, Where};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use super::{PODS, SETTLED};

/// Pods created per second (row 82).
const RATE: u32 = 200;
/// How long pods come at that rate before and after the leader is disturbed.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(5);
/// The number of pods alive at once, on nodes without a kubelet: few enough addresses that each
/// node's are reused in a burst.
const ALIVE: usize = 1000;
const NODES: usize = 6;

/// Pods that come and go, and what the watch and the monitor have reported of them.
pub(super) struct Burst {
    stopped: Arc<AtomicBool>,
    creating: JoinHandle<Result<Vec<Instant>>>,
    seen: Arc<Mutex<Seen>>,
    /// When the leader was disturbed.
    moments: Mutex<Vec<Instant>>,
}

/// What the watch and the monitor have reported, in order.
#[derive(Debug, Default)]
struct Seen {
    versions: usize,
    annotated: Vec<Instant>,
    /// Why the watch had to start again.
    unseen: Option<String>,
    of_pods: Holders<String>,
    of_ports: Holders<Uuid>,
}

/// The holder of each address, and conflicts between holders.
#[derive(Debug)]
struct Holders<K> {
    addresses: HashMap<String, K>,
    of: HashMap<K, String>,
    wrong: Vec<String>,
}

impl<K> Default for Holders<K> {
    fn default() -> Self {
        Self { addresses: HashMap::new(), of: HashMap::new(), wrong: Vec::new() }
    }
}

impl<K: Clone + Eq + std::hash::Hash + std::fmt::Debug> Holders<K> {
    fn has(&mut self, who: &K, address: &str) {
        if self.of.get(who).is_some_and(|known| known == address) {
            return;
        }
        if let Some(before) = self.of.insert(who.clone(), address.to_owned()) {
            self.wrong.push(format!("{who:?} had {before} and then {address}"));
            self.addresses.remove(&before);
        }
        if let Some(other) = self.addresses.insert(address.to_owned(), who.clone()) {
            self.wrong.push(format!("{other:?} and {who:?} have {address}"));
        }
    }

    fn gone(&mut self, who: &K) {
        if let Some(address) = self.of.remove(who)
            && self.addresses.get(&address) == Some(who)
        {
            self.addresses.remove(&address);
        }
    }
}

ovsdb::table! {
    struct Port in "Logical_Switch_Port" {
        name: String,
        addresses: Vec<String>,
    }
}

impl Burst {
    /// Starts the burst, and returns once some hundred pods have their annotation.
    pub(super) fn under_way(cluster: &Cluster) -> Result<Self> {
        for number in 0..NODES {
            cluster.api.create("/api/v1/nodes", &node(number))?;
        }
        for number in 0..4 {
            cluster.api.create(PODS, &real_pod(number))?;
        }
        are_ready(cluster, 0..4)?;
        // Every pod already names its node. Scheduler and controller manager would process each of
        // them all the same, and take processor time from the rest.
        cluster.control_plane.scheduler.stop()?;
        cluster.control_plane.controller_manager.stop()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let stopped = Arc::new(AtomicBool::new(false));
        let (client, runtime) = (cluster.api.client.clone(), &cluster.api.runtime);
        runtime.spawn(watch_pods(client.clone(), Arc::clone(&seen)));
        runtime.spawn(watch_ports(Arc::clone(&seen)));
        let creating = runtime.spawn(come_and_go(client, Arc::clone(&stopped)));
        let burst = Self { stopped, creating, seen, moments: Mutex::default() };
        burst.in_the_middle(cluster)?;
        Ok(burst)
    }

    /// Waits until some hundred more pods have their annotation, and `BEFORE` at least. The caller
    /// disturbs the leader then.
    pub(super) fn in_the_middle(&self, cluster: &Cluster) -> Result<()> {
        let (began, before) = (Instant::now(), self.seen().annotated.len());
        cluster.pods.wait("pods are served", SETTLED, |_| {
            let seen = self.seen();
            let now = seen.annotated.len() - before;
            ensure!(now > 200, "{now} of 200 are: {} versions, {:?}", seen.versions, seen.unseen);
            Ok(())
        })?;
        let_pass(BEFORE.saturating_sub(began.elapsed()));
        self.moments.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        Ok(())
    }

    /// Stops creating pods after some seconds. The existing ones must have what they need, and no
    /// address may ever have had two holders.
    pub(super) fn end(self, cluster: &Cluster) -> Result<()> {
        for number in 4..8 {
            cluster.api.create(PODS, &real_pod(number))?;
        }
        let_pass(AFTER);
        self.stopped.store(true, Ordering::Relaxed);
        let created = cluster.api.runtime.block_on(self.creating)??;
        let annotated = |pod: &Pod| pod.annotations().contains_key("k8s.ovn.org/pod-networks");
        let known = cluster.pods.wait("every pod has its annotation", SETTLED, |known| {
            let without: Vec<&String> =
                known.iter().filter(|(_, pod)| !annotated(pod)).map(|(key, _)| key).collect();
            ensure!(
                without.is_empty(),
                "{} of {} have none: {:?} …",
                without.len(),
                known.len(),
                without.first()
            );
            Ok(known.clone())
        })?;
        // Ports and annotations agree, and there is no other port.
        cluster.northbound_must_match()?;
        let names = are_ready(cluster, 0..8)?;
        let attached =
            names.iter().map(|name| cluster.attached(name)).collect::<Result<Vec<_>>>()?;
        for pod in &attached {
            let condition = format!("external_ids:iface-id={}", pod.port());
            let ids = cluster.lab.nodes[0].vsctl([
                "--bare",
                "--columns=external_ids",
                "find",
                "Interface",
                &condition,
            ])?;
            let address = pod.address().to_string();
            ensure!(
                ids.contains(&format!("ip_addresses={address}/")),
                "{} has {address}; its interface: {ids}",
                pod.name
            );
        }
        cluster.lab.ping(&attached[0], attached[7].address())?;
        cluster.lab.ping(&attached[7], attached[1].address())?;

        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!(
            "{} pods were created, {} were annotated, {} are there",
            created.len(),
            seen.annotated.len(),
            known.len()
        );
        for moment in self.moments.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let [before, after] = [(*moment - BEFORE, BEFORE), (*moment, AFTER)]
                .map(|(from, long)| rate(&created, from, long));
            eprintln!(
                "created: {before:.0} a second in the {BEFORE:?} before the leader, {after:.0} in the \
                 {AFTER:?} after"
            );
        }
        ensure!(seen.of_pods.wrong.is_empty(), "annotations: {:#?}", seen.of_pods.wrong);
        ensure!(seen.of_ports.wrong.is_empty(), "ports: {:#?}", seen.of_ports.wrong);
        ensure!(
            created.len() > ALIVE && seen.annotated.len() > ALIVE,
            "{} pods are no burst",
            created.len()
        );
        Ok(())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the real pods of these numbers run; returns their keys.
pub(super) fn are_ready(cluster: &Cluster, numbers: Range<usize>) -> Result<Vec<String>> {
    let names: Vec<String> = numbers.map(|number| format!("default/real-{number}")).collect();
    cluster.pods.wait("the real pods run", SETTLED, |known| {
        let waiting: Vec<&String> =
            names.iter().filter(|name| !known.get(*name).is_some_and(is_ready)).collect();
        ensure!(waiting.is_empty(), "{waiting:?} do not");
        Ok(())
    })?;
    Ok(names)
}

/// The moments per second within a time.
fn rate(moments: &[Instant], from: Instant, long: Duration) -> f64 {
    let within = moments.iter().filter(|moment| (from..from + long).contains(*moment)).count();
    f64::from(u32::try_from(within).unwrap_or(u32::MAX)) / long.as_secs_f64()
}

/// Creates pods at the rate, and deletes the oldest; returns when each was created.
async fn come_and_go(client: Client, stopped: Arc<AtomicBool>) -> Result<Vec<Instant>> {
    let mut beat = tokio::time::interval(Duration::from_secs(1) / RATE);
    let (mut alive, mut calls, mut created, mut answered) =
        (VecDeque::new(), JoinSet::new(), 0, Vec::new());
    while !stopped.load(Ordering::Relaxed) {
        beat.tick().await;
        let name = format!("burst-{created:05}");
        let pod = pod(&name, &node_name(created % NODES)).to_string();
        created += 1;
        alive.push_back(name);
        let oldest = if alive.len() > ALIVE { alive.pop_front() } else { None };
        let client = client.clone();
        // Answers are not parsed: parsing takes as long here as the API server took to write them.
        calls.spawn(async move {
            if let Some(oldest) = oldest {
                let delete = Request::delete(format!("{PODS}/{oldest}?gracePeriodSeconds=0"))
                    .body(Vec::new())?;
                client.request_text(delete).await.with_context(|| format!("delete {oldest}"))?;
            }
            let create = Request::post(PODS)
                .header("content-type", "application/json")
                .body(pod.into_bytes())?;
            client.request_text(create).await.context("create a pod")?;
            anyhow::Ok(Instant::now())
        });
        // A slower API server sets the rate.
        while calls.len() > 64
            && let Some(call) = calls.join_next().await
        {
            answered.push(call??);
        }
    }
    while let Some(call) = calls.join_next().await {
        answered.push(call??);
    }
    Ok(answered)
}

/// Records every version of every pod.
async fn watch_pods(client: Client, seen: Arc<Mutex<Seen>>) {
    let events = watcher(Api::<PartialObjectMeta<Pod>>::all(client), watcher::Config::default());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => {
                seen.versions += 1;
                let uid = pod.uid().unwrap_or_default();
                match PodNetwork::from_annotations(pod.annotations(), &Network::Default) {
                    Ok(Some(network)) => {
                        if !seen.of_pods.of.contains_key(&uid) {
                            seen.annotated.push(Instant::now());
                        }
                        seen.of_pods.has(&uid, &network.addresses[0].addr().to_string());
                    }
                    Ok(None) => {}
                    Err(error) => seen.of_pods.wrong.push(format!("{}: {error}", pod.name_any())),
                }
            }
            Ok(watcher::Event::Delete(pod)) => seen.of_pods.gone(&pod.uid().unwrap_or_default()),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) => seen.unseen = Some(format!("{error:#}")),
        }
    }
}

/// Records every transaction.
async fn watch_ports(seen: Arc<Mutex<Seen>>) {
    let endpoint = NORTHBOUND.parse().expect("an endpoint");
    let monitor = Monitor::new().table::<Port>(Where::all());
    let (_client, mut updates) =
        ovsdb::Client::start(endpoint, "OVN_Northbound", monitor, Options::default());
    loop {
        let Event::Changed(changes) = updates.next().await else { continue };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut after: BTreeMap<Uuid, String> = BTreeMap::new();
        for change in changes.of::<Port>() {
            match change.kind {
                ChangeKind::Delete => seen.of_ports.gone(&change.uuid),
                ChangeKind::Insert | ChangeKind::Modify => {
                    let port = updates.row::<Port>(change.uuid);
                    let address = port.and_then(|port| {
                        port.addresses.first()?.split(' ').nth(1).map(str::to_owned)
                    });
                    after.extend(address.map(|address| (change.uuid, address)));
                }
            }
        }
        for (port, address) in after {
            seen.of_ports.has(&port, &address);
        }
    }
}

pub(super) fn node_name(number: usize) -> String {
    format!("nobody-{number}")
}

/// A node without a kubelet; the control plane cannot tell.
pub(super) fn node(number: usize) -> Value {
    let address = format!("172.31.0.{}", 10 + number);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(number), "annotations": {
            "k8s.ovn.org/node-chassis-id": format!("6bf64a4a-7be4-4a4c-b6a5-{number:012}"),
            "k8s.ovn.org/zone-name": "global",
            "k8s.ovn.org/host-cidrs": json!([format!("{address}/16")]).to_string(),
        }},
    })
}

fn pod(name: &str, node: &str) -> Value {
    let mut pod = on_node(idle_pod(name), node);
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    pod
}

pub(super) fn real_pod(number: usize) -> Value {
    pod(&format!("real-{number}"), "node1")
}
