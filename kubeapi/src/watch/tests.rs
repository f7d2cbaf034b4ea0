//! Watches of a scripted API server, on a paused clock.

use std::time::Duration;

use kube::api::ObjectMeta;
use prometheus::Registry;
use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{
    ScriptedApi,
    scripted_api::{Asked, WatchStream},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, timeout},
};

use super::*;
use crate::scripted;

mod optional_kinds;

/// A pod, of which the watch reports the name.
#[derive(Debug, Clone, Deserialize)]
struct Pod {
    metadata: ObjectMeta,
}

impl Watched for Pod {
    type Key = String;
    type Value = String;
    const PATH: &'static str = "/api/v1/pods";
    const KIND: &'static str = "pods";

    fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn key(&self) -> Result<String, String> {
        let name = self.metadata.name.clone().unwrap_or_default();
        if name.contains(' ') { Err(format!("{name:?} is no name")) } else { Ok(name) }
    }

    fn value(self) -> Result<String, String> {
        self.key()
    }
}

/// A watch of pods, and the scripted API server that it talks to.
struct Played {
    api: ScriptedApi,
    connection: Connection,
    watch: Watch,
    seen: UnboundedReceiver<Seen<String, String>>,
}

impl Played {
    async fn start() -> Self {
        let (api, connection) = scripted::start().await;
        let (sender, seen) = unbounded_channel();
        let tell = move |seen| drop(sender.send(seen));
        let watch = Watch::start::<Pod>(
            connection.clone(),
            Metrics::register(&Registry::new(), "test").unwrap(),
            tell,
        );
        Self { api, connection, watch, seen }
    }

    /// A watch that has listed pod `a` at version 5 and is connected.
    async fn synced() -> (Self, WatchStream) {
        let mut played = Self::start().await;
        let mut stream = played.everything().await.begin().await;
        stream.send("ADDED", &pod("a", "3")).await;
        end_of_everything(&mut stream, "5").await;
        assert_eq!(played.told().await, "all a");
        (played, stream)
    }

    async fn everything(&mut self) -> Asked {
        let asked = self.api.asked().await;
        assert!(asked.path.starts_with("/api/v1/pods?") && asked.is_watch(), "{}", asked.path);
        assert_eq!(
            (asked.parameter("sendInitialEvents"), asked.parameter("resourceVersionMatch")),
            (Some("true"), Some("NotOlderThan"))
        );
        assert_eq!(
            asked.parameter("resourceVersion"),
            Some(""),
            "the newest, not what one API server remembers"
        );
        asked
    }

    async fn changes_from(&mut self, version: &str) -> Asked {
        let asked = self.api.asked().await;
        assert_eq!(
            (asked.parameter("resourceVersion"), asked.parameter("sendInitialEvents")),
            (Some(version), None),
            "{}",
            asked.path
        );
        asked
    }

    async fn told(&mut self) -> String {
        match timeout(Duration::from_secs(600), self.seen.recv()).await.unwrap().unwrap() {
            Seen::All(pods) => format!("all {}", pods.join(" ")),
            Seen::Applied(pod) => format!("applied {pod}"),
            Seen::Deleted(pod) => format!("deleted {pod}"),
            Seen::Unlisted(why) => format!("unlisted {why}"),
        }
    }

    fn standing(&self) -> SyncStatus {
        self.watch.standing().borrow().clone()
    }
}

fn pod(name: &str, version: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version}, "spec": {"nodeName": "n1"}})
}

async fn end_of_everything(stream: &mut WatchStream, version: &str) {
    let metadata =
        json!({"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}});
    stream
        .send("BOOKMARK", &json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}))
        .await;
}

