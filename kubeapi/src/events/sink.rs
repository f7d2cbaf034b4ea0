//! Sends the events that are due to the API server, one after the other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::events::v1;
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
    correlator::{Due, EventCorrelator},
    event::{self, Event},
};
use crate::{connection::Connection, trouble::Trouble};

/// How long the API server may take for one event. Events are sent one by one, so a hung request
/// delays all others; 256 events may wait meanwhile. A tenth of this would lose events on a busy
/// API server.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sends events until the last sender of events is dropped.
pub(super) async fn record_to_sink(
    api: Connection,
    reporter: Reporter,
    mut events: mpsc::Receiver<Event>,
    lost: Arc<AtomicU64>,
) {
    let mut correlator = EventCorrelator::new(Instant::now());
    let mut sink = Sink { api, reporter, lost, problem: None };
    loop {
        let due = correlator.next_due();
        let has_room = tokio::select! {
            event = events.recv() => match event {
                Some(event) => correlator.correlate(event, Instant::now()),
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => true,
        };
        if !has_room {
            sink.lost.fetch_add(1, Ordering::Relaxed);
        }
        // One at a time. Events that arrive meanwhile wait in the channel.
        while let Some(due) = correlator.due(Instant::now()) {
            let name = sink.attempt_recording(&due).await;
            correlator.update_state(&due.key, name);
        }
    }
}

struct Sink {
    api: Connection,
    reporter: Reporter,
    /// Events that were not recorded.
    lost: Arc<AtomicU64>,
    /// Why the last request failed, to log each reason once.
    problem: Option<String>,
}

impl Sink {
    /// Sends one event. Returns the name of the event that the API server has now, if any.
    async fn attempt_recording(&mut self, due: &Due) -> Option<String> {
        match self.api.ask(DEADLINE, self.record(due)).await {
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
                    tracing::warn!(
                        object = %due.key.object,
                        note = due.note,
                        problem,
                        "an event could not be sent"
                    );
                }
                self.problem = Some(problem);
                // Whether the request arrived is unknown: the next update tries the same event.
                due.event.clone()
            }
        }
    }

    async fn record(&self, due: &Due) -> Result<String, kube::Error> {
        let Due { key, note, count, event } = due;
        let events = Api::<v1::Event>::namespaced(self.api.client().clone(), key.namespace());
        if let Some(name) = event {
            let growth = Patch::Merge(json!({"series": event::series(*count)}));
            match events.patch_metadata(name, &PatchParams::default(), &growth).await {
                Ok(_) => return Ok(name.clone()),
                // 404: the event has expired. 403: this program may not patch. In both cases,
                // create a new event.
                Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {}
                Err(error) => return Err(error),
            }
        }
        let mut event = key.to_api(note, &self.reporter);
        if *count > 1 {
            event.series = Some(event::series(*count));
        }
        Ok(events.create(&PostParams::default(), &event).await?.name_any())
    }
}

#[cfg(test)]
mod tests;
