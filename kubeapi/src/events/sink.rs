//! Sends the events that are due to the API server, one after the other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    Reporter,
    aggregator::{Aggregator, Due},
    notice::{self, Notice},
};
use crate::{connection::Connection, trouble::Trouble};

/// How long the API server may take for one event. Events are sent one by one, so a hung request delays all
/// others; 256 notices may wait meanwhile. A tenth of this would lose events on a busy API server.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sends events until the last sender of notices is dropped.
pub(super) async fn post(
    api: Connection,
    reporter: Reporter,
    mut notices: mpsc::Receiver<Notice>,
    lost: Arc<AtomicU64>,
) {
    let mut aggregator = Aggregator::new(Instant::now());
    let mut post = Sink { api, reporter, lost, problem: None };
    loop {
        let due = aggregator.next_due();
        let heard = tokio::select! {
            notice = notices.recv() => match notice {
                Some(notice) => aggregator.hear(notice, Instant::now()),
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => true,
        };
        if !heard {
            post.lost.fetch_add(1, Ordering::Relaxed);
        }
        // One at a time. Notices that arrive meanwhile wait in the channel.
        while let Some(due) = aggregator.due(Instant::now()) {
            let name = post.post(&due).await;
            aggregator.told(&due.subject, name);
        }
    }
}

struct Sink {
    api: Connection,
    reporter: Reporter,
    /// Notices that did not become an event.
    lost: Arc<AtomicU64>,
    /// Why the last request failed, to log each reason once.
    problem: Option<String>,
}

impl Sink {
    /// Sends one event. Returns the name of the event that the API server has now, if any.
    async fn post(&mut self, due: &Due) -> Option<String> {
        match self.api.ask(DEADLINE, self.grow_or_create(due)).await {
            Ok(name) => {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 || self.problem.take().is_some() {
                    tracing::info!(lost, "events are sent again");
                }
                Some(name)
            }
            Err(Trouble { text: problem, .. }) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(object = %due.subject.object, note = due.note, problem, "an event could not be sent");
                }
                self.problem = Some(problem);
                // Whether the request arrived is unknown: the next update tries the same event.
                due.event.clone()
            }
        }
    }

    async fn grow_or_create(&self, due: &Due) -> Result<String, kube::Error> {
        let Due { subject, note, count, event } = due;
        let events = Api::<Event>::namespaced(self.api.client().clone(), subject.namespace());
        if let Some(name) = event {
            let growth = Patch::Merge(json!({"series": notice::series(*count)}));
            match events.patch_metadata(name, &PatchParams::default(), &growth).await {
                Ok(_) => return Ok(name.clone()),
                // 404: the event has expired. 403: this program may not patch. In both cases, create a new
                // event.
                Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {}
                Err(error) => return Err(error),
            }
        }
        let mut event = subject.event(note, &self.reporter);
        if *count > 1 {
            event.series = Some(notice::series(*count));
        }
        Ok(events.create(&PostParams::default(), &event).await?.name_any())
    }
}

#[cfg(test)]
mod tests;
