use futures_util::FutureExt;

use super::*;

async fn slots(slots: &ConnectionLimit, count: usize) -> Vec<Slot> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(slots.slot().await.expect("a free slot"));
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn the_longest_idle_connection_makes_room() {
    let all = ConnectionLimit::default();
    let mut taken = slots(&all, SLOTS).await;
    taken[0].busy();
    taken[1].busy();
    taken[1].idle();

    let newcomer = all.slot();
    tokio::pin!(newcomer);
    assert!(newcomer.as_mut().now_or_never().is_none());
    assert!(taken[0].evicted().now_or_never().is_none(), "busy");
    assert!(taken[1].evicted().now_or_never().is_none(), "idle since a moment ago");
    assert!(taken[2].evicted().now_or_never().is_some());
    drop(taken.remove(2));
    assert!(newcomer.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn where_all_are_busy_a_newcomer_waits_and_then_is_refused() {
    let all = ConnectionLimit::default();
    let mut taken = slots(&all, SLOTS).await;
    taken.iter().for_each(Slot::busy);
    assert!(all.slot().await.is_none());

    let newcomer = all.slot();
    tokio::pin!(newcomer);
    assert!(newcomer.as_mut().now_or_never().is_none());
    taken.pop();
    assert!(newcomer.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_end_of_a_pod_needs_no_slot() {
    let all = ConnectionLimit::default();
    let taken = slots(&all, SLOTS).await;
    taken.iter().for_each(Slot::busy);
    taken[7].step_aside();
    assert!(all.slot().await.is_some());
}

#[tokio::test]
async fn a_connection_that_ended_is_not_asked_to_make_room() {
    let all = ConnectionLimit::default();
    drop(slots(&all, 3).await);
    assert!(lock(&all.idle).since.is_empty());
}
