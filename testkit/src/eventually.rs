//! Waiting for a state that is not announced by an event.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

/// Calls `probe` until it succeeds, and returns its result. After `deadline`, panics with the last error of
/// the probe.
///
/// If there is an event (the end of a process, a message of a channel), wait for that instead.
#[track_caller]
pub fn eventually<T, E: Display>(
    what: &str,
    deadline: Duration,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let seen = match probe() {
            Ok(found) => return found,
            Err(seen) => seen,
        };
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}; last seen: {seen}");
        sleep(pause);
        // Short pauses at first, so that fast states cost little; at most 20 ms, so that slow ones leave the
        // CPU free.
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that polls; bounded by the deadline above")]
fn sleep(pause: Duration) {
    std::thread::sleep(pause);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_what_the_probe_found() {
        let mut calls = 0;
        let found = eventually("the third call", Duration::from_secs(5), || {
            calls += 1;
            if calls == 3 { Ok(calls) } else { Err(calls) }
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "a unicorn; last seen: a horse")]
    fn says_what_it_waited_for_and_what_it_saw_last() {
        eventually::<(), _>("a unicorn", Duration::ZERO, || Err("a horse"));
    }
}
