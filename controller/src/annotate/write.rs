//! The task that writes: takes wishes, keeps requests under way, and says what stands in the way.

use std::collections::HashMap;

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use super::{
    Wish,
    patch::{Outcome, patch},
    queue::Queue,
};
use crate::{
    api_server::{ApiServer, metrics::Metrics},
    lead::Leadership,
    object::Object,
};

/// Writes until nobody can wish any more, or this process leads no more.
pub(super) async fn write<W: Wish>(api: ApiServer, leadership: Leadership, metrics: Metrics, mut wishes: UnboundedReceiver<W>) {
    let mut queue = Queue::new();
    let mut under_way = FuturesUnordered::new();
    let mut problems = Problems::default();
    // Nothing is written, and no wish is lost, before this process leads.
    leadership.won().await;
    let mut lost = std::pin::pin!(leadership.lost());
    loop {
        let now = Instant::now();
        while let Some(annotations) = queue.next(now) {
            if !leadership.is_leader() {
                return;
            }
            let api = &api;
            under_way.push(async move {
                let outcome = patch(api, &annotations).await;
                (annotations, outcome)
            });
        }
        metrics.waiting(W::KIND, queue.len());
        let next = queue.next_at();
        tokio::select! {
            Some((annotations, outcome)) = under_way.next() => {
                metrics.patched(W::KIND, outcome.name());
                problems.tell(&annotations.object, &outcome);
                queue.answered(&annotations, &outcome, Instant::now());
            }
            wish = wishes.recv() => match wish {
                Some(wish) => {
                    queue.wish(wish.into());
                    while let Ok(wish) = wishes.try_recv() {
                        queue.wish(wish.into());
                    }
                }
                None => return,
            },
            () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            () = &mut lost => return,
        }
    }
}

/// What was last said to stand in the way.
#[derive(Default)]
struct Problems {
    /// Of everything.
    general: Option<String>,
    /// Of one object.
    refused: HashMap<Object, String>,
}

impl Problems {
    fn tell(&mut self, object: &Object, outcome: &Outcome) {
        match outcome {
            Outcome::Written | Outcome::Gone => {
                if self.general.take().is_some() {
                    tracing::info!("annotations are written again");
                }
                self.refused.remove(object);
            }
            Outcome::Overloaded(trouble) => {
                if self.general.is_none() {
                    tracing::info!(problem = %trouble, "annotations are written more slowly");
                }
                self.general.get_or_insert_with(|| trouble.text.clone());
            }
            Outcome::Unavailable(trouble) => {
                if self.general.as_ref() != Some(&trouble.text) {
                    tracing::warn!(problem = %trouble, "annotations are not written at the moment; it is tried again until they are");
                }
                self.general = Some(trouble.text.clone());
            }
            Outcome::Refused(trouble) => {
                if self.refused.insert(object.clone(), trouble.text.clone()).as_ref() != Some(&trouble.text) {
                    tracing::warn!(%object, problem = %trouble, "the annotations of an object are refused; they are tried again");
                }
            }
        }
    }
}
