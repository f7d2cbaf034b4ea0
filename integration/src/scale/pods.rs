//! The annotations of pods, observed by an independent watch and not reported by the program that writes
//! them.

use std::{collections::HashMap, time::Instant};

use anyhow::{Context as _, Result, bail, ensure};
use contract::annotation::POD_NETWORKS;
use futures_util::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use kube::Client;
use serde::Deserialize;

use super::seen::Seen;

/// `resourceVersion=0` starts from the API server's cache. Without it, the API server would wait in vain for
/// etcd 3.4 to report a newer revision while there are no pods.
const WATCH: &str = "/api/v1/pods?watch=true&resourceVersion=0&timeoutSeconds=14400";

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

#[derive(Debug, Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
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
            "{} of {} pods have their annotation",
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

    fn take(&mut self, Event { kind, object: Object { metadata } }: Event) {
        let now = Instant::now();
        self.events += 1;
        let key = format!("{}/{}", metadata.namespace, metadata.name);
        match kind.as_str() {
            "ADDED" | "MODIFIED" => {
                let pod = self.pods.entry(key).or_insert(Pod { added: now, annotated: None });
                if pod.annotated.is_none() && metadata.annotations.contains_key(POD_NETWORKS) {
                    pod.annotated = Some(now);
                    self.annotated += 1;
                    self.last_annotated = Some(now);
                }
            }
            "DELETED" => {
                if self.pods.remove(&key).is_some_and(|pod| pod.annotated.is_some()) {
                    self.annotated -= 1;
                }
            }
            _ => self.ended = Some(format!("event {kind}")),
        }
    }
}

/// Starts to watch.
pub(crate) fn watch(client: &Client) -> Seen<Pods> {
    let seen = Seen::<Pods>::new();
    let (noting, client) = (seen.clone(), client.clone());
    tokio::spawn(async move {
        // An API server that has just started may close a watch; the next watch lists all pods again, and
        // `take` accepts pods it already has.
        let why = loop {
            if let Err(error) = follow(&client, &noting).await {
                break format!("{error:#}");
            }
        };
        noting.note(|pods| pods.ended = Some(why));
    });
    seen
}

/// Records the events of one watch until it ends.
async fn follow(client: &Client, seen: &Seen<Pods>) -> Result<()> {
    let lines = client.request_stream(Request::get(WATCH).body(Vec::new())?).await?.lines();
    let mut lines = std::pin::pin!(lines);
    while let Some(line) = lines.next().await {
        let line = line?;
        let event =
            serde_json::from_str(&line).with_context(|| line.chars().take(200).collect::<String>())?;
        seen.note(|pods| pods.take(event));
    }
    Ok(())
}
