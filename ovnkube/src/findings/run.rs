//! A command that ends in a report: its runtime, and Ctrl-C.

use std::process::ExitCode;

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use super::{Format, Report};
use crate::chain;

/// The exit status of a run that a signal has ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Prints the report that `questions` ends in. What is under way when a signal comes ends with its
/// future.
pub(crate) fn run(questions: impl Future<Output = Report>, format: Format) -> ExitCode {
    ended(questions, |report| report.print(format))
}

/// Waits for the answer, or a signal, and returns the exit status of what `print` does with it.
pub(crate) fn ended<T>(
    questions: impl Future<Output = T>,
    print: impl FnOnce(T) -> ExitCode,
) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ovnkube: the runtime of this program: {}", chain(&error));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(until_interrupted(questions)) {
        Some(answer) => print(answer),
        None => INTERRUPTED.into(),
    }
}

/// `None` if a signal has ended it.
pub(crate) async fn until_interrupted<T>(questions: impl Future<Output = T>) -> Option<T> {
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        return Some(questions.await);
    };
    tokio::select! {
        answer = questions => Some(answer),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    }
}
