//! List and watch, for ever: a watch that ends goes on where it ended, and only a place that the API server no longer knows costs a list.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use contract::backoff::Backoff;
use contract::names::PodKey;
use futures_util::TryStreamExt;
use kube::{
    api::{ListParams, WatchParams},
    core::{WatchEvent, request::Request},
};
use kubeapi::{Kind, Trouble};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    Shared,
    ledger::{Version, WentBack},
    pod_meta::{ListMetadata, PodMeta, PodMetaList, Seen},
};

const PODS: &str = "/api/v1/pods";
/// Objects in one answer to a list.
const PAGE: u32 = 500;
/// How long one answer to a list may take.
const LIST: Duration = Duration::from_secs(60);
/// How long the API server may take to begin a watch.
const BEGIN: Duration = Duration::from_secs(30);
/// After how many seconds the API server ends a watch: before balancers lose patience with silent connections (the shortest: 240 s).
const WATCH_SECONDS: u32 = 200;
/// Silence that a watch ends at: the API server sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(90);
/// How long the watch may be behind a lookup.
const LAG: Duration = Duration::from_secs(3);
/// A watch that lasted this long was no failure.
const GOOD: Duration = Duration::from_secs(10);

/// Keeps the ledger as the API server is.
pub(super) async fn follow(shared: Arc<Shared>) {
    let mut follower =
        Follower { shared: &shared, backoff: Backoff::default(), next: Next::List(Freshness::Any), listed: None, complained: None };
    loop {
        follower.step().await;
    }
}

struct Follower<'a> {
    shared: &'a Shared,
    backoff: Backoff,
    next: Next,
    /// When the last list was complete.
    listed: Option<Instant>,
    /// What was last said about what is wrong.
    complained: Option<String>,
}

/// What to do next.
enum Next {
    List(Freshness),
    Watch(Version),
}

/// How new a list has to be.
#[derive(Clone, Copy)]
enum Freshness {
    /// As the API server remembers it: the watch makes up for the rest.
    Any,
    /// As it is.
    Newest,
}

/// Why a watch ended.
enum End {
    /// The API server ended it, or it should be begun anew: nothing is wrong.
    Ordinary,
    Trouble(Trouble),
}

