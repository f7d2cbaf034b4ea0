//! The two clients of the API server, on a paused clock that advances when all tasks wait.

use std::{
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use contract::{
    annotation::PodNetwork,
    names::{Network, PodKey},
};
use controller::{
    kinds::pod::{
        object::{Annotated, Pod},
        wire::PodObject,
    },
    watch_event::Seen,
};
use kubeapi::{
    ApiServer, Cluster, Connection, metrics::Metrics as ControllerMetrics, watch::Watch,
};
use prometheus::Registry;
use server::{
    conditions::Conditions,
    metrics::Metrics,
    pods::{ApiPods, PodSource},
};
use tokio::{runtime::Builder, time::sleep};

use super::api::{self, Answer};

pub(super) const PODS: usize = 4;

/// An observation of the control plane.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClusterManagerInputs {
    All(Vec<String>),
    Applied(String),
    Deleted(String),
}

/// A pod as text: its name, its UID, and its state.
pub(super) fn state(name: &str, uid: &str, state: impl ToString) -> String {
    format!("{name} {uid} {}", state.to_string())
}

pub(super) fn key(pod: usize) -> PodKey {
    PodKey::new("shop", &format!("p{pod}")).expect("a good name")
}

/// Made once, so that the fuzzer does not spend its time on them.
struct Fixtures {
    connection: Connection,
    metrics: Arc<Metrics>,
    controller_metrics: ControllerMetrics,
}

static FIXTURES: LazyLock<Fixtures> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let way = ApiServer {
        cluster: Cluster::Url { url: "http://api".to_owned(), authority: None },
        credential: None,
    };
    Fixtures {
        connection: Connection::open(way),
        metrics: Arc::default(),
        controller_metrics: ControllerMetrics::register(&Registry::new(), "test")
            .expect("nothing else is registered"),
    }
});

/// Runs both clients against the API server that `respond` plays, until `done`, which gets the
/// server's pods. Returns the observations of the control plane, and the pods that the server then
/// knows.
pub(super) fn run<F: Future<Output = ()>>(
    respond: impl Fn(&str) -> Answer + Send + Sync + Clone + 'static,
    done: impl FnOnce(Arc<ApiPods>) -> F,
) -> (Vec<ClusterManagerInputs>, Vec<Option<String>>) {
    let fixtures = &*FIXTURES;
    let runtime =
        Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let told = Arc::clone(&told);
            move |seen| told.lock().expect("no holder of the lock panics").push(said(seen))
        };
        let api = fixtures.connection.over(api::client(respond.clone()));
        let _watch = Watch::start::<PodObject>(api, fixtures.controller_metrics.clone(), tell);
        let connection = fixtures.connection.over(api::client(respond));
        let pods = Arc::new(ApiPods::start(
            connection,
            "n1",
            Conditions::default(),
            Arc::clone(&fixtures.metrics),
        ));
        done(Arc::clone(&pods)).await;
        let known = (0..PODS).map(|pod| known(&pods, pod)).collect();
        let told = told.lock().expect("no holder of the lock panics").clone();
        (told, known)
    })
}

/// Sleeps longer than any client waits before it retries.
pub(super) async fn nap() {
    sleep(Duration::from_secs(70)).await;
}

/// A pod as text, from the server's point of view.
fn known(pods: &ApiPods, pod: usize) -> Option<String> {
    let pod_key = key(pod);
    let known = pods.watch(&pod_key).now()?;
    let network = match PodNetwork::from_annotations(&known.facts.annotations, &Network::Default) {
        Ok(network) => network.map(|network| addresses(&network.addresses)).unwrap_or_default(),
        Err(_) => "unusable".to_owned(),
    };
    Some(state(pod_key.name(), &known.facts.uid, network))
}

fn addresses(addresses: &[impl ToString]) -> String {
    addresses.iter().map(ToString::to_string).collect()
}

fn said(seen: Seen<PodKey, (PodKey, Pod)>) -> ClusterManagerInputs {
    let pod = |(key, pod): (PodKey, Pod)| {
        let network = match pod.annotated {
            Annotated::Unusable(_) => "unusable".to_owned(),
            Annotated::Network { network, .. } => addresses(&network.addresses),
            Annotated::Nothing => String::new(),
        };
        state(key.name(), &pod.uid, network)
    };
    match seen {
        Seen::All(pods) => ClusterManagerInputs::All(pods.into_iter().map(pod).collect()),
        Seen::Applied(applied) => ClusterManagerInputs::Applied(pod(applied)),
        Seen::Deleted(key) => ClusterManagerInputs::Deleted(key.name().to_owned()),
        Seen::Unlisted(why) => unreachable!("pods are in every cluster: {why}"),
    }
}
