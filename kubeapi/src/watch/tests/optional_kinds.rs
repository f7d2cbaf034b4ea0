//! Kinds that the API server may not have, or that may not be read.

use contract::definition::Definition;

use super::*;

/// Passes on the lists.
struct Lists(tokio::sync::mpsc::UnboundedSender<Vec<String>>);

impl Observer<Pod> for Lists {
    fn all(&mut self, objects: Vec<String>, _version: String) {
        let _ = self.0.send(objects);
    }

    fn applied(&mut self, _object: String, _version: &str) -> Result<(), WrongVersion> {
        Ok(())
    }

    fn deleted(&mut self, _key: String, _version: &str) -> Result<(), WrongVersion> {
        Ok(())
    }

    fn left_out(&mut self, _reason: &str) {}

    fn heard(&mut self) {}

    fn lost(&mut self, _why: &str) {
        let _ = self.0.send(vec!["lost".to_owned()]);
    }

    fn begins_anew(&mut self, _why: &str) {}

    fn unlisted(&mut self, why: Unlisted) {
        let _ = self.0.send(vec![why.to_string()]);
    }
}

/// A kind in two versions.
static DEFINITION: Definition =
    Definition { group: "g.example", plural: "things", versions: &["v2", "v1"] };

/// Answers what versions there are, and in which of them the kind is: in all.
async fn discovery(api: &mut ScriptedApi, versions: &[&str]) {
    let asked = api.asked().await;
    assert_eq!(asked.path, "/apis/g.example");
    if versions.is_empty() {
        return asked.status(404, "page not found").await;
    }
    let all: Vec<_> = versions.iter().map(|version| json!({"version": version})).collect();
    asked.json(&json!({"kind": "APIGroup", "versions": all})).await;
    for version in versions {
        let asked = api.asked().await;
        assert_eq!(asked.path, format!("/apis/g.example/{version}"));
        asked.json(&json!({"kind": "APIResourceList", "resources": [{"name": "things"}]})).await;
    }
}

/// When its version was served no longer, a kind counted as one that does not exist: its objects
/// were gone.
#[tokio::test(start_paused = true)]
async fn a_watch_whose_version_is_served_no_longer_goes_on_in_another_one() {
    let (mut api, connection) = scripted::start().await;
    let (sender, mut lists) = unbounded_channel();
    let presence = Presence::Defined(&DEFINITION);
    let selection = Selection { presence, first: First::Pages, ..Selection::default() };
    let following =
        follow::<Pod, _>(connection.clone(), selection, Prompt::default(), Lists(sender));
    let task = tokio::spawn(following);
    discovery(&mut api, &["v1"]).await;
    let asked = api.asked().await;
    assert!(asked.path.starts_with("/apis/g.example/v1/things?"), "{}", asked.path);
    asked.list("5", &[pod("a", "3")]).await;
    assert_eq!(lists.recv().await.unwrap(), ["a"]);
    assert_eq!(connection.version_of(&DEFINITION), "v1");
    let asked = api.asked().await;
    assert!(
        asked.is_watch() && asked.path.starts_with("/apis/g.example/v1/things?"),
        "{}",
        asked.path
    );
    asked.status(404, "the server could not find the requested resource").await;
    assert_eq!(lists.recv().await.unwrap(), ["lost"]);
    discovery(&mut api, &["v2"]).await;
    let asked = api.asked().await;
    assert!(asked.path.starts_with("/apis/g.example/v2/things?"), "{}", asked.path);
    asked.list("7", &[pod("a", "3")]).await;
    assert_eq!(lists.recv().await.unwrap(), ["a"]);
    assert_eq!(connection.version_of(&DEFINITION), "v2");
    task.abort();
}