impl Follower<'_> {
    async fn step(&mut self) {
        match &self.next {
            Next::List(freshness) => match self.list(*freshness).await {
                Ok(version) => {
                    self.backoff.reset();
                    self.listed = Some(Instant::now());
                    self.next = Next::Watch(version);
                }
                Err(trouble) => self.wait(trouble).await,
            },
            Next::Watch(from) => {
                let begun = Instant::now();
                let end = self.watch(from.clone()).await;
                if begun.elapsed() >= GOOD {
                    self.backoff.reset();
                }
                if let Some(position) = self.shared.ledger().position() {
                    self.next = Next::Watch(position.clone());
                }
                match end {
                    End::Ordinary if begun.elapsed() >= GOOD => {}
                    End::Ordinary => sleep(self.backoff.next(None)).await,
                    End::Trouble(trouble) => {
                        if matches!(trouble.kind, Kind::Gone | Kind::Malformed) {
                            self.next = Next::List(Freshness::Newest);
                        }
                        self.wait(trouble).await;
                    }
                }
            }
        }
    }

    /// Says what is wrong and waits until it is time for the next attempt.
    async fn wait(&mut self, trouble: Trouble) {
        let Trouble { kind, code: _, text, retry_after } = trouble;
        if kind == Kind::Gone {
            tracing::info!(reason = text, "the watch of pods begins anew, with a list");
            // The API server is there, and waits for nothing but the list.
            if self.listed.is_none_or(|listed| listed.elapsed() >= GOOD) {
                return;
            }
        } else {
            if self.complained.as_ref() != Some(&text) {
                tracing::warn!(problem = text, "pods are not heard of");
            }
            self.complained = Some(text.clone());
            self.shared.lost(text);
        }
        let wait = self.backoff.next(retry_after);
        let mut renewals = self.shared.connection.renewals();
        tokio::select! {
            () = sleep(wait) => {}
            // Other credentials, or an answer that somebody else got: worth an attempt now.
            _ = renewals.changed() => {}
            () = self.shared.nudge.notified(), if retry_after.is_none() => {}
        }
    }

    async fn list(&self, freshness: Freshness) -> Result<Version, Trouble> {
        let (version, pods) = list(self.shared, freshness).await?;
        tracing::debug!(pods = pods.len(), version = version.as_str(), "listed this node's pods");
        self.shared.ledger().listed(version.clone(), pods);
        Ok(version)
    }

    /// Tells the ledger what happens after `from`.
    async fn watch(&mut self, from: Version) -> End {
        let connection = &self.shared.connection;
        let mut renewals = connection.renewals();
        let params = WatchParams::default().fields(&self.selector()).timeout(WATCH_SECONDS);
        let trouble = |error: &kube::Error| End::Trouble(connection.trouble(error));
        let request = match Request::new(PODS).watch_metadata(&params, from.as_str()) {
            Ok(request) => request,
            Err(error) => return trouble(&kube::Error::BuildRequest(error)),
        };
        let events = match timeout(BEGIN, connection.client().request_events::<PodMeta>(request)).await {
            Ok(Ok(events)) => events,
            Ok(Err(error)) => return trouble(&error),
            Err(_) => return End::Trouble(self.silence(BEGIN)),
        };
        self.shared.found();
        if self.complained.take().is_some() {
            tracing::info!(api_server = connection.url(), "pods are heard of again");
        }

        let mut events = pin!(events);
        let mut silence = Instant::now() + SILENCE;
        let mut behind: Option<Instant> = None;
        loop {
            let event = tokio::select! {
                event = timeout_at(behind.unwrap_or(silence).min(silence), events.try_next()) => event,
                _ = renewals.changed() => return End::Ordinary,
                () = self.shared.nudge.notified() => {
                    behind.get_or_insert_with(|| Instant::now() + LAG);
                    continue;
                }
            };
            let event = match event {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return End::Ordinary,
                Ok(Err(error)) => return trouble(&error),
                Err(_) if behind.is_some() => {
                    tracing::warn!("the watch of pods is behind what the API server tells others: it is begun anew");
                    return End::Ordinary;
                }
                Err(_) => return End::Ordinary,
            };
            silence = Instant::now() + SILENCE;
            behind = None;
            if let Err(end) = self.take(event) {
                return end;
            }
        }
    }

    fn take(&self, event: WatchEvent<PodMeta>) -> Result<(), End> {
        let went_back = |error: WentBack| End::Trouble(Trouble::without_answer(Kind::Gone, error.to_string()));
        let named = |meta: PodMeta| Seen::try_from(meta).inspect_err(|error| tracing::warn!(%error, "a pod of the API server is left out"));
        match event {
            WatchEvent::Added(meta) | WatchEvent::Modified(meta) => match named(meta) {
                Ok(seen) => self.shared.ledger().changed(seen).map_err(went_back),
                Err(_) => Ok(()),
            },
            WatchEvent::Deleted(meta) => match named(meta) {
                Ok(seen) => self.shared.ledger().deleted(seen).map_err(went_back),
                Err(_) => Ok(()),
            },
            WatchEvent::Bookmark(bookmark) => {
                self.shared.ledger().advance(Version::from(bookmark.metadata.resource_version)).map_err(went_back)
            }
            WatchEvent::Error(status) => Err(End::Trouble(self.shared.connection.trouble(&kube::Error::Api(status)))),
        }
    }

    fn silence(&self, after: Duration) -> Trouble {
        silence(self.shared, after)
    }

    fn selector(&self) -> String {
        selector(self.shared)
    }
}

/// The node's pods as they are, beside the watch: for who does not believe what the watch told.
pub(super) async fn list_now(shared: &Shared) -> Result<HashMap<PodKey, String>, String> {
    let (_, pods) = list(shared, Freshness::Newest).await.map_err(|trouble| trouble.text)?;
    Ok(pods.into_iter().map(|seen| (seen.pod, seen.facts.uid)).collect())
}

async fn list(shared: &Shared, freshness: Freshness) -> Result<(Version, Vec<Seen>), Trouble> {
    let mut params = ListParams::default().fields(&selector(shared));
    match freshness {
        // From the API server's memory, which has no pages.
        Freshness::Any => params.resource_version = Some("0".to_owned()),
        Freshness::Newest => params.limit = Some(PAGE),
    }
    let mut pods = Vec::new();
    loop {
        let page = page(shared, &params).await?;
        let ListMetadata { resource_version, continue_token } = page.metadata;
        for meta in page.items.unwrap_or_default() {
            match Seen::try_from(meta) {
                Ok(seen) => pods.push(seen),
                Err(error) => tracing::warn!(%error, "a pod of the API server is left out"),
            }
        }
        if continue_token.is_empty() {
            return Ok((resource_version, pods));
        }
        params.resource_version = None;
        params.continue_token = Some(continue_token);
    }
}

async fn page(shared: &Shared, params: &ListParams) -> Result<PodMetaList, Trouble> {
    let answer = async {
        let request = Request::new(PODS).list_metadata(params).map_err(kube::Error::BuildRequest)?;
        let text = shared.connection.client().request_text(request).await?;
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    };
    match timeout(LIST, answer).await {
        Ok(answer) => answer.map_err(|error| shared.connection.trouble(&error)),
        Err(_) => Err(silence(shared, LIST)),
    }
}

fn silence(shared: &Shared, after: Duration) -> Trouble {
    let text = format!("the API server {} did not answer within {after:?}", shared.connection.url());
    Trouble::without_answer(Kind::Unavailable, text)
}

fn selector(shared: &Shared) -> String {
    format!("spec.nodeName={}", shared.node)
}
