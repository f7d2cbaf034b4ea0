use contract::names::PodKey;
use serde_json::Value;
use testkit::{ScriptedApi, scripted_api::Asked};

use super::super::EventReason;
use super::*;
use crate::{object::Object, scripted};

/// The sending task, and the scripted API server that it talks to.
struct Played {
    api: ScriptedApi,
    events: mpsc::Sender<Event>,
    lost: Arc<AtomicU64>,
}

impl Played {
    async fn start() -> Self {
        let (api, server) = scripted::start().await;
        let (events, waiting) = mpsc::channel(16);
        let lost = Arc::<AtomicU64>::default();
        let reporter = Reporter { controller: "ovn-kubernetes/test", instance: "node1".to_owned() };
        tokio::spawn(record_to_sink(server, reporter, waiting, Arc::clone(&lost)));
        Self { api, events, lost }
    }

    async fn event(&self) {
        let pod = Object::Pod(PodKey::new("shop", "cart-0").unwrap());
        self.events
            .send(Event::new(pod, "u1", EventReason::new("AddNetwork", "NetworkFailed"), "no port"))
            .await
            .unwrap();
    }

    /// The next event that is created. Answers as the API server does.
    async fn created(&mut self) -> Value {
        let asked = self.api.asked().await;
        assert_eq!(
            (asked.method.as_str(), asked.path.as_str()),
            ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events?")
        );
        let event: Value = serde_json::from_slice(&asked.body).unwrap();
        asked.json(&event).await;
        event
    }

    async fn patch(&mut self, event: &Value) -> Asked {
        let asked = self.api.asked().await;
        let name = event["metadata"]["name"].as_str().unwrap();
        assert_eq!(
            (asked.method.as_str(), asked.path.as_str()),
            ("PATCH", format!("/apis/events.k8s.io/v1/namespaces/shop/events/{name}?").as_str())
        );
        asked
    }
}

fn count(body: &Value) -> Option<i64> {
    body["series"]["count"].as_i64()
}

#[tokio::test(start_paused = true)]
async fn repetitions_make_one_event_grow() {
    let mut played = Played::start().await;
    let begun = Instant::now();
    played.event().await;
    let event = played.created().await;
    assert_eq!(
        (count(&event), event["note"].as_str(), event["regarding"]["uid"].as_str()),
        (None, Some("no port"), Some("u1"))
    );
    for _ in 0..9 {
        played.event().await;
    }
    let patch = played.patch(&event).await;
    assert!(begun.elapsed() >= Duration::from_secs(30), "{:?}", begun.elapsed());
    let body: Value = serde_json::from_slice(&patch.body).unwrap();
    assert_eq!((count(&body), body.as_object().unwrap().len()), (Some(10), 1));
    patch.json(&event).await;
    played.api.nothing_within(Duration::from_secs(100)).await;
}

#[tokio::test(start_paused = true)]
async fn where_counting_is_not_allowed_repetitions_are_another_event() {
    for code in [403, 404] {
        let mut played = Played::start().await;
        played.event().await;
        let event = played.created().await;
        played.event().await;
        played.patch(&event).await.status(code, "events is forbidden").await;
        assert_eq!(count(&played.created().await), Some(2));
        assert_eq!(played.lost.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_does_not_take_is_counted_and_holds_up_nothing() {
    let mut played = Played::start().await;
    played.event().await;
    played.api.asked().await.status(403, "events is forbidden").await;
    played.event().await;
    let hanging = played.api.asked().await;
    played.event().await;
    let event = played.api.asked().await;
    assert_eq!(played.lost.load(Ordering::Relaxed), 2);
    assert_eq!(count(&serde_json::from_slice(&event.body).unwrap()), Some(3));
    let body = event.body.clone();
    event.json(&serde_json::from_slice(&body).unwrap()).await;
    played.api.nothing_within(Duration::from_secs(100)).await;
    assert_eq!(played.lost.load(Ordering::Relaxed), 0, "the number is in the log");
    drop(hanging);
}
