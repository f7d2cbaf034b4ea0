//! A rate limiter for log lines. Does not know what is logged.

use std::time::{Duration, Instant};

/// The shortest time between two lines. Ten times less would still fill the log under a steady
/// fault; ten times more would hide for long that a fault goes on.
const EVERY: Duration = Duration::from_secs(60);

/// Logs an event at most once a minute.
#[derive(Debug, Default)]
pub struct LogRateLimit {
    said: Option<Instant>,
    times: u32,
}

impl LogRateLimit {
    /// Records an event. If it is time to log it, calls `say` with the number of events since the
    /// last line.
    pub fn now(&mut self, say: impl FnOnce(u32)) {
        self.times = self.times.saturating_add(1);
        if self.said.is_none_or(|said| said.elapsed() >= EVERY) {
            say(self.times);
            *self = Self { said: Some(Instant::now()), times: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_once_a_minute() {
        let mut seldom = LogRateLimit::default();
        let mut said = Vec::new();
        (0..3).for_each(|_| seldom.now(|times| said.push(times)));
        seldom.said = Instant::now().checked_sub(EVERY);
        seldom.now(|times| said.push(times));
        assert_eq!(said, [1, 3]);
    }
}
