//! The task of the patcher: takes wishes, keeps requests in flight, reports failures.

use futures_util::{StreamExt, stream::FuturesUnordered};
use kubeapi::{Connection, election::Leadership, events::Recorder};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use crate::annotate::{AnnotationMetrics, Wish, patch::patch, problems::Problems, queue::Queue};

/// Writes until the channel of wishes is closed or the leadership is lost.
pub(super) async fn write<W: Wish>(
    api: Connection,
    leadership: Leadership,
    recorder: Recorder,
    metrics: AnnotationMetrics,
    mut wishes: UnboundedReceiver<W>,
) {
    let mut queue = Queue::<W>::new();
    let mut under_way = FuturesUnordered::new();
    let mut problems = Problems::new(W::KIND, W::MATTER, recorder, metrics.clone());
    // Until this process leads, wishes stay in their channel.
    leadership.won().await;
    let mut lost = std::pin::pin!(leadership.lost());
    let patience = leadership.patience();
    'leading: loop {
        let now = Instant::now();
        while let Some(wish) = queue.next(now) {
            // Before each request: the Lease's deadline may have passed since `lost` was last
            // polled.
            if !leadership.is_leader() {
                break 'leading;
            }
            let api = &api;
            under_way.push(async move {
                let outcome = patch(api, patience, &wish.spell()).await;
                (wish, outcome)
            });
        }
        metrics.waiting(W::KIND, queue.len());
        let next = queue.next_at();
        tokio::select! {
            Some((wish, outcome)) = under_way.next() => {
                metrics.patched(W::KIND, outcome.name());
                queue.answered(&wish, &outcome, Instant::now());
                problems.tell(&*wish, &outcome, queue.standing());
            }
            wish = wishes.recv() => match wish {
                Some(wish) => {
                    queue.wish(wish);
                    while let Ok(wish) = wishes.try_recv() {
                        queue.wish(wish);
                    }
                }
                // The role has ended. Requests in flight are cancelled.
                None => return,
            },
            () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            () = &mut lost => break,
        }
    }
    // After a resignation the Lease is released next, so the requests in flight have to end first:
    // none may arrive in the next leader's time. After a loss they are cancelled here.
    while leadership.has_resigned()
        && let Some((_, outcome)) = under_way.next().await
    {
        metrics.patched(W::KIND, outcome.name());
    }
}
