//! The two that follow the API server, on a clock that passes when everybody waits.

use std::{
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use contract::{
    annotation::PodNetwork,
    names::{Network, PodKey},
};
use controller::{
    observation::Seen,
    store::{Annotated, Pod, wire::PodObject},
};
use kubeapi::{ApiServer, Cluster, Connection, metrics::Metrics as ControllerMetrics, watch::Watch};
use prometheus::Registry;
use server::{
    conditions::Conditions,
    metrics::Metrics,
    pods::{ApiPods, PodSource},
};
use tokio::{runtime::Builder, time::sleep};

use super::api::{self, Answer};

pub(super) const PODS: usize = 4;

/// What the control plane was told.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Told {
    All(Vec<String>),
    Applied(String),
    Deleted(String),
}

/// What there is to say of a pod: its name, its UID, and which of its states it is in.
pub(super) fn state(name: &str, uid: &str, state: impl ToString) -> String {
    format!("{name} {uid} {}", state.to_string())
}

pub(super) fn key(pod: usize) -> PodKey {
    PodKey::new("shop", &format!("p{pod}")).expect("a good name")
}

/// Made once: a fuzzer would spend its time on them.
struct Fixtures {
    connection: Connection,
    metrics: Arc<Metrics>,
    controller_metrics: ControllerMetrics,
}

static FIXTURES: LazyLock<Fixtures> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let way = ApiServer { cluster: Cluster::Url { url: "http://api".to_owned(), authority: None }, credential: None };
    Fixtures {
        connection: Connection::open(way),
        metrics: Arc::default(),
        controller_metrics: ControllerMetrics::register(&Registry::new()).expect("nothing else is registered"),
    }
});

/// Both follow the API server that `respond` plays, until `done`, which is given the server's pods. What the control plane was told, and
/// the pods that the server knows then.
pub(super) fn run<F: Future<Output = ()>>(
    respond: impl Fn(&str) -> Answer + Send + Sync + Clone + 'static,
    done: impl FnOnce(Arc<ApiPods>) -> F,
) -> (Vec<Told>, Vec<Option<String>>) {
    let fixtures = &*FIXTURES;
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let told = Arc::clone(&told);
            move |seen| told.lock().expect("nobody panics with it").push(said(seen))
        };
        let api = fixtures.connection.over(api::client(respond.clone()));
        let _watch = Watch::start::<PodObject>(api, fixtures.controller_metrics.clone(), tell);
        let connection = fixtures.connection.over(api::client(respond));
        let pods = Arc::new(ApiPods::start(connection, "n1", Conditions::default(), Arc::clone(&fixtures.metrics)));
        done(Arc::clone(&pods)).await;
        let known = (0..PODS).map(|pod| known(&pods, pod)).collect();
        let told = told.lock().expect("nobody panics with it").clone();
        (told, known)
    })
}

/// Longer than anybody waits for another attempt.
pub(super) async fn nap() {
    sleep(Duration::from_secs(70)).await;
}

/// A pod as the server knows it.
fn known(pods: &ApiPods, pod: usize) -> Option<String> {
    let pod_key = key(pod);
    let known = pods.watch(&pod_key).now()?;
    let network = match PodNetwork::from_annotations(&known.facts.annotations, &Network::Default) {
        Ok(network) => network.map(|network| addresses(&network)).unwrap_or_default(),
        Err(_) => "unusable".to_owned(),
    };
    Some(state(pod_key.name(), &known.facts.uid, network))
}

fn addresses(network: &PodNetwork) -> String {
    network.addresses.iter().map(ToString::to_string).collect()
}

fn said(seen: Seen<PodKey, (PodKey, Pod)>) -> Told {
    let pod = |(key, pod): (PodKey, Pod)| {
        let network = match pod.annotated {
            Annotated::Unusable(_) => "unusable".to_owned(),
            Annotated::Network { network, .. } => addresses(&network),
            Annotated::Nothing => String::new(),
        };
        state(key.name(), &pod.uid, network)
    };
    match seen {
        Seen::All(pods) => Told::All(pods.into_iter().map(pod).collect()),
        Seen::Applied(applied) => Told::Applied(pod(applied)),
        Seen::Deleted(key) => Told::Deleted(key.name().to_owned()),
    }
}