#[tokio::test(start_paused = true)]
async fn everything_is_told_at_once_and_then_each_change() {
    let mut played = Played::start().await;
    assert!(matches!(played.standing(), SyncStatus::Reading(_)));
    let mut stream = played.everything().await.begin().await;
    stream.send("ADDED", &pod("a", "3")).await;
    stream.send("ADDED", &pod("NO NAME", "4")).await;
    stream.send("ADDED", &pod("b", "2")).await;
    end_of_everything(&mut stream, "5").await;
    assert_eq!(played.told().await, "all a b");
    stream.send("MODIFIED", &pod("b", "6")).await;
    stream.send("DELETED", &pod("a", "7")).await;
    stream.send("ADDED", &pod("c", "8")).await;
    assert_eq!(
        (played.told().await, played.told().await, played.told().await),
        ("applied b".into(), "deleted a".into(), "applied c".into())
    );
    assert_eq!(played.standing(), SyncStatus::Synced);
}

/// The control plane kept pods that were deleted while it listed all of them, and listed none at
/// all if the API server was lost just then.
#[tokio::test(start_paused = true)]
async fn what_changes_while_everything_is_told_is_part_of_it() {
    let mut played = Played::start().await;
    let mut stream = played.everything().await.begin().await;
    stream.send("ADDED", &pod("a", "3")).await;
    stream.send("DELETED", &pod("a", "4")).await;
    stream.end().await;
    let mut stream = played.everything().await.begin().await;
    stream.send("ADDED", &pod("a", "3")).await;
    stream.send("ADDED", &pod("b", "2")).await;
    stream.send("MODIFIED", &pod("b", "5")).await;
    stream.send("DELETED", &pod("a", "6")).await;
    end_of_everything(&mut stream, "6").await;
    assert_eq!(played.told().await, "all b");
    stream.send("DELETED", &pod("b", "7")).await;
    assert_eq!(played.told().await, "deleted b");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_ended() {
    let (mut played, mut stream) = Played::synced().await;
    stream.send("ADDED", &pod("b", "6")).await;
    assert_eq!(played.told().await, "applied b");
    stream.bookmark("9").await;
    stream.end().await;
    let mut stream = played.changes_from("9").await.begin().await;
    stream.send("DELETED", &pod("b", "11")).await;
    assert_eq!(played.told().await, "deleted b");
    // A connection that is silent for longer than an API server ever is.
    played.changes_from("11").await.begin().await;
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_not_known_any_more_costs_everything_anew_whoever_says_so() {
    for code in [410, 504] {
        let (mut played, mut stream) = Played::synced().await;
        let status = json!({"kind": "Status", "code": code, "message": "too old", "reason": "Expired", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}});
        stream.send("ERROR", &status).await;
        let mut stream = played.everything().await.begin().await;
        stream.send("ADDED", &pod("c", "30")).await;
        end_of_everything(&mut stream, "31").await;
        assert_eq!(played.told().await, "all c");
        stream.end().await;
        // Here 410 is the status of the answer, not an event.
        played.changes_from("31").await.status(410, "too old").await;
        played.everything().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_each_first_list_is_not_asked_without_a_pause() {
    let mut played = Played::start().await;
    let begun = Instant::now();
    for _ in 0..6 {
        played.everything().await.status(410, "too old").await;
    }
    played.everything().await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "six lists within {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_cannot_stream_is_asked_for_pages() {
    for code in [400, 422, 500] {
        let mut played = Played::start().await;
        played.everything().await.status(code, "sendInitialEvents is forbidden").await;
        let first = played.api.asked().await;
        assert_eq!(
            (first.is_watch(), first.parameter("limit"), first.parameter("continue")),
            (false, Some("500"), None)
        );
        first
            .json(
                &json!({"metadata": {"resourceVersion": "5", "continue": "next"}, "items": [pod("a", "3")]}),
            )
            .await;
        let second = played.api.asked().await;
        assert_eq!(second.parameter("continue"), Some("next"));
        second.json(&json!({"metadata": {"resourceVersion": "5"}, "items": [pod("b", "3")]})).await;
        assert_eq!(played.told().await, "all a b");
        let stream = played.changes_from("5").await.begin().await;
        stream.end().await;
        played.changes_from("5").await.status(410, "gone").await;
        assert!(!played.api.asked().await.is_watch(), "streaming is not tried again");
    }
}

/// An API server with an etcd that is too old refuses within the stream; the control plane listed
/// nothing at all there.
#[tokio::test(start_paused = true)]
async fn one_that_says_within_the_stream_that_it_cannot_is_asked_for_pages() {
    let mut played = Played::start().await;
    let mut stream = played.everything().await.begin().await;
    let problem = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError",
        "message": "the required storage feature RequestWatchProgress is disabled"});
    stream.send("ERROR", &problem).await;
    let asked = played.api.asked().await;
    assert!(!asked.is_watch(), "{}", asked.path);
    asked.json(&json!({"metadata": {"resourceVersion": "5"}, "items": [pod("a", "3")]})).await;
    assert_eq!(played.told().await, "all a");
}

#[tokio::test(start_paused = true)]
async fn one_whose_etcd_is_too_old_to_stream_says_so_in_an_event() {
    let mut played = Played::start().await;
    let mut stream = played.everything().await.begin().await;
    let message = "a watch stream was requested by the client but \
                   the required storage feature RequestWatchProgress is disabled";
    stream
        .send(
            "ERROR",
            &json!({"kind": "Status", "code": 500, "message": message, "reason": "InternalError"}),
        )
        .await;
    assert!(!played.api.asked().await.is_watch());
}

#[tokio::test(start_paused = true)]
async fn one_that_begins_to_stream_and_never_ends_is_asked_for_pages() {
    let mut played = Played::start().await;
    let begun = Instant::now();
    let _stream = played.everything().await.begin().await;
    assert!(!played.api.asked().await.is_watch());
    assert!(begun.elapsed() <= Duration::from_secs(16), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_tried_for_ever_and_said() {
    let (mut played, stream) = Played::synced().await;
    stream.end().await;
    for _ in 0..20 {
        played.changes_from("5").await.status(503, "shutting down").await;
    }
    let asked = played.changes_from("5").await;
    let SyncStatus::Behind(why) = played.standing() else { panic!("{:?}", played.standing()) };
    assert!(why.contains("shutting down"), "{why}");
    let mut standing = played.watch.standing();
    let _stream = asked.begin().await;
    standing.wait_for(|standing| *standing == SyncStatus::Synced).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn other_credentials_move_the_watch_over_without_reading_everything() {
    let (mut played, stream) = Played::synced().await;
    played.connection.renew();
    played.changes_from("5").await;
    drop(stream);
}

/// With a kubeconfig of another cluster the watch went on from its version: deletions there were
/// taken for deletions of the own objects of the same names.
#[tokio::test]
async fn an_api_server_at_another_url_is_asked_for_everything() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let point_to = |url: &str| {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        std::fs::write(&file, text.to_string()).unwrap();
    };
    let (mut first, mut second) = (ScriptedApi::start().await, ScriptedApi::start().await);
    point_to(&first.url);
    let cluster = crate::Cluster::Kubeconfig(file.clone());
    let connection = Connection::open(crate::ApiServer { cluster, credential: None });
    let (sender, mut seen) = unbounded_channel();
    let (identify, mut identified) = unbounded_channel();
    let url = connection.clone();
    let _watch = Watch::start_leading::<Pod, _>(
        connection,
        Leadership::always(),
        Metrics::register(&Registry::new(), "test").unwrap(),
        move || {
            identify.send(url.url()).unwrap();
            std::future::ready(())
        },
        |_| (),
        move |seen| drop(sender.send(seen)),
    );
    let mut stream = first.asked().await.begin().await;
    stream.send("ADDED", &pod("a", "4")).await;
    end_of_everything(&mut stream, "5").await;
    assert!(matches!(seen.recv().await, Some(Seen::All(all)) if all == ["a"]));

    point_to(&second.url);
    let asked = second.asked().await;
    assert!(asked.path.contains("sendInitialEvents=true"), "{}", asked.path);
    let mut stream = asked.begin().await;
    stream.send("ADDED", &pod("b", "2")).await;
    end_of_everything(&mut stream, "3").await;
    assert!(matches!(seen.recv().await, Some(Seen::All(all)) if all == ["b"]));
    // Before each list.
    assert_eq!(
        (identified.recv().await, identified.recv().await),
        (Some(first.url.clone()), Some(second.url.clone()))
    );
}

#[tokio::test(start_paused = true)]
async fn everything_is_told_once_more_when_it_is_asked_for() {
    let (mut played, stream) = Played::synced().await;
    played.watch.prompt().everything();
    let mut again = played.everything().await.begin().await;
    again.send("ADDED", &pod("b", "7")).await;
    end_of_everything(&mut again, "8").await;
    assert_eq!(played.told().await, "all b");
    again.send("DELETED", &pod("b", "9")).await;
    assert_eq!(played.told().await, "deleted b");
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn every_object_of_a_list_or_a_page_and_every_later_one_is_shortened_before_it_is_told() {
    let (mut api, connection) = scripted::start().await;
    let (sender, mut seen) = unbounded_channel();
    let _watch = Watch::start_leading::<Pod, _>(
        connection,
        Leadership::always(),
        Metrics::register(&Registry::new(), "test").unwrap(),
        || std::future::ready(()),
        |name| name.truncate(1),
        move |seen| drop(sender.send(seen)),
    );
    // No streaming lists here: in pages.
    api.asked().await.status(400, "sendInitialEvents is forbidden").await;
    api.asked().await.list("5", &[pod("along", "3"), pod("blong", "4")]).await;
    assert!(matches!(seen.recv().await, Some(Seen::All(all)) if all == ["a", "b"]));
    let mut stream = api.asked().await.begin().await;
    stream.send("ADDED", &pod("clong", "6")).await;
    assert!(matches!(seen.recv().await, Some(Seen::Applied(name)) if name == "c"));
}

/// Reads no object before it is told to.
struct Waits {
    lists: tokio::sync::mpsc::UnboundedSender<Vec<String>>,
    go: std::sync::mpsc::Receiver<()>,
}

impl Observer<Pod> for Waits {
    fn all(&mut self, objects: Vec<String>, _version: String) {
        self.lists.send(objects).unwrap();
    }

    fn applied(&mut self, _object: String, _version: &str) -> Result<(), WrongVersion> {
        Ok(())
    }

    fn deleted(&mut self, _key: String, _version: &str) -> Result<(), WrongVersion> {
        Ok(())
    }

    fn read(&mut self, object: Pod) -> Option<String> {
        self.go.recv_timeout(Duration::from_secs(60)).unwrap();
        object.value().ok()
    }

    fn left_out(&mut self, _reason: &str) {}

    fn heard(&mut self) {}

    fn lost(&mut self, _why: &str) {}

    fn begins_anew(&mut self, _why: &str) {}
}

/// The API server prepares a page while this program reads the one before it.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_page_is_requested_before_the_objects_of_this_one_are_read() {
    let (mut api, connection) = scripted::start().await;
    let (sender, mut lists) = unbounded_channel();
    let (go, waiting) = std::sync::mpsc::channel();
    let selection = Selection { first: First::Pages, ..Selection::default() };
    let observer = Waits { lists: sender, go: waiting };
    let task = tokio::spawn(follow::<Pod, _>(connection, selection, Prompt::default(), observer));
    // As an API server spells it, which `serde_json::Map` with its sorted keys does not.
    let head = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"next"}"#;
    let page = format!("{head},\"items\":[{}]}}", pod("a", "3"));
    api.asked().await.answer("200 OK", "Content-Type: application/json\r\n", &page).await;
    let second = api.asked().await;
    assert_eq!(
        (second.parameter("continue"), second.parameter("resourceVersion")),
        (Some("next"), None)
    );
    go.send(()).unwrap();
    go.send(()).unwrap();
    second.list("5", &[pod("b", "4")]).await;
    assert_eq!(lists.recv().await.unwrap(), ["a", "b"]);
    task.abort();
}
