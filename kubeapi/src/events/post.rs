//! Tells the API server what is due, one event after the other.

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
    book::{Book, Due},
    notice::{self, Notice},
};
use crate::{connection::Connection, trouble::Trouble};

/// How long the API server may take for one event.
const DEADLINE: Duration = Duration::from_secs(5);

/// Tells until nobody can send notices any more.
pub(super) async fn post(api: Connection, reporter: Reporter, mut notices: mpsc::Receiver<Notice>, lost: Arc<AtomicU64>) {
    let mut book = Book::new(Instant::now());
    let mut post = Post { api, reporter, lost, problem: None };
    loop {
        let due = book.next_due();
        let heard = tokio::select! {
            notice = notices.recv() => match notice {
                Some(notice) => book.hear(notice, Instant::now()),
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => true,
        };
        if !heard {
            post.lost.fetch_add(1, Ordering::Relaxed);
        }
        while let Some(due) = book.due(Instant::now()) {
            let name = post.post(&due).await;
            book.told(&due.subject, name);
        }
    }
}

struct Post {
    api: Connection,
    reporter: Reporter,
    /// Notices of which no event came.
    lost: Arc<AtomicU64>,
    /// Why the last event was not taken.
    problem: Option<String>,
}

impl Post {
    /// Name of the event that the API server has now, if it has one.
    async fn post(&mut self, due: &Due) -> Option<String> {
        match self.api.ask(DEADLINE, self.grow_or_create(due)).await {
            Ok(name) => {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 || self.problem.take().is_some() {
                    tracing::info!(lost, "events are told again");
                }
                Some(name)
            }
            Err(Trouble { text: problem, .. }) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(object = %due.subject.object, note = due.note, problem, "an event could not be told");
                }
                self.problem = Some(problem);
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
                // It is too old, or counting is not allowed: then it is another one.
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
