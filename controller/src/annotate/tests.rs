//! The patcher against a scripted API server, on a paused clock.

use std::time::Duration;

use contract::names::{ClusterPolicyKey, ClusterPolicyKind, PodKey};
use kubeapi::events::{Event, Reporter};
use prometheus::Registry;
use serde_json::{Value, json};
use testkit::{ScriptedApi, scripted_api::Asked};
use tokio::{
    sync::mpsc::{Receiver, UnboundedSender, unbounded_channel},
    time::Instant,
};

use crate::{config::Zone, scripted, status_writeback::RowsState};

use super::*;

struct Played {
    api: ScriptedApi,
    wishes: UnboundedSender<Annotations>,
    told: Receiver<Event>,
    registry: Registry,
    _writing: AnnotationWriter,
}

impl Wish for Annotations {
    const KIND: &'static str = "pod";
    const MATTER: Matter = Matter::Annotations;

    fn object(&self) -> Object {
        self.object.clone()
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn spell(&self) -> Change {
        Change::Annotations(self.clone())
    }
}

impl Played {
    async fn start() -> Self {
        let (api, server) = scripted::start().await;
        let (wishes, wished) = unbounded_channel();
        let (recorder, told) = Recorder::fake(16);
        let registry = Registry::new();
        let metrics = AnnotationMetrics::register(&registry).unwrap();
        Self {
            api,
            wishes,
            told,
            registry,
            _writing: AnnotationWriter::start(
                server,
                Leadership::always(),
                recorder,
                metrics,
                wished,
            ),
        }
    }

    fn wish(&self, pod: &str, value: &str) {
        self.wish_over(pod, value, Texts::NoneAtAll);
    }

    fn wish_over(&self, pod: &str, value: &str, over: Texts) {
        let (pod, annotations) =
            (PodKey::new("shop", pod).unwrap(), BTreeMap::from([("a/b", value.to_owned())]));
        self.wishes
            .send(Annotations {
                object: Object::Pod(pod),
                uid: "u1".into(),
                values: annotations,
                only: Only::Over(over),
            })
            .unwrap();
    }

    /// Objects that are refused, by reason.
    fn refused(&self) -> BTreeMap<String, f64> {
        let families = self.registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == "ovnkube_controller_annotations_refused");
        let metrics = family.into_iter().flat_map(|family| family.get_metric());
        let reason = |metric: &prometheus::proto::Metric| {
            metric
                .get_label()
                .iter()
                .find(|label| label.name() == "reason")
                .unwrap()
                .value()
                .to_owned()
        };
        metrics
            .map(|metric| (reason(metric), metric.get_gauge().get_value()))
            .filter(|(_, objects)| *objects != 0.0)
            .collect()
    }