/// "There is no such kind", "I may not read it" and "I know none of its versions" were an empty
/// list.
#[tokio::test(start_paused = true)]
async fn a_defined_kind_that_cannot_be_listed_is_no_empty_list_and_is_looked_for_again_soon() {
    let (mut api, connection) = scripted::start().await;
    let (sender, mut lists) = unbounded_channel();
    let presence = Presence::Defined(&DEFINITION);
    let selection = Selection { presence, first: First::Pages, ..Selection::default() };
    let following = follow::<Pod, _>(connection, selection, Prompt::default(), Lists(sender));
    let task = tokio::spawn(following);
    let begun = Instant::now();
    discovery(&mut api, &[]).await;
    assert_eq!(lists.recv().await.unwrap(), ["the API server has no things.g.example"]);
    discovery(&mut api, &["v9"]).await;
    let unknown =
        "the API server has things.g.example in the version v9, which this program cannot read";
    assert_eq!(lists.recv().await.unwrap(), [unknown]);
    discovery(&mut api, &["v1"]).await;
    api.asked().await.status(403, "forbidden").await;
    let [forbidden] = &lists.recv().await.unwrap()[..] else { panic!("one") };
    assert!(
        forbidden.starts_with("this program may not list and watch things.g.example: "),
        "{forbidden}"
    );
    discovery(&mut api, &["v1"]).await;
    api.asked().await.list("5", &[pod("a", "3")]).await;
    assert_eq!(lists.recv().await.unwrap(), ["a"]);
    assert!((29..35).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    // What was read before says nothing about the right that is missing now.
    api.asked().await.status(403, "forbidden").await;
    assert!(lists.recv().await.unwrap()[0].starts_with("this program may not list"));
    discovery(&mut api, &["v1"]).await;
    task.abort();
}

/// Without the right to read an optional kind, its reader would wait for ever. What was read before
/// stays, and is not taken for gone.
#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_may_not_be_read_is_an_empty_list_only_at_first() {
    let (mut api, connection) = scripted::start().await;
    let (sender, mut lists) = unbounded_channel();
    let selection =
        Selection { presence: Presence::Newer, first: First::Pages, ..Selection::default() };
    let following = follow::<Pod, _>(connection, selection, Prompt::default(), Lists(sender));
    let task = tokio::spawn(following);
    api.asked().await.status(403, "forbidden").await;
    assert_eq!(lists.recv().await.unwrap(), [""; 0]);
    api.asked().await.list("5", &[pod("a", "3")]).await;
    assert_eq!(lists.recv().await.unwrap(), ["a"]);
    // The watch is lost then, and there is no empty list.
    api.asked().await.status(403, "forbidden").await;
    assert_eq!(lists.recv().await.unwrap(), ["lost"]);
    task.abort();
}

/// Without an empty list, its reader would wait for an older API server for ever. What an
/// administrator defines is to have an effect within seconds.
#[tokio::test(start_paused = true)]
async fn a_kind_that_the_api_server_may_not_have_is_an_empty_list_and_is_looked_for_again() {
    {
        let (presence, seconds) = (Presence::Newer, 60..600);
        let (mut api, connection) = scripted::start().await;
        let (sender, mut lists) = unbounded_channel();
        let selection = Selection { presence, first: First::Pages, ..Selection::default() };
        let following = follow::<Pod, _>(connection, selection, Prompt::default(), Lists(sender));
        let task = tokio::spawn(following);
        api.asked().await.status(404, "the server could not find the requested resource").await;
        assert_eq!(lists.recv().await.unwrap(), [""; 0]);
        let begun = Instant::now();
        // It was added meanwhile.
        api.asked().await.list("5", &[pod("a", "3")]).await;
        assert_eq!(lists.recv().await.unwrap(), ["a"]);
        assert!(
            seconds.contains(&begun.elapsed().as_secs()),
            "{presence:?}: {:?}",
            begun.elapsed()
        );
        task.abort();
    }
}

