//! Cleans the directory of the per-interface locks: files of killed calls do not pile up there.
//! Must not know what calls do.

use std::{path::PathBuf, time::Duration};

use podnet::interface_lock;
use tokio::time::{MissedTickBehavior, interval};

/// Interval of the cleaning. Killed calls are rare, their files are empty FIFOs, and the next call
/// for the same interface removes its file anyway.
const EVERY: Duration = Duration::from_secs(300);

/// Removes the files of killed calls, for as long as the runtime lives.
pub(crate) async fn tidy(directory: PathBuf) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match interface_lock::remove_stale(&directory, interface_lock::STALE) {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "removed stale lock files of killed plugin calls"),
            Err(error) => {
                tracing::warn!(
                    %error,
                    directory = %directory.display(),
                    "stale lock files of killed plugin calls cannot be removed"
                )
            }
        }
    }
}
