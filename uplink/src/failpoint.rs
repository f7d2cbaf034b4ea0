//! Failures for tests: before any step, chosen by its number.
//!
//! Compiled in only with the feature `failpoints`. `OVN_BRIDGE_FAILPOINT=3=error` fails before the
//! third step; `3=kill` kills the process with SIGKILL.

/// A test asked for this failure.
#[derive(Debug, thiserror::Error)]
#[error("failpoint {0}")]
pub(crate) struct Hit(u32);

/// Counts the steps.
#[derive(Debug, Default)]
pub(crate) struct Failpoint {
    #[cfg(feature = "failpoints")]
    passed: u32,
}

impl Failpoint {
    /// Fails or dies before the next step if the environment asks for it.
    #[cfg(feature = "failpoints")]
    pub(crate) fn pass(&mut self) -> Result<(), Hit> {
        self.passed += 1;
        let wanted = std::env::var("OVN_BRIDGE_FAILPOINT").unwrap_or_default();
        match wanted.split_once('=') {
            Some((step, what)) if step == self.passed.to_string() => {
                if what == "kill" {
                    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
                }
                Err(Hit(self.passed))
            }
            _ => Ok(()),
        }
    }

    /// Does nothing.
    #[cfg(not(feature = "failpoints"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn pass(&mut self) -> Result<(), Hit> {
        Ok(())
    }
}
