//! Waits for a state that nothing announces.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// Calls `probe` until it succeeds, and returns what it found.
///
/// Use an event where there is one (`ovs-vsctl wait-until`, the end of a process); this is for the rest.
///
/// # Errors
/// After `deadline`: `what`, and the last error of `probe`.
pub fn eventually<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    // From 1 ms, so that a state that comes soon costs no time, to 50 ms, so that a late one costs no
    // processor.
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
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
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
        let found = eventually("third call", Duration::from_secs(5), || {
            calls += 1;
            if calls == 3 { Ok(calls) } else { Err(anyhow!("call {calls}")) }
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn says_what_it_waited_for_and_what_it_saw_last() {
        let error = eventually::<()>("a unicorn", Duration::ZERO, || Err(anyhow!("a horse")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("a unicorn") && error.contains("a horse"), "{error}");
    }
}