/// One 404 of an API server that was restored, or whose definition of the kind was made anew, was a
/// complete and empty list: all denials of the kind were removed.
#[tokio::test(start_paused = true)]
async fn a_kind_that_was_there_is_gone_only_when_it_is_missing_twice() {
    const MISSING: &str = "the server could not find the requested resource";
    const UNDEFINED: Duration = Duration::from_secs(10);
    {
        let presence = Presence::Newer;
        let (mut api, connection) = scripted::start().await;
        let (sender, mut lists) = unbounded_channel();
        let selection = Selection { presence, first: First::Pages, ..Selection::default() };
        let prompt = Prompt::default();
        let following = follow::<Pod, _>(connection, selection, prompt.clone(), Lists(sender));
        let task = tokio::spawn(following);
        api.asked().await.list("5", &[pod("a", "3")]).await;
        assert_eq!(lists.recv().await.unwrap(), ["a"]);
        // The watch, then a list that is asked for in the middle of the pause.
        api.asked().await.status(404, MISSING).await;
        assert_eq!(lists.recv().await.unwrap(), ["lost"], "{presence:?}");
        let begun = Instant::now();
        prompt.everything();
        let again = api.asked().await;
        assert!(begun.elapsed() < UNDEFINED, "{:?}", begun.elapsed());
        again.status(404, MISSING).await;
        assert_eq!(lists.recv().await.unwrap(), ["lost"], "{presence:?}: too early to count");
        // It is back.
        api.asked().await.list("7", &[pod("a", "3"), pod("b", "6")]).await;
        assert_eq!(lists.recv().await.unwrap(), ["a", "b"]);
        // It is gone for good.
        api.asked().await.status(404, MISSING).await;
        assert_eq!(lists.recv().await.unwrap(), ["lost"], "{presence:?}: the first counts anew");
        let begun = Instant::now();
        api.asked().await.status(404, MISSING).await;
        assert_eq!(lists.recv().await.unwrap(), [""; 0]);
        assert!(begun.elapsed() >= UNDEFINED, "{:?}", begun.elapsed());
        // Nothing is known of it any more.
        api.asked().await.status(404, MISSING).await;
        assert_eq!(lists.recv().await.unwrap(), [""; 0]);
        task.abort();
    }
}

/// A pod, of a kind that an administrator defines.
#[derive(Debug, Clone, Deserialize)]
struct Defined(Pod);

impl Watched for Defined {
    type Key = String;
    type Value = String;
    const PATH: &'static str = "/apis/g.example/v2/things";
    const KIND: &'static str = "things";
    const PRESENCE: Presence = Presence::Defined(&DEFINITION);

    fn version(&self) -> &str {
        self.0.version()
    }

    fn key(&self) -> Result<String, String> {
        self.0.key()
    }

    fn value(self) -> Result<String, String> {
        self.0.value()
    }
}

/// Each answer counted as a restart of the watch, and said in the log that everything was read:
/// every ten seconds, for each such kind, for ever.
#[tokio::test(start_paused = true)]
async fn looking_for_a_kind_that_is_not_there_is_no_restart() {
    let (mut api, connection) = scripted::start().await;
    let (sender, mut seen) = unbounded_channel();
    let registry = Registry::new();
    let metrics = Metrics::register(&registry, "test").unwrap();
    let watch = Watch::start::<Defined>(connection, metrics, move |seen| drop(sender.send(seen)));
    for _ in 0..3 {
        discovery(&mut api, &[]).await;
        let undefined = Unlisted::Undefined("things.g.example".to_owned());
        assert!(matches!(seen.recv().await.unwrap(), Seen::Unlisted(why) if why == undefined));
        assert_eq!(*watch.standing().borrow(), SyncStatus::Unlisted(undefined));
    }
    discovery(&mut api, &["v2"]).await;
    let mut stream = api.asked().await.begin().await;
    end_of_everything(&mut stream, "5").await;
    assert!(matches!(seen.recv().await.unwrap(), Seen::All(pods) if pods.is_empty()));
    let restarts = || {
        registry
            .gather()
            .iter()
            .find(|family| family.name() == "test_watch_restarts_total")
            .cloned()
    };
    assert_eq!(restarts(), None);
}
