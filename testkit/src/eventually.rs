//! Waiting for a state that is not announced by an event.
//!
//! If there is an event (the end of a process, a message of a channel, `ovs-vsctl wait-until`),
//! wait for that instead.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

/// Calls `probe` until it succeeds, and returns its result. After `deadline`, panics with the last
/// error of the probe.
#[track_caller]
pub fn eventually<T, E: Display>(
    what: &str,
    deadline: Duration,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    until(what, deadline, || probe().map_err(|seen| anyhow!("{seen:#}")))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The same for tests that return their failure.
///
/// # Errors
/// After `deadline`: `what`, and the last error of `probe`.
pub fn until<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    // From 1 ms, so that a state that comes soon costs no time, to 50 ms, so that a late one leaves
    // the processor to those that bring it about.
    let mut pause = Duration::from_millis(1);
    loop {
        let seen = match probe() {
            Ok(found) => return Ok(found),
            Err(seen) => seen,
        };
        // After the probe, so that it runs at least once.
        if start.elapsed() >= deadline {
            return Err(anyhow!("not within {deadline:?}: {what}; last seen: {seen:#}"));
        }
        let_pass(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Lets time pass, where the time itself is what a test needs: nothing announces its end.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place of the tests that sleeps; each caller bounds it"
)]
pub fn let_pass(time: Duration) {
    std::thread::sleep(time);
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

    #[test]
    fn the_error_has_what_it_waited_for_and_every_cause_of_what_it_saw_last() {
        let horse = || Err::<(), _>(anyhow!("no horn").context("a horse"));
        let error = until("a unicorn", Duration::ZERO, horse).unwrap_err().to_string();
        assert!(error.ends_with("a unicorn; last seen: a horse: no horn"), "{error}");
    }
}
