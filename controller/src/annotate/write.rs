//! The task that writes: takes wishes, keeps requests under way, and says what stands in the way.

use futures_util::{StreamExt, stream::FuturesUnordered};
use kubeapi::{Connection, election::Leadership, events::Teller};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use super::{Metrics, Wish, patch::patch, problems::Problems, queue::Queue};

/// Writes until nobody can wish any more, or this process leads no more.
pub(super) async fn write<W: Wish>(
    api: Connection,
    leadership: Leadership,
    teller: Teller,
    metrics: Metrics,
    mut wishes: UnboundedReceiver<W>,
) {
    let mut queue = Queue::new();
    let mut under_way = FuturesUnordered::new();
    let mut problems = Problems::new(W::KIND, teller, metrics.clone());
    // Nothing is written, and no wish is lost, before this process leads.
    leadership.won().await;
    let mut lost = std::pin::pin!(leadership.lost());
    let patience = leadership.patience();
    'leading: loop {
        let now = Instant::now();
        while let Some(annotations) = queue.next(now) {
            if !leadership.is_leader() {
                break 'leading;
            }
            let api = &api;
            under_way.push(async move {
                let outcome = patch(api, patience, &annotations).await;
                (annotations, outcome)
            });
        }
        metrics.waiting(W::KIND, queue.len());
        let next = queue.next_at();
        tokio::select! {
            Some((annotations, outcome)) = under_way.next() => {
                metrics.patched(W::KIND, outcome.name());
                queue.answered(&annotations, &outcome, Instant::now());
                problems.tell(&annotations, &outcome, queue.standing());
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
            () = &mut lost => break,
        }
    }
    // Who has lost the Lease leaves its requests; who gives it up waits until they can change nothing any more.
    while leadership.has_resigned()
        && let Some((_, outcome)) = under_way.next().await
    {
        metrics.patched(W::KIND, outcome.name());
    }
}
