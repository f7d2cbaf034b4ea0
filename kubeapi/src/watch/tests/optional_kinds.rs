//! Kinds that the API server may not have, or that may not be read.

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
}

/// Without the right to read an optional kind, its reader would wait for ever. What was read before stays, and is
/// not taken for gone.
#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_may_not_be_read_is_an_empty_list_only_at_first() {
    let (mut api, connection) = scripted::start().await;
    let (sender, mut lists) = unbounded_channel();
    let selection = Selection { presence: Presence::Newer, first: First::Pages, ..Selection::default() };
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

/// Without an empty list, its reader would wait for an older API server for ever. What an administrator defines
/// is to have an effect within seconds.
#[tokio::test(start_paused = true)]
async fn a_kind_that_the_api_server_may_not_have_is_an_empty_list_and_is_looked_for_again() {
    for (presence, seconds) in [(Presence::Newer, 60..600), (Presence::Defined, 1..15)] {
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
        assert!(seconds.contains(&begun.elapsed().as_secs()), "{presence:?}: {:?}", begun.elapsed());
        task.abort();
    }
}

/// One 404 of an API server that was restored, or whose definition of the kind was made anew, was a complete and
/// empty list: all denials of the kind were removed.
#[tokio::test(start_paused = true)]
async fn a_kind_that_was_there_is_gone_only_when_it_is_missing_twice() {
    const MISSING: &str = "the server could not find the requested resource";
    const UNDEFINED: Duration = Duration::from_secs(10);
    for presence in [Presence::Newer, Presence::Defined] {
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
    const PATH: &'static str = Pod::PATH;
    const KIND: &'static str = Pod::KIND;
    const PRESENCE: Presence = Presence::Defined;

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

/// Each answer counted as a restart of the watch, and said in the log that everything was read: every ten
/// seconds, for each such kind, for ever.
#[tokio::test(start_paused = true)]
async fn looking_for_a_kind_that_is_not_there_is_no_restart() {
    let (mut api, connection) = scripted::start().await;
    let (sender, mut seen) = unbounded_channel();
    let registry = Registry::new();
    let metrics = Metrics::register(&registry, "test").unwrap();
    let _watch = Watch::start::<Defined>(connection, metrics, move |seen| drop(sender.send(seen)));
    let mut all = async || match seen.recv().await.unwrap() {
        Seen::All(pods) => pods,
        other => panic!("no list: {other:?}"),
    };
    const MISSING: &str = "the server could not find the requested resource";
    // Answers so to a streamed list, which an older API server does not know either.
    api.asked().await.status(404, MISSING).await;
    for _ in 0..3 {
        api.asked().await.status(404, MISSING).await;
        assert_eq!(all().await, [""; 0]);
    }
    api.asked().await.list("5", &[pod("a", "3")]).await;
    assert_eq!(all().await, ["a"]);
    let restarts =
        || registry.gather().iter().find(|family| family.name() == "test_watch_restarts_total").cloned();
    assert_eq!(restarts(), None);
}
