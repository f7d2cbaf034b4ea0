//! The annotations of pods, observed by an independent watch and not reported by the program that
//! writes them.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use contract::annotation::POD_NETWORKS;
use futures_util::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use kube::Client;
use serde::Deserialize;

use super::seen::Seen;

/// `resourceVersion=0` is the state of the API server's cache. Without it, the API server would
/// wait in vain for etcd 3.4 to report a newer revision while there are no pods.
const LIST: &str = "/api/v1/pods?resourceVersion=0";
/// Continues from a version.
const WATCH: &str = "/api/v1/pods?watch=true&timeoutSeconds=14400&resourceVersion=";

/// The status of a version that the API server has forgotten.
const GONE: u16 = 410;

/// Every pod, by `namespace/name`.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    pub(crate) pods: HashMap<String, Pod>,
    /// Number of present pods with an annotation.
    pub(crate) annotated: usize,
    /// Time when the last annotation was seen.
    pub(crate) last_annotated: Option<Instant>,
    /// Number of events of any kind.
    pub(crate) events: u64,
    /// Why the watch has ended.
    ended: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) added: Instant,
    pub(crate) annotated: Option<Instant>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

/// A pod, or the status that an event `ERROR` has.
#[derive(Debug, Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
    code: Option<u16>,
}

#[derive(Debug, Deserialize)]
struct List {
    metadata: Metadata,
    items: Vec<Object>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    resource_version: String,
    annotations: HashMap<String, String>,
}

impl Pods {
    /// Succeeds if there are exactly `count` pods.
    pub(crate) fn all_there(&self, count: usize) -> Result<()> {
        self.fine()?;
        ensure!(self.pods.len() == count, "{} of {count} are there", self.pods.len());
        Ok(())
    }

    /// Time of the last annotation, once exactly `count` pods are there and all have theirs.
    pub(crate) fn all_annotated(&self, count: usize) -> Result<Option<Instant>> {
        self.fine()?;
        ensure!(
            self.annotated == count && self.pods.len() == count,
            "{} of {} pods have their annotation, and {count} should be there",
            self.annotated,
            self.pods.len()
        );
        Ok(self.last_annotated)
    }

    fn fine(&self) -> Result<()> {
        match &self.ended {
            Some(why) => bail!("the watch of pods has ended: {why}"),
            None => Ok(()),
        }
    }

    /// All pods as of now. Those that are not among them are gone.
    fn list(&mut self, items: Vec<Object>) {
        self.events += 1;
        let there: HashSet<String> =
            items.iter().map(|Object { metadata, .. }| metadata.key()).collect();
        self.pods.retain(|key, _| there.contains(key));
        self.annotated = self.pods.values().filter(|pod| pod.annotated.is_some()).count();
        items.iter().for_each(|Object { metadata, .. }| self.put(metadata));
    }

    fn put(&mut self, metadata: &Metadata) {
        let now = Instant::now();
        let pod = self.pods.entry(metadata.key()).or_insert(Pod { added: now, annotated: None });
        if pod.annotated.is_none() && metadata.annotations.contains_key(POD_NETWORKS) {
            pod.annotated = Some(now);
            self.annotated += 1;
            self.last_annotated = Some(now);
        }
    }

    fn take(&mut self, Event { kind, object: Object { metadata, .. } }: &Event) {
        self.events += 1;
        match kind.as_str() {
            "ADDED" | "MODIFIED" => self.put(metadata),
            "DELETED" => {
                if self.pods.remove(&metadata.key()).is_some_and(|pod| pod.annotated.is_some()) {
                    self.annotated -= 1;
                }
            }
            _ => self.ended = Some(format!("event {kind}")),
        }
    }
}

impl Metadata {
    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Starts to watch.
pub(crate) fn watch(client: &Client) -> Seen<Pods> {
    let seen = Seen::<Pods>::new();
    let (noting, client) = (seen.clone(), client.clone());
    tokio::spawn(async move {
        let why = match follow(&client, &noting).await {
            Ok(never) => match never {},
            Err(error) => format!("{error:#}"),
        };
        noting.note(|pods| pods.ended = Some(why));
    });
    seen
}

/// Lists and watches. An API server that is busy, or has just started, closes watches: the next one
/// continues with the version of the last event, and after a version that is forgotten everything
/// is listed again. A watch that began anew would never tell of the pods that were deleted in
/// between.
async fn follow(client: &Client, seen: &Seen<Pods>) -> Result<Infallible> {
    let mut version = None;
    loop {
        let from = match version {
            Some(version) => version,
            None => {
                let List { metadata, items } = client
                    .request(Request::get(LIST).body(Vec::new())?)
                    .await
                    .context("list pods")?;
                seen.note(|pods| pods.list(items));
                metadata.resource_version
            }
        };
        version = watch_from(client, seen, from).await?;
    }
}

/// Records the events of one watch until it ends. Returns the version to continue with, if there is
/// one.
async fn watch_from(
    client: &Client,
    seen: &Seen<Pods>,
    mut version: String,
) -> Result<Option<String>> {
    let request = Request::get(format!("{WATCH}{version}")).body(Vec::new())?;
    let lines = client.request_stream(request).await?.lines();
    let mut lines = std::pin::pin!(lines);
    while let Some(line) = lines.next().await {
        let line = line?;
        let event: Event = serde_json::from_str(&line)
            .with_context(|| line.chars().take(200).collect::<String>())?;
        if event.kind == "ERROR" && event.object.code == Some(GONE) {
            return Ok(None);
        }
        seen.note(|pods| pods.take(&event));
        version = event.object.metadata.resource_version;
    }
    Ok(Some(version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, annotated: bool) -> Object {
        let annotations = if annotated { json!({ POD_NETWORKS: "{}" }) } else { json!({}) };
        let metadata = json!({ "namespace": "team", "name": name, "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    /// A watch was closed while pods were deleted, and the next one began anew: they were waited
    /// for in vain.
    #[test]
    fn pods_that_a_later_list_lacks_are_gone() {
        let mut pods = Pods::default();
        pods.list(vec![object("a", true), object("b", true), object("c", false)]);
        assert!(pods.all_annotated(3).is_err() && pods.all_there(3).is_ok());
        pods.list(vec![object("a", true), object("c", true)]);
        assert!(pods.all_annotated(2).is_ok(), "{pods:?}");
        let event = Event { kind: "DELETED".to_owned(), object: object("a", true) };
        pods.take(&event);
        pods.take(&event);
        assert!(pods.all_annotated(1).is_ok(), "{pods:?}");
        let error = pods.all_annotated(2).unwrap_err().to_string();
        assert_eq!(error, "1 of 1 pods have their annotation, and 2 should be there");
    }
}
