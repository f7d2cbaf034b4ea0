//! How soon one comparison follows another.

use std::time::Duration;

use tokio::time::Instant;

/// Events of the kernel come in bursts: an address moves with its routes, a routing daemon starts.
/// They cause at most one comparison in this time: short enough for a changed address, long enough
/// for a busy host.
const SETTLE: Duration = Duration::from_millis(200);
/// The same for Services, whose users wait: a Service and its endpoints are two changes within some
/// milliseconds.
const SERVICES_SETTLE: Duration = Duration::from_millis(20);
/// A comparison with many Services takes longer. While they change all the time, comparisons take a
/// quarter of a processor at most.
const PAUSE: u32 = 4;

/// The last comparison.
#[derive(Debug)]
pub(super) struct Pace {
    began: Instant,
    took: Duration,
}

impl Pace {
    /// A comparison begins.
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), took: Duration::ZERO }
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        self.took = self.began.elapsed();
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// When events of the kernel or of the node are looked at.
    pub(super) fn next(&self) -> Instant {
        self.began + SETTLE
    }

    /// When a change of Services is looked at.
    pub(super) fn next_of_services(&self) -> Instant {
        self.began + (self.took * PAUSE).clamp(SERVICES_SETTLE, SETTLE)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn services_wait_less_than_events_of_the_kernel_unless_comparisons_are_long() {
        for (took, wait) in [(1, 20), (20, 80), (70, 200)] {
            let began = Instant::now();
            let mut pace = Pace::begin();
            advance(Duration::from_millis(took)).await;
            pace.end();
            assert_eq!(pace.next_of_services() - began, Duration::from_millis(wait), "{took} ms");
            assert_eq!(pace.next() - began, SETTLE);
        }
    }
}
