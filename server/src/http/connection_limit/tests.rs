use futures_util::{FutureExt, future::join_all};

use super::*;

async fn serving(limit: &ConnectionLimit) -> Option<ConnectionState> {
    let state = limit.accepted();
    state.take_slot().await.then_some(state)
}

/// So many connections with a slot, each of which serves a request.
async fn busy(limit: &ConnectionLimit, count: usize) -> Vec<ConnectionState> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(serving(limit).await.expect("a free slot"));
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn the_longest_idle_connection_makes_room() {
    let all = ConnectionLimit::default();
    let mut taken = busy(&all, SLOTS).await;
    [2, 3, 1].iter().for_each(|which: &usize| taken[*which].idle());

    let newcomer = serving(&all);
    tokio::pin!(newcomer);
    assert!(newcomer.as_mut().now_or_never().is_none());
    assert!(taken[0].evicted().now_or_never().is_none(), "busy");
    assert!(taken[1].evicted().now_or_never().is_none(), "idle since a moment ago");
    assert!(taken[2].evicted().now_or_never().is_some());
    drop(taken.remove(2));
    assert!(newcomer.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_sent_nothing_loses_no_slot_to_others() {
    let all = ConnectionLimit::default();
    let _taken = busy(&all, SLOTS).await;
    let silent = all.accepted();
    assert!(serving(&all).await.is_none());
    assert!(silent.evicted().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn where_places_or_descriptors_run_out_the_longest_silent_connection_makes_room() {
    let all = ConnectionLimit::default();
    let places = join_all((0..PLACES).map(|_| all.place())).await;
    let (first, second) = (all.accepted(), all.accepted());
    let served = serving(&all).await.expect("a free slot");
    served.idle();
    let newcomer = all.place();
    tokio::pin!(newcomer);
    assert!(newcomer.as_mut().now_or_never().is_none());
    assert!(second.evicted().now_or_never().is_none());
    assert!(served.evicted().now_or_never().is_none());
    assert!(first.evicted().now_or_never().is_some());
    drop(places);
    newcomer.await;
    all.make_room();
    assert!(second.evicted().now_or_never().is_some());
    all.make_room();
    assert!(served.evicted().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn where_all_are_busy_a_newcomer_waits_and_then_is_refused() {
    let all = ConnectionLimit::default();
    let mut taken = busy(&all, SLOTS).await;
    assert!(serving(&all).await.is_none());

    let newcomer = serving(&all);
    tokio::pin!(newcomer);
    assert!(newcomer.as_mut().now_or_never().is_none());
    taken.pop();
    assert!(newcomer.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_end_of_a_pod_needs_no_slot() {
    let all = ConnectionLimit::default();
    let taken = busy(&all, SLOTS).await;
    taken[7].step_aside();
    assert!(serving(&all).await.is_some());
}

#[tokio::test]
async fn a_connection_that_ended_is_not_asked_to_make_room() {
    let all = ConnectionLimit::default();
    let taken = busy(&all, 3).await;
    let silent = all.accepted();
    taken.iter().for_each(ConnectionState::idle);
    drop((taken, silent));
    let idle = lock(&all.idle);
    assert!(idle.silent.is_empty() && idle.kept.is_empty());
}
