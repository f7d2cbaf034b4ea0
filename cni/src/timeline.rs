//! The stages of an ADD: when each began and ended, and the deadline that all of them share.

use std::{cell::RefCell, future::Future, time::Duration};

use contract::stage::{Stage, StageTime};
use tokio::time::{Instant, timeout_at};

use crate::{
    error::Cause,
    failpoint::{self, Side},
};

/// The clock of one request.
#[derive(Debug)]
pub struct Timeline {
    started: Instant,
    deadline: Instant,
    times: RefCell<Vec<StageTime>>,
    /// Stages that have begun and not ended.
    open: RefCell<Vec<Stage>>,
}

/// A stage that failed.
#[derive(Debug, thiserror::Error)]
#[error("stage {stage}")]
pub struct StageError {
    pub stage: Stage,
    pub source: Box<Cause>,
}

impl Timeline {
    /// Starts the clock.
    pub fn start(timeout: Duration) -> Self {
        let started = Instant::now();
        Self { started, deadline: started + timeout, times: RefCell::default(), open: RefCell::default() }
    }

    /// Runs one stage to its end or to the deadline. Stages may overlap.
    pub async fn stage<T, E: Into<Cause>>(&self, stage: Stage, work: impl Future<Output = Result<T, E>>) -> Result<T, StageError> {
        let failed = |cause: Cause| StageError { stage, source: Box::new(cause) };
        let start = self.milliseconds();
        self.open.borrow_mut().push(stage);
        let guarded = async {
            failpoint::pass(Side::Before, stage).await?;
            let done = work.await.map_err(Into::into)?;
            failpoint::pass(Side::After, stage).await?;
            Ok(done)
        };
        let outcome = timeout_at(self.deadline, guarded).await.unwrap_or(Err(Cause::Deadline));
        self.open.borrow_mut().retain(|open| *open != stage);
        self.times.borrow_mut().push(StageTime { stage, start, end: self.milliseconds() });
        outcome.map_err(failed)
    }

    /// The stages were abandoned for this cause; names the last one that had begun.
    pub fn interrupted(&self, cause: Cause) -> StageError {
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

    /// The stages that have ended, failed ones too, in the order of their ends.
    pub fn times(&self) -> Vec<StageTime> {
        self.times.borrow().clone()
    }
}
