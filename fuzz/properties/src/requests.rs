//! Requests to the server: each is answered in time with a response that its caller can parse, or
//! refused with an error that it can parse. Whatever the plugin reports, metrics stay finite in
//! number and value, and events are single short lines.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use contract::{
    annotation::POD_NETWORKS,
    error::{CniError, Code},
    mtu::Mtu,
    names::PodKey,
    wire::{MAX_BODY, NodeAnswer, Response, StatusAnswer, TraceAnswer, WatchAnswer},
};
use kubeapi::events::Recorder;
use podnet::pod_look::wire::InsideAnswer;
use prometheus::{Registry, TextEncoder};
use serde_json::Value;
use server::{
    conditions::Conditions,
    daemons::Daemons,
    events::Events,
    metrics::Metrics,
    pods::{PodFacts, PodSource, PodWatch, Pods, Readiness, SourceDescription},
    ports::Ports,
    requests::{
        AddDefaults, ApiPath, ApiRequest, ApiResponse, Body, HandlerState, InFlight, Phase,
        SwitchPlaces,
    },
};
use tokio::{
    runtime::Builder,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{LONGEST_ERROR, wire};

/// Timeout for upstream's plugin, which sends none.
const USUAL: Duration = Duration::from_secs(110);
/// Longest time that any caller has to wait.
const MOST: Duration = Duration::from_secs(3600);
/// Time when the server stops: later than any answer to a CNI request.
const END: Duration = Duration::from_secs(7200);
/// Limit of the API server for the note of an event, in bytes.
const LONGEST_NOTE: usize = 1024;
/// Limit for the lines of all metrics, whatever was reported since the start of the process.
const MOST_LINES: usize = 4096;

const NETWORK: &str = r#"{"default":{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24"],"gateway_ips":["10.244.1.1"]}}"#;

/// `data` is a line with method and path, followed by a body.
pub fn check(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (head, body) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let Some((method, path)) = std::str::from_utf8(head).ok().and_then(|head| head.split_once(' '))
    else {
        return;
    };
    let Ok(method) = method.parse() else { return };
    assert!(body.len() <= MAX_BODY);
    let runtime =
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let (recorder, mut events) = Recorder::fake(16);
        let (phases, phase) = watch::channel(Phase::Running);
        let handler_state = handler_state(phase, Events::to(recorder));
        let started = Instant::now();
        let asked = ApiPath::of(&method, path).and_then(|route| route.read(body));
        let answer = async {
            match asked {
                Ok(asked) => {
                    let (kind, patience) = (Kind::of(&asked), patience(&asked));
                    let _inside = asked.span();
                    let answer = handler_state.answer(asked, started).await;
                    assert!(started.elapsed() <= patience, "{:?} instead of {patience:?}", started.elapsed());
                    answer.map(|reply| (kind, reply))
                }
                Err(refusal) => Err(refusal),
            }
        };
        let end = async {
            sleep(END).await;
            phases.send_replace(Phase::Stopping);
            std::future::pending::<()>().await
        };
        let answer = tokio::select! {
            answer = timeout(END + Duration::from_secs(1), answer) => answer.expect("it is answered before the server ends"),
            () = end => return,
        };
        match answer {
            Ok((kind, mut reply)) => check_answer(kind, &mut reply),
            Err(refusal) => check_refusal(&handler_state.refuse(&refusal, started.elapsed())),
        }
        while let Ok(event) = events.try_recv() {
            assert!(event.note().len() <= LONGEST_NOTE && !event.note().contains(char::is_control), "{:?}", event.note());
        }
    });
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Verb,
    /// Answered in the form of upstream's server, without a result.
    Del,
    Status,
    Watch,
    Port,
    Report,
    Node,
    Trace,
    Inside,
}

impl Kind {
    fn of(asked: &ApiRequest) -> Self {
        match asked {
            ApiRequest::Cni(request) => match request.env.get("CNI_COMMAND").map(String::as_str) {
                Some("STATUS") => Self::Status,
                Some("DEL") => Self::Del,
                _ => Self::Verb,
            },
            ApiRequest::Watch(_) => Self::Watch,
            ApiRequest::Port(_) => Self::Port,
            ApiRequest::Metrics(_) => Self::Report,
            ApiRequest::Node => Self::Node,
            ApiRequest::Trace(_) => Self::Trace,
            ApiRequest::Inside(_) => Self::Inside,
        }
    }
}

/// Longest time that the caller of this request may have to wait.
fn patience(asked: &ApiRequest) -> Duration {
    match asked {
        ApiRequest::Cni(request) => {
            request.timeout_ms.map_or(USUAL, Duration::from_millis).min(MOST)
        }
        ApiRequest::Watch(_) => END,
        ApiRequest::Port(_) | ApiRequest::Metrics(_) | ApiRequest::Node => Duration::ZERO,
        // At most two questions with the patience of a daemon each.
        ApiRequest::Trace(_) | ApiRequest::Inside(_) => Duration::from_secs(5),
    }
}

