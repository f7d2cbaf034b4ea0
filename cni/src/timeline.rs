//! The stages of an ADD: when each began and ended, and the deadline that all of them share.

use std::{cell::RefCell, error::Error, future::Future, time::Duration};

use contract::stage::{Stage, StageTime};
use tokio::time::{Instant, timeout_at};

use crate::failpoint::{self, Hit, Side};

/// The clock of one call.
#[derive(Debug)]
pub struct Timeline {
    started: Instant,
    deadline: Instant,
    times: RefCell<Vec<StageTime>>,
    /// Stages that have begun and not ended. A stage that was dropped stays here.
    open: RefCell<Vec<Stage>>,
}

/// A stage that failed, and why.
#[derive(Debug, thiserror::Error)]
#[error("stage {stage}")]
pub struct StageError<C: Error + 'static> {
    pub stage: Stage,
    pub source: Box<C>,
}

/// The deadline passed before a stage ended.
#[derive(Debug, thiserror::Error)]
#[error("no time left")]
pub struct DeadlinePassed;

impl Timeline {
    /// Starts the clock.
    pub fn start(timeout: Duration) -> Self {
        let started = Instant::now();
        Self {
            started,
            deadline: started + timeout,
            times: RefCell::default(),
            open: RefCell::default(),
        }
    }

    /// Runs one stage to its end or to the deadline. Stages may overlap.
    ///
    /// # Errors
    /// The error of `work`; [`DeadlinePassed`]; [`Hit`] if a test asked for it.
    pub async fn stage<T, E, C>(
        &self,
        stage: Stage,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StageError<C>>
    where
        E: Into<C>,
        C: Error + From<Hit> + From<DeadlinePassed> + 'static,
    {
        let failed = |cause: C| StageError { stage, source: Box::new(cause) };
        let start = self.milliseconds();
        self.open.borrow_mut().push(stage);
        let guarded = async {
            failpoint::pass(Side::Before, stage).await?;
            let done = work.await.map_err(Into::into)?;
            failpoint::pass(Side::After, stage).await?;
            Ok(done)
        };
        // At the deadline `work` is dropped at its current `await`. What it has created is left to
        // the rollback.
        let outcome =
            timeout_at(self.deadline, guarded).await.unwrap_or_else(|_| Err(DeadlinePassed.into()));
        // By name: overlapping stages end in any order.
        self.open.borrow_mut().retain(|open| *open != stage);
        self.times.borrow_mut().push(StageTime { stage, start, end: self.milliseconds() });
        outcome.map_err(failed)
    }

    /// The error of stages that were dropped for this cause. Names the one that began last.
    pub fn interrupted<C: Error + 'static>(&self, cause: C) -> StageError<C> {
        let stage = self.open.borrow().last().copied().unwrap_or(Stage::Result);
        StageError { stage, source: Box::new(cause) }
    }

    /// Milliseconds since the start.
    pub fn milliseconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64() * 1e3
    }

    /// What is left until the deadline.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The stages that have ended, failed ones included, in the order in which they ended.
    pub fn times(&self) -> Vec<StageTime> {
        self.times.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use contract::net_conf::NetConf;
    use podnet::settings::Settings;

    use super::*;

    #[test]
    fn any_number_of_seconds_is_a_time_that_an_add_can_have() {
        for (given, seconds) in
            [("0", 55), ("1", 1), ("600", 600), ("18446744073709551615", 86_400)]
        {
            let conf = format!(
                r#"{{"cniVersion":"1.0.0","name":"n","type":"t","timeoutSeconds":{given}}}"#
            );
            let settings = Settings::of(&NetConf::parse(conf.as_bytes()).unwrap()).unwrap();
            assert_eq!(settings.timeout, Duration::from_secs(seconds), "timeoutSeconds {given}");
            assert!(Timeline::start(settings.timeout).remaining() <= settings.timeout);
        }
    }
}
