use prometheus::Registry;
use serde_json::json;

use super::*;
use crate::{
    metrics::tests::{registered, text},
    pods::PodFacts,
    scripted::{AboutPods as _, Asked, Scripted, WatchStream, connection, pod},
};

/// A source, and the scripted API server that it talks to.
struct Played {
    api: Scripted,
    source: ApiPods,
    conditions: Conditions,
    measured: Registry,
}

impl Played {
    async fn start() -> Self {
        let api = Scripted::start().await;
        let conditions = Conditions::default();
        let (measured, metrics) = registered();
        let source =
            ApiPods::start(connection(&api), "node1", conditions.clone(), Arc::new(metrics));
        Self { api, source, conditions, measured }
    }

    /// A source after the first list, with a watch from version 100.
    async fn synced(pods: &[serde_json::Value]) -> (Self, WatchStream) {
        let mut played = Self::start().await;
        let list = played.api.asked().await;
        list.assert_list(Some("0"));
        list.list("100", pods).await;
        let watch = played.watched("100").await;
        played.ready(|readiness| *readiness == Readiness::Synced).await;
        (played, watch)
    }

    /// Waits for the next watch request, which must start from `version`.
    async fn watched(&mut self, version: &str) -> WatchStream {
        let watch = self.api.asked().await;
        watch.assert_watch(version);
        watch.begin().await
    }

    async fn ready(&self, wanted: impl Fn(&Readiness) -> bool) -> String {
        for _ in 0..100_000 {
            match self.source.readiness() {
                readiness if wanted(&readiness) => {
                    return match readiness {
                        Readiness::Synced => String::new(),
                        Readiness::Behind(why) | Readiness::NotSynced(why) => why,
                    };
                }
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        panic!("{:?}", self.source.readiness());
    }

    /// Waits until the pod has this UID. `None`: until it is not known.
    async fn uid(&self, name: &str, wanted: Option<&str>) {
        let mut watch = self.source.watch(&key(name));
        let there = async {
            while watch.now().map(|pod| pod.facts.uid.clone()).as_deref() != wanted {
                watch.changed().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(5), there).await.is_err() {
            panic!("pod {name}: wanted {wanted:?}, have {:?}", watch.now());
        }
    }
}

fn key(name: &str) -> PodKey {
    PodKey::new("shop", name).unwrap()
}

fn status(code: u16, message: &str) -> serde_json::Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "Expired"})
}

