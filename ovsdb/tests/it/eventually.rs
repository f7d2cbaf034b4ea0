//! Waiting for another process.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// Longer than any step takes on a busy machine, so that only a real failure reaches it. Ten times
/// less would fail on a busy machine; ten times more would only delay the report of a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Calls `probe` until it returns `Ok`. Panics with the last error at the deadline.
pub(crate) async fn eventually<T, E: Debug>(
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let begun = Instant::now();
    loop {
        match probe().await {
            Ok(found) => return found,
            Err(last) if begun.elapsed() > DEADLINE => {
                panic!("{what}: not within {DEADLINE:?}; last seen: {last:?}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// The result of a future. Panics with `what` if it is not ready at the deadline.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}
