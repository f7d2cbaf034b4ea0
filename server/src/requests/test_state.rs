//! A server under the control of a test: its pods, its phase, and the ports that it is asked to
//! write.

use std::{collections::BTreeMap, sync::Arc};

use contract::{annotation::POD_NETWORKS, mtu::Mtu, names::PodKey, wire::Request};
use tokio::sync::watch;

use super::{AddDefaults, HandlerState, InFlight, Phase, SwitchPlaces};
use crate::{
    conditions::Conditions,
    daemons::Daemons,
    events::Events,
    pods::{PodFacts, PodSource, PodWatch, Pods, Readiness, SourceDescription},
    ports::{Ports, WriteQueue},
};

/// A source under the control of a test.
#[derive(Debug, Default)]
struct Played {
    pods: Pods,
    lagging: bool,
}

impl PodSource for Played {
    fn watch(&self, pod: &PodKey) -> PodWatch {
        self.pods.watch(pod)
    }

    fn readiness(&self) -> Readiness {
        if self.lagging {
            Readiness::NotSynced("the API server does not answer".to_owned())
        } else {
            Readiness::Synced
        }
    }

    fn source_description(&self) -> SourceDescription {
        SourceDescription::ApiServer { node: "node1".to_owned() }
    }
}

/// The state of a server, and what a test changes.
pub(super) struct TestState {
    pub(super) handler_state: Arc<HandlerState>,
    pub(super) pods: Pods,
    pub(super) phase: watch::Sender<Phase>,
    /// The ports that the server would write.
    pub(super) queue: WriteQueue,
}

pub(super) fn handler_state(lagging: bool) -> TestState {
    let pods = Pods::default();
    let (ports, queue) = Ports::channel();
    let (phase, phases) = watch::channel(Phase::Running);
    let source = Arc::new(Played { pods: pods.clone(), lagging });
    let add = AddDefaults { mtu: Mtu::DEFAULT, routable_mtu: None };
    TestState {
        handler_state: Arc::new(HandlerState {
            source,
            add,
            phase: phases,
            adds: InFlight::default(),
            calls: InFlight::default(),
            metrics: Arc::default(),
            events: Events::default(),
            daemons: Daemons::default(),
            predecessor: None,
            ports,
            node: "n1".to_owned(),
            conditions: Conditions::default(),
            switch: SwitchPlaces::without_rules(
                "unix:/nonexistent/db.sock".parse().expect("an endpoint"),
                "/nonexistent".into(),
            ),
        }),
        pods,
        phase,
        queue,
    }
}

pub(super) fn cart() -> PodKey {
    PodKey::new("shop", "cart-0").unwrap()
}

pub(super) fn facts(uid: &str, annotated: Option<&str>) -> PodFacts {
    let annotation = annotated.map(|text| (POD_NETWORKS.to_owned(), text.to_owned()));
    PodFacts { uid: uid.to_owned(), annotations: annotation.into_iter().collect() }
}

/// An annotation with one address.
pub(super) const GOOD: Option<&str> =
    Some(r#"{"default":{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24"]}}"#);

/// An ADD of `shop/cart-0`.
pub(super) fn request(change: impl FnOnce(&mut Request)) -> Request {
    let env = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=u1"),
    ];
    let env: BTreeMap<_, _> = env.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let config =
        br#"{"cniVersion":"1.0.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}"#.to_vec();
    let mut request = Request { env, config, timeout_ms: None };
    change(&mut request);
    request
}
