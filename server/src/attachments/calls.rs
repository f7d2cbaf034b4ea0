//! The directory in which the plugin's calls are kept apart: files whose calls were killed do not pile up there. Must not know what calls do.

use std::{path::PathBuf, time::Duration};

use podnet::fence;
use tokio::time::{MissedTickBehavior, interval};

/// A call that is killed is rare, and the next call for its interface removes its file.
const EVERY: Duration = Duration::from_secs(300);

/// Removes what killed calls leave, for as long as the runtime lives.
pub(crate) async fn tidy(directory: PathBuf) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match fence::remove_stale(&directory, fence::STALE) {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "removed what killed calls of the plugin had left"),
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "what killed calls of the plugin left cannot be removed")
            }
        }
    }
}