fn check_answer(kind: Kind, ApiResponse { status, body }: &mut ApiResponse) {
    assert_eq!(*status, 200);
    let body = match body {
        Body::Whole(body) => body.as_slice(),
        Body::News(news) => {
            assert!(
                matches!(kind, Kind::Port) && news.try_recv().is_err(),
                "news of a port that is not written"
            );
            return;
        }
    };
    match kind {
        Kind::Port => panic!("{body:?}"),
        Kind::Verb if body.is_empty() => {}
        Kind::Verb => {
            let answer: Response = read(body);
            wire::check_interface(answer.pod_if_info.expect("there is nothing else to say"));
        }
        Kind::Del => assert!(read::<Value>(body)["Result"].is_null()),
        Kind::Status => drop(read::<StatusAnswer>(body)),
        Kind::Watch => drop(read::<WatchAnswer>(body)),
        Kind::Node => drop(read::<NodeAnswer>(body)),
        Kind::Trace => drop(read::<TraceAnswer>(body)),
        Kind::Inside => drop(read::<InsideAnswer>(body)),
        Kind::Report => {
            assert!(body.is_empty());
            check_measurements();
        }
    }
}

fn check_refusal(ApiResponse { status, body }: &ApiResponse) {
    let Body::Whole(body) = body else { panic!("{body:?}") };
    assert!(status.is_client_error() || status.is_server_error(), "{status}");
    let error: CniError = read(body);
    assert_eq!(Code::from_number(error.code).number(), error.code, "{error:?}");
    for text in [&error.msg, &error.details] {
        assert!(text.len() <= LONGEST_ERROR, "a text of {} bytes", text.len());
        assert!(!text.contains(char::is_control), "{text:?}");
    }
    assert!(!error.msg.is_empty() && !error.details.is_empty(), "{error:?}");
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> T {
    serde_json::from_slice(body)
        .unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(body)))
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

/// The metrics, which accumulate all reports in this process.
static METRICS: LazyLock<Arc<Metrics>> =
    LazyLock::new(|| Arc::new(Metrics::register(&REGISTRY).expect("the registry has no others")));

fn check_measurements() {
    let text = TextEncoder::new()
        .encode_to_string(&REGISTRY.gather())
        .expect("measurements can be written");
    assert!(text.lines().count() <= MOST_LINES, "{} lines", text.lines().count());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        assert!(value.is_some_and(|value| value.is_finite() && value >= 0.0), "{line}");
    }
}

/// A server's state with a few known pods.
fn handler_state(phase: watch::Receiver<Phase>, events: Events) -> HandlerState {
    let add = AddDefaults { mtu: Mtu::DEFAULT, routable_mtu: None };
    let (source, metrics) = (Arc::new(Known::default()), Arc::clone(&METRICS));
    HandlerState {
        source,
        add,
        phase,
        adds: InFlight::default(),
        calls: InFlight::default(),
        metrics,
        events,
        daemons: Daemons::default(),
        predecessor: None,
        ports: Ports::channel().0,
        node: "n1".to_owned(),
        conditions: Conditions::default(),
        switch: SwitchPlaces::without_rules(
            "unix:/nonexistent/db.sock".parse().expect("an endpoint"),
            "/nonexistent".into(),
        ),
    }
}

/// The pods of namespace `shop`. A pod that is looked up appears at its second lookup.
#[derive(Debug)]
struct Known {
    pods: Pods,
    asked: Mutex<BTreeMap<PodKey, u32>>,
}

impl Default for Known {
    fn default() -> Self {
        let pods = Pods::default();
        let annotations = [
            ("cart", vec![(POD_NETWORKS, NETWORK)]),
            ("slow", vec![(POD_NETWORKS, NETWORK), ("kubernetes.io/egress-bandwidth", "10M")]),
            ("bare", vec![]),
            ("bad", vec![(POD_NETWORKS, r#"{"default":{"ip_addresses":["x\u0000"]}}"#)]),
        ];
        for (name, annotations) in annotations {
            let annotations = annotations
                .into_iter()
                .map(|(key, text)| (key.to_owned(), text.to_owned()))
                .collect();
            pods.put(
                &PodKey::new("shop", name).expect("a good name"),
                PodFacts { uid: "u1".to_owned(), annotations },
            );
        }
        Self { pods, asked: Mutex::default() }
    }
}

impl PodSource for Known {
    fn watch(&self, pod: &PodKey) -> PodWatch {
        self.pods.watch(pod)
    }

    fn look_up(&self, pod: &PodKey) {
        let mut asked = self.asked.lock().expect("no holder of the lock panics");
        let times = asked.entry(pod.clone()).or_default();
        *times += 1;
        if *times == 2 {
            self.pods.put(
                pod,
                PodFacts {
                    uid: "u2".to_owned(),
                    annotations: [(POD_NETWORKS.to_owned(), NETWORK.to_owned())].into(),
                },
            );
        }
    }

    fn readiness(&self) -> Readiness {
        Readiness::Behind("a pause".to_owned())
    }

    fn source_description(&self) -> SourceDescription {
        SourceDescription::ApiServer { node: "n1".to_owned() }
    }
}
