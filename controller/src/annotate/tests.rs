//! The writer against an API server that a test plays, on a paused clock.

use std::time::Duration;

use ::tests::{ScriptedApi, scripted_api::Asked};
use contract::names::PodKey;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::Instant,
};

use super::*;
use crate::api_server::scripted;

struct Played {
    api: ScriptedApi,
    wishes: UnboundedSender<PodAnnotation>,
    _writing: Writing,
}

impl Played {
    async fn start() -> Self {
        let (api, server) = scripted::start().await;
        let (wishes, wished) = unbounded_channel();
        let metrics = Metrics::register(&Registry::new()).unwrap();
        Self { api, wishes, _writing: Writing::start(server, Leadership::always(), metrics, wished) }
    }

    fn wish(&self, pod: &str, value: &str) {
        let pod = PodKey::new("shop", pod).unwrap();
        self.wishes.send(PodAnnotation { pod, uid: "u1".into(), annotations: BTreeMap::from([("a/b", value.to_owned())]) }).unwrap();
    }

    async fn patch(&mut self) -> (Asked, Value) {
        let asked = self.api.asked().await;
        assert_eq!((asked.method.as_str(), asked.header("content-type")), ("PATCH", Some("application/merge-patch+json")));
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
    assert_eq!(body, json!({"metadata": {"uid": "u1", "annotations": {"a/b": "1"}}}));
    asked.json(&json!({})).await;
    played.api.nothing_within(Duration::from_secs(100)).await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_gone_are_forgotten_and_others_are_tried_until_they_are_written() {
    let conflict = "Precondition failed: UID in precondition: u1, UID in object meta: u2";
    let mut played = Played::start().await;
    for (code, message) in [(404, "pods \"cart\" not found"), (409, conflict)] {
        played.wish("cart", "1");
        played.patch().await.0.status(code, message).await;
        played.api.nothing_within(Duration::from_secs(100)).await;
    }
    played.wish("cart", "1");
    for (code, message) in
        [(409, "the object has been modified"), (500, "etcd"), (422, "too long"), (403, "may not"), (429, "too many requests")]
    {
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
    assert_eq!(body["metadata"]["annotations"]["a/b"], "3");
    asked.json(&json!({})).await;
    played.api.nothing_within(Duration::from_secs(100)).await;
}
