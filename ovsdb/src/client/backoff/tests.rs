use super::*;

const MIN: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_millis(300);

#[test]
fn pauses_double_up_to_the_longest_and_are_cut_by_at_most_half() {
    let mut backoff = Backoff::new(MIN, MAX);
    for full in [50, 100, 200, 300, 300].map(Duration::from_millis) {
        let pause = backoff.pause();
        assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
    }
}

#[test]
fn pauses_differ() {
    let pauses: std::collections::HashSet<_> =
        (0..50).map(|_| Backoff::new(MAX, MAX).pause()).collect();
    assert!(pauses.len() > 10, "{pauses:?}");
}

#[test]
fn only_a_connection_that_lasted_starts_them_anew() {
    let mut backoff = Backoff::new(MIN, MAX);
    let _ = [(); 4].map(|()| backoff.pause());
    backoff.served(MIN);
    assert!(backoff.pause() >= MAX / 2);
    backoff.served(MAX * 2);
    assert!(backoff.pause() <= MIN);
}
