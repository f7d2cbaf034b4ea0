//! Things that may happen often and are said seldom.

use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(60);

/// Says something at most once a minute.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    said: Option<Instant>,
    times: u32,
}

impl Seldom {
    /// It happened. `say` hears how often since it was said last.
    pub(crate) fn now(&mut self, say: impl FnOnce(u32)) {
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
        let mut seldom = Seldom::default();
        let mut said = Vec::new();
        (0..3).for_each(|_| seldom.now(|times| said.push(times)));
        seldom.said = Instant::now().checked_sub(EVERY);
        seldom.now(|times| said.push(times));
        assert_eq!(said, [1, 3]);
    }
}
