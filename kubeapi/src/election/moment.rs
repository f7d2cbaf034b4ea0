//! A moment on two clocks: one that stops while the machine is suspended, and one that goes on
//! (`CLOCK_BOOTTIME`, clock_gettime(2)).
//!
//! Other processes go on counting a Lease while this machine is suspended, so a deadline has passed
//! as soon as one of the clocks says so. If a hypervisor stops a virtual machine, both clocks may
//! stop. The database itself refuses what such a machine writes afterwards, because each
//! transaction asserts a lock.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// The clock that tokio's timers use.
    pub(super) clock: Instant,
    /// Time since the machine was started, on `CLOCK_BOOTTIME`; `None` if the kernel does not have
    /// that clock.
    boot: Option<Duration>,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self {
            clock: Instant::now(),
            boot: clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from),
        }
    }

    pub(super) fn after(self, duration: Duration) -> Self {
        Self { clock: self.clock + duration, boot: self.boot.map(|boot| boot + duration) }
    }

    pub(super) fn has_passed(self) -> bool {
        self.has_passed_at(Self::now())
    }

    fn has_passed_at(self, now: Self) -> bool {
        let slept = self.boot.zip(now.boot).is_some_and(|(then, now)| now >= then);
        now.clock >= self.clock || slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_was_suspended_past_a_deadline_knows_it_when_it_wakes_up() {
        let second = Duration::from_secs(1);
        let asked = Moment { clock: Instant::now(), boot: Some(100 * second) };
        let deadline = asked.after(10 * second);
        let at = |clock: u32, boot: Option<u32>| Moment {
            clock: asked.clock + clock * second,
            boot: boot.map(|boot| (100 + boot) * second),
        };
        assert!(!deadline.has_passed_at(at(9, Some(9))));
        assert!(deadline.has_passed_at(at(10, Some(10))));
        assert!(deadline.has_passed_at(at(1, Some(60))), "it has slept for 59 s");
        assert!(
            !deadline.has_passed_at(at(9, None)) && deadline.has_passed_at(at(10, None)),
            "one clock is enough"
        );
        assert!(!Moment::now().after(60 * second).has_passed());
    }
}
