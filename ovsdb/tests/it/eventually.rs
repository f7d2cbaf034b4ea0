//! Waiting for what another process does.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// Longer than anything here takes on a busy machine, so that only a real failure reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Asks until the answer is `Ok`; at the deadline fails with the last answer.
pub(crate) async fn eventually<T, E: Debug>(what: &str, mut probe: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match probe().await {
            Ok(found) => return found,
            Err(last) if begun.elapsed() > DEADLINE => panic!("{what}: not within {DEADLINE:?}; last seen: {last:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// The result of something that ends by itself, or a failure that says what did not.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}