    async fn patch(&mut self) -> (Asked, Value) {
        let asked = self.api.asked().await;
        assert_eq!(
            (asked.method.as_str(), asked.header("content-type")),
            ("PATCH", Some("application/json-patch+json"))
        );
        let body = serde_json::from_slice(&asked.body).unwrap();
        (asked, body)
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_of_the_status_and_names_the_object_that_is_meant() {
    let mut played = Played::start().await;
    played.wish("cart", "1");
    let (asked, body) = played.patch().await;
    assert_eq!(asked.path, "/api/v1/namespaces/shop/pods/cart/status?");
    let uid = json!({"op": "replace", "path": "/metadata/uid", "value": "u1"});
    let none = json!({"op": "test", "path": "/metadata/annotations", "value": null});
    assert_eq!(
        body,
        json!([uid, none, {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}}])
    );
    asked.json(&json!({})).await;
    played.api.nothing_within(Duration::from_secs(100)).await;
}

/// With the UID as its only precondition, a late patch of a former leader overwrote its successor's
/// decision.
#[tokio::test(start_paused = true)]
async fn a_patch_is_for_the_annotations_that_were_decided_on_and_is_dropped_if_there_are_others() {
    let mut played = Played::start().await;
    for (seen, expected) in [(None, Value::Null), (Some("0"), json!("0"))] {
        let texts = seen.into_iter().map(|text| ("a/b", text.to_owned())).collect();
        played.wish_over("cart", "1", Texts::These(Arc::new(texts)));
        let (asked, body) = played.patch().await;
        let test = json!({"op": "test", "path": "/metadata/annotations/a~1b", "value": expected});
        let uid = json!({"op": "replace", "path": "/metadata/uid", "value": "u1"});
        assert_eq!(
            body,
            json!([uid, test, {"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"}])
        );
        asked.status(422, "the server rejected our request due to an error in our request").await;
        played.api.nothing_within(Duration::from_secs(100)).await;
    }
    assert_eq!(played.refused(), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_gone_are_forgotten_and_others_are_tried_until_they_are_written() {
    let conflict = "Precondition failed: UID in precondition: u1, UID in object meta: u2";
    let mut played = Played::start().await;
    let immutable =
        "Pod \"cart\" is invalid: metadata.uid: Invalid value: \"u1\": field is immutable";
    for (code, message) in [(404, "pods \"cart\" not found"), (409, conflict), (422, immutable)] {
        played.wish("cart", "1");
        played.patch().await.0.status(code, message).await;
        played.api.nothing_within(Duration::from_secs(100)).await;
    }
    played.wish("cart", "1");
    for (code, message) in [
        (409, "the object has been modified"),
        (500, "etcd"),
        (422, "too long"),
        (403, "may not"),
        (429, "too many requests"),
    ] {
        for _ in 0..3 {
            played.patch().await.0.status(code, message).await;
        }
    }
    // No answer at all.
    let (hanging, _) = played.patch().await;
    let began = Instant::now();
    let (asked, _) = played.patch().await;
    assert!(began.elapsed() >= Duration::from_secs(30));
    drop(hanging);
    asked.json(&json!({})).await;
    played.api.nothing_within(Duration::from_secs(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_wish_replaces_one_that_was_not_written() {
    let mut played = Played::start().await;
    played.wish("cart", "1");
    let (asked, _) = played.patch().await;
    played.wish("cart", "2");
    played.wish("cart", "3");
    asked.status(500, "etcd").await;
    let (asked, body) = played.patch().await;
    assert_eq!(body[2]["value"]["a/b"], "3");
    asked.json(&json!({})).await;
    played.api.nothing_within(Duration::from_secs(100)).await;
}

/// One pod that an admission webhook refused stopped the annotations of the whole cluster. The only
/// trace was a log line about roles.
#[tokio::test(start_paused = true)]
async fn a_pod_that_a_webhook_refuses_hears_of_it_and_keeps_no_other_waiting() {
    let denied = "admission webhook \"check.example.org\" denied the request: no";
    let mut played = Played::start().await;
    played.wish("broken", "1");
    for _ in 0..20 {
        let (asked, _) = played.patch().await;
        assert!(asked.path.contains("/pods/broken/"));
        asked.status(403, denied).await;
    }
    played.wish("cart", "1");
    let began = Instant::now();
    let (asked, _) = played.patch().await;
    assert!(
        asked.path.contains("/pods/cart/") && began.elapsed() < Duration::from_millis(100),
        "{} {:?}",
        asked.path,
        began.elapsed()
    );
    asked.json(&json!({})).await;

    let told = played.told.recv().await.unwrap();
    assert!(told.note().contains(denied), "{}", told.note());
    let event =
        told.to_api(&Reporter { controller: "ovn-kubernetes/test", instance: "test".to_owned() });
    assert_eq!(event.reason.as_deref(), Some("AnnotationsRefused"));
    let regarding = event.regarding.unwrap();
    assert_eq!((regarding.name.as_deref(), regarding.uid.as_deref()), (Some("broken"), Some("u1")));
    assert_eq!(played.refused(), BTreeMap::from([("Forbidden".to_owned(), 1.0)]));
    played.patch().await.0.json(&json!({})).await;
    played.api.nothing_within(Duration::from_secs(100)).await;
    assert_eq!(played.refused(), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn an_annotation_of_a_node_goes_to_the_version_that_was_decided_on_and_to_no_other() {
    let (mut api, server) = scripted::start().await;
    let (wishes, wished) = unbounded_channel();
    let metrics = AnnotationMetrics::register(&Registry::new()).unwrap();
    let (recorder, _told) = Recorder::fake(16);
    let _writing = AnnotationWriter::start::<NodeAnnotation>(
        server,
        Leadership::always(),
        recorder,
        metrics,
        wished,
    );
    let wish = |version: &str| NodeAnnotation {
        node: "n1".into(),
        uid: "u1".into(),
        version: version.into(),
        annotations: BTreeMap::from([("a/b", "1".to_owned())]),
    };
    wishes.send(wish("7")).unwrap();
    let asked = api.asked().await;
    let body: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(
        body,
        json!({"metadata": {"uid": "u1", "resourceVersion": "7", "annotations": {"a/b": "1"}}})
    );
    asked
        .status(409, "Operation cannot be fulfilled on nodes \"n1\": the object has been modified")
        .await;
    api.nothing_within(Duration::from_secs(100)).await;
    wishes.send(wish("8")).unwrap();
    let asked = api.asked().await;
    let body: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(body["metadata"]["resourceVersion"], "8");
    asked.json(&json!({})).await;
    api.nothing_within(Duration::from_secs(100)).await;
}

/// A status whose kind is not served, or that this program may not write, would be tried for ever.
#[tokio::test(start_paused = true)]
async fn a_status_is_applied_for_its_own_manager_and_not_tried_again_where_it_cannot_be_written() {
    let (mut api, server) = scripted::start().await;
    let (wishes, wished) = unbounded_channel();
    let metrics = AnnotationMetrics::register(&Registry::new()).unwrap();
    let (recorder, _told) = Recorder::fake(16);
    let _writing = AnnotationWriter::start::<PolicyCondition>(
        server,
        Leadership::always(),
        recorder,
        metrics,
        wished,
    );
    let wish = || PolicyCondition {
        policy: ClusterPolicyKey::new(ClusterPolicyKind::AdminNetworkPolicy, "p").unwrap(),
        uid: "u1".into(),
        zone: Zone("z1".to_owned()),
        generation: 3,
        standing: RowsState::Ready,
        since: Some("2023-01-01T00:00:00Z".into()),
    };
    let collection = "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies";
    let unknown = "the server could not find the requested resource";
    let conflict = "Precondition failed: UID in precondition: u1, UID in object meta: u2";
    let named = "adminnetworkpolicies.policy.networking.k8s.io \"p\" not found";
    for (code, message) in [(403, "may not"), (404, unknown), (404, named), (409, conflict)] {
        wishes.send(wish()).unwrap();
        let asked = api.asked().await;
        assert_eq!(
            (asked.method.as_str(), asked.header("content-type")),
            ("PATCH", Some("application/apply-patch+yaml"))
        );
        assert_eq!(asked.path.split('?').next().unwrap(), format!("{collection}/p/status"));
        assert_eq!(
            (asked.parameter("fieldManager"), asked.parameter("force")),
            (Some("z1"), Some("true"))
        );
        let body: Value = serde_json::from_slice(&asked.body).unwrap();
        assert_eq!(
            body,
            json!({
                "apiVersion": "policy.networking.k8s.io/v1alpha1",
                "kind": "AdminNetworkPolicy",
                "metadata": {"name": "p", "uid": "u1"},
                "status": {"conditions": [{
                    "type": "Ready-In-Zone-z1",
                    "status": "True",
                    "reason": "SetupSucceeded",
                    "message": "its rows are in OVN's northbound database",
                    "observedGeneration": 3,
                    "lastTransitionTime": "2023-01-01T00:00:00Z",
                }]},
            })
        );
        asked.status(code, message).await;
        api.nothing_within(Duration::from_secs(100)).await;
    }
    // What may pass by itself is tried again.
    wishes.send(wish()).unwrap();
    for (code, message) in [(500, "etcd"), (429, "too many requests"), (409, "conflict")] {
        api.asked().await.status(code, message).await;
    }
    api.asked().await.json(&json!({})).await;
    api.nothing_within(Duration::from_secs(100)).await;
}
