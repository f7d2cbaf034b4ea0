//! What a comparison of the port has come to, and how it is told.

use contract::error::chain;

use super::{INTERFACE, kernel::Refused, link::Step};

/// Why something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    SetUp,
    /// The port was complete: another program has changed it.
    Repair,
}

/// The result of a comparison.
#[derive(Default)]
pub(super) struct Outcome {
    /// Why pods and node do not reach each other.
    pub(super) missing: Option<String>,
    /// Settings that this environment does not allow. Everything else is in place.
    pub(super) forbidden: Vec<String>,
    /// Whether another attempt without an event may succeed.
    pub(super) failed: bool,
}

impl Outcome {
    /// Records a step that failed.
    pub(super) fn take(&mut self, step: &Step, error: &Refused) {
        self.failed |= !error.is_final(step);
        let error = chain(error);
        match step {
            // A container may lack the right to both (a read-only `/proc/sys`): reported, but the
            // port counts as there.
            Step::SetSysctl(sysctl) => self.forbidden.push(error + sysctl.instead()),
            Step::TurnChecksumOffloadOff => self.forbidden.push(error),
            _ => {
                self.missing = Some(
                    self.missing
                        .take()
                        .map_or(error.clone(), |before| format!("{before}; {error}")),
                )
            }
        }
    }
}

/// A repair is a warning.
pub(super) fn log(done: &[String], occasion: Occasion) {
    match (done, occasion) {
        ([], _) => {}
        (done, Occasion::Repair) => {
            tracing::warn!(
                interface = INTERFACE,
                done = done.join(", "),
                "repaired the management port"
            )
        }
        (done, Occasion::SetUp) => {
            tracing::info!(
                interface = INTERFACE,
                done = done.join(", "),
                "set up the management port"
            )
        }
    }
}
