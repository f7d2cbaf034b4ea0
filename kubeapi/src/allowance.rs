//! A token bucket: so many requests at once, and one more after each interval.

use std::time::Duration;

use tokio::time::Instant;

/// The requests that may still be made.
#[derive(Debug, Clone)]
pub struct Allowance {
    burst: u32,
    refill: Duration,
    /// When the bucket is full again.
    full: Instant,
}

impl Allowance {
    /// A bucket that is full at the time `now`: with `burst` requests, and another one after each
    /// `refill`.
    pub fn full(burst: u32, refill: Duration, now: Instant) -> Self {
        Self { burst, refill, full: now }
    }

    /// A request is made.
    pub fn spend(&mut self, now: Instant) {
        self.full = self.full.max(now) + self.refill;
    }

    /// When the next one may be made; `now` or a moment before it if that is at once.
    pub fn next(&self, now: Instant) -> Instant {
        // The clock may have begun later than that: then the bucket has never been empty.
        self.full.checked_sub(self.refill * self.burst.saturating_sub(1)).unwrap_or(now)
    }

    /// Whether it is like a new one.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_one_request_after_each_interval() {
        let second = Duration::from_secs(1);
        let now = Instant::now() + 100 * second;
        let mut allowance = Allowance::full(3, second, now);
        for _ in 0..3 {
            assert!(allowance.next(now) <= now);
            allowance.spend(now);
        }
        assert_eq!(allowance.next(now), now + second);
        assert!(!allowance.is_full(now + 2 * second));
        assert!(allowance.is_full(now + 3 * second));
        allowance.spend(now + second);
        assert_eq!(allowance.next(now), now + 2 * second);
    }
}