#[tokio::test(start_paused = true)]
async fn pods_of_this_node_are_listed_and_then_watched_without_what_nobody_needs() {
    let mut played = Played::start().await;
    let list = played.api.asked().await;
    list.assert_list(Some("0"));
    assert!(
        list.header("accept").unwrap().contains("as=PartialObjectMetadataList"),
        "{}",
        list.head
    );
    list.list("100", &[pod("a", "u1", "90")]).await;
    let mut watch = played.watched("100").await;
    played.uid("a", Some("u1")).await;
    let facts = PodFacts {
        uid: "u1".to_owned(),
        annotations: [("ovn".to_owned(), "{}".to_owned())].into(),
    };
    assert_eq!(played.source.watch(&key("a")).now().unwrap().facts, facts);

    watch.send("ADDED", &pod("b", "u2", "101")).await;
    played.uid("b", Some("u2")).await;
    watch.send("DELETED", &pod("a", "u1", "102")).await;
    played.uid("a", None).await;
    // Deleted and created again under one name: another pod.
    watch.send("DELETED", &pod("b", "u2", "103")).await;
    watch.send("ADDED", &pod("b", "u3", "104")).await;
    played.uid("b", Some("u3")).await;
    assert!(!played.conditions.all_missing().contains_key(&Part::PODS));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_or_is_cut_goes_on_where_it_was() {
    let (mut played, mut watch) = Played::synced(&[]).await;
    watch.send("ADDED", &pod("a", "u1", "105")).await;
    played.uid("a", Some("u1")).await;
    watch.end().await;
    let mut watch = played.watched("105").await;
    watch.bookmark("110").await;
    // Half an event, and the end.
    watch.raw(r#"{"type":"DELETED","obj"#).await;
    drop(watch);
    let mut watch = played.watched("110").await;
    watch.send("DELETED", &pod("a", "u1", "111")).await;
    played.uid("a", None).await;
    assert_eq!(played.source.readiness(), Readiness::Synced);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_costs_a_list_that_shows_what_was_deleted_meanwhile() {
    let (mut played, mut watch) =
        Played::synced(&[pod("a", "u1", "90"), pod("b", "u2", "91")]).await;
    watch.send("ERROR", &status(410, "too old resource version: 100 (200)")).await;
    let list = played.api.asked().await;
    list.assert_list(None);
    list.list("200", &[pod("b", "u3", "150")]).await;
    played.uid("a", None).await;
    played.uid("b", Some("u3")).await;
    drop(played.watched("200").await);

    // The same error as an HTTP answer instead of an event, which is the other way to report it.
    let watch = played.api.asked().await;
    watch.assert_watch("200");
    watch.status(410, "too old resource version: 200 (300)").await;
    let list = played.api.asked().await;
    list.assert_list(None);
    list.list("300", &[]).await;
    played.uid("b", None).await;
    played.watched("300").await;
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_api_server_is_left_alone_as_long_as_it_asks() {
    let mut played = Played::start().await;
    let begun = Instant::now();
    played
        .api
        .asked()
        .await
        .answer(
            "429 Too Many Requests",
            "Retry-After: 7\r\n",
            "too many requests, please try again later",
        )
        .await;
    let why = played
        .ready(|readiness| matches!(readiness, Readiness::NotSynced(why) if why.contains("(429")))
        .await;
    assert!(why.contains("too many requests, please try again later"), "{why}");
    let list = played.api.asked().await;
    assert!(
        begun.elapsed() >= Duration::from_secs(7) && begun.elapsed() < Duration::from_secs(12),
        "{:?}",
        begun.elapsed()
    );
    list.list("100", &[]).await;

    // A storm of these errors, in all forms, costs no list.
    for n in 0..8 {
        let watch = played.api.asked().await;
        watch.assert_watch("100");
        match n % 3 {
            0 => watch.answer("429 Too Many Requests", "Retry-After: 1\r\n", "").await,
            1 => watch.status(503, "starting").await,
            _ => watch.answer("500 Internal Server Error", "", "<html>").await,
        }
    }
    let mut watch = played.watched("100").await;
    watch.send("ADDED", &pod("a", "u1", "101")).await;
    played.uid("a", Some("u1")).await;
}

#[tokio::test(start_paused = true)]
async fn attempts_become_rarer_and_nobody_is_asked_in_a_loop() {
    let mut played = Played::start().await;
    let begun = Instant::now();
    let mut attempts = 0;
    while begun.elapsed() < Duration::from_secs(120) {
        played.api.asked().await.status(500, "broken").await;
        attempts += 1;
    }
    assert!((10..40).contains(&attempts), "{attempts}");

    // Watches that end as soon as they begin are slowed down, too.
    played.api.asked().await.list("100", &[]).await;
    let (begun, mut attempts) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(120) {
        played.watched("100").await.end().await;
        attempts += 1;
    }
    assert!((10..40).contains(&attempts), "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_in_watches_and_lists() {
    let (mut played, silent) = Played::synced(&[]).await;
    let begun = Instant::now();
    let mut watch = played.watched("100").await;
    assert!((60..120).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    drop(silent);
    // A bookmark is enough to show that the watch works.
    for version in ["101", "102", "103"] {
        tokio::time::sleep(Duration::from_secs(60)).await;
        watch.bookmark(version).await;
    }
    played.api.nothing_within(Duration::from_secs(60)).await;

    let mut played = Played::start().await;
    let unanswered = played.api.asked().await;
    let list = played.api.asked().await;
    drop(unanswered);
    let why = played
        .ready(|readiness| matches!(readiness, Readiness::NotSynced(why) if why.contains("within")))
        .await;
    assert!(why.contains("did not answer within 60s"), "{why}");
    list.list("100", &[]).await;
    played.watched("100").await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_read_is_made_up_for_by_a_list() {
    for garbage in [
        "\u{0}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":7}}}\n",
        "[]\n",
        "{\"type\":\"ADDED\",\"object\":{}}\n",
    ] {
        let (mut played, mut watch) = Played::synced(&[]).await;
        watch.raw(garbage).await;
        let list = played.api.asked().await;
        list.assert_list(None);
        list.list("120", &[pod("a", "u1", "110")]).await;
        played.uid("a", Some("u1")).await;
        played.watched("120").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages_and_begins_anew_when_its_token_expires() {
    let page = |version: &str, name: &str, next: &str| json!({"metadata": {"resourceVersion": version, "continue": next}, "items": [pod(name, "u1", "90")]});
    let mut played = Played::start().await;
    played.api.asked().await.json(&page("100", "a", "c1")).await;
    let second = played.api.asked().await;
    assert_eq!(
        (second.parameter("continue"), second.parameter("resourceVersion")),
        (Some("c1"), None)
    );
    second.status(410, "The provided continue parameter is too old").await;
    let list = played.api.asked().await;
    assert_eq!(list.parameter("continue"), None);
    list.json(&page("200", "b", "c2")).await;
    played.api.asked().await.json(&page("200", "c", "")).await;
    played.watched("200").await;
    played.uid("a", None).await;
    played.uid("b", Some("u1")).await;
    played.uid("c", Some("u1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_known_is_looked_up_once_however_many_ask() {
    let (mut played, mut watch) = Played::synced(&[]).await;
    (0..10).for_each(|_| played.source.look_up(&key("a")));
    let lookup = played.api.asked().await;
    assert!(lookup.path.starts_with("/api/v1/namespaces/shop/pods?"), "{}", lookup.path);
    assert_eq!(
        lookup.parameter("fieldSelector"),
        Some("metadata.name%3Da%2Cspec.nodeName%3Dnode1")
    );
    lookup.list("101", &[pod("a", "u1", "101")]).await;
    played.uid("a", Some("u1")).await;
    // The watch catches up with events that are older than the lookup.
    watch.send("ADDED", &pod("a", "u1", "101")).await;
    played.api.nothing_within(Duration::from_secs(30)).await;
    played.uid("a", Some("u1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_lookup_does_not_bring_back_what_the_watch_saw_go() {
    let (mut played, mut watch) = Played::synced(&[]).await;
    played.source.look_up(&key("a"));
    let lookup = played.api.asked().await;
    watch.send("ADDED", &pod("a", "u1", "101")).await;
    watch.send("DELETED", &pod("a", "u1", "102")).await;
    watch.send("ADDED", &pod("b", "u2", "103")).await;
    played.uid("b", Some("u2")).await;
    lookup.list("101", &[pod("a", "u1", "101")]).await;
    played.api.nothing_within(Duration::from_secs(10)).await;
    played.uid("a", None).await;
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_fails_or_hangs_leaves_room_for_the_next() {
    let (mut played, _watch) = Played::synced(&[]).await;
    played.source.look_up(&key("a"));
    played.api.asked().await.status(500, "broken").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    played.source.look_up(&key("a"));
    let hanging = played.api.asked().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    played.source.look_up(&key("a"));
    played.api.asked().await.list("101", &[pod("a", "u1", "101")]).await;
    played.uid("a", Some("u1")).await;
    drop(hanging);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_behind_a_lookup_is_begun_anew() {
    let (mut played, stuck) = Played::synced(&[]).await;
    played.source.look_up(&key("a"));
    played.api.asked().await.list("105", &[pod("a", "u1", "105")]).await;
    let begun = Instant::now();
    let mut watch = played.watched("100").await;
    assert!((2..10).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    drop(stuck);
    // The events that were held back arrive now.
    watch.send("ADDED", &pod("b", "u2", "103")).await;
    watch.send("ADDED", &pod("a", "u1", "105")).await;
    watch.send("DELETED", &pod("a", "u1", "106")).await;
    played.uid("b", Some("u2")).await;
    played.uid("a", None).await;
}

#[tokio::test(start_paused = true)]
async fn versions_that_go_back_are_a_restore_and_what_was_known_no_longer_counts() {
    for kind in ["BOOKMARK", "MODIFIED"] {
        let (mut played, mut watch) = Played::synced(&[pod("a", "u1", "90")]).await;
        watch.send(kind, &pod("b", "u2", "50")).await;
        let list = played.api.asked().await;
        list.assert_list(None);
        list.list("60", &[pod("b", "u2", "50")]).await;
        played.uid("a", None).await;
        played.uid("b", Some("u2")).await;
        played.watched("60").await;
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_says_what_the_api_server_says() {
    let mut played = Played::start().await;
    assert!(
        matches!(played.source.readiness(), Readiness::NotSynced(why) if why.contains("has not answered yet"))
    );
    let forbidden = "pods is forbidden: User \"n\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
    for (code, message, words) in [
        (403, forbidden, "see the roles bound to this user"),
        (401, "Unauthorized", "does not accept no credentials"),
    ] {
        played.api.asked().await.status(code, message).await;
        let why = played
            .ready(
                |readiness| matches!(readiness, Readiness::NotSynced(why) if why.contains(message)),
            )
            .await;
        assert!(why.contains(words) && why.contains(&played.api.url), "{why}");
        assert_eq!(played.conditions.all_missing()[&Part::PODS], why);
    }
    let Played { api, source, conditions, measured: _ } = played;
    let url = api.go_away().await;
    let refused = async {
        while !matches!(source.readiness(), Readiness::NotSynced(why) if why.contains("Connection refused") && why.contains(&url))
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused)
        .await
        .unwrap_or_else(|_| panic!("{:?}", source.readiness()));
    assert!(conditions.all_missing()[&Part::PODS].contains("Connection refused"));
}

#[tokio::test(start_paused = true)]
async fn what_was_known_once_stays_good_however_long_the_api_server_is_away_and_readyz_says_so() {
    let (mut played, watch) = Played::synced(&[pod("a", "u1", "90")]).await;
    drop(watch);
    let away = |asked: Asked| async { asked.status(503, "shutting down").await };
    away(played.api.asked().await).await;
    let why = played.ready(|readiness| matches!(readiness, Readiness::Behind(_))).await;
    assert!(why.contains("shutting down"), "{why}");
    assert!(!played.conditions.all_missing().contains_key(&Part::PODS));
    played.uid("a", Some("u1")).await;

    let degraded = "ovnkube_node_degraded{cause=\"api-server\"}";
    assert!(text(&played.measured).contains(&format!("{degraded} 1")));
    let begun = Instant::now();
    while !played.conditions.all_missing().contains_key(&Part::PODS) {
        away(played.api.asked().await).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((10..40).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(
        matches!(played.source.readiness(), Readiness::Behind(_)),
        "{:?}",
        played.source.readiness()
    );
    played.uid("a", Some("u1")).await;
    let _watch = played.watched("100").await;
    played.ready(|readiness| *readiness == Readiness::Synced).await;
    let text = text(&played.measured);
    assert!(text.contains(&format!("{degraded} 0")), "{text}");
    assert!(text.contains("ovnkube_node_reconnects_total{peer=\"api-server\"} 1"), "{text}");
}
