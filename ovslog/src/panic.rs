//! Logs panics. They end a thread or the process, and the runtime may drop a plugin's standard
//! error.

use std::panic::{set_hook, take_hook};

/// The target of such an event, by which the layout recognises it.
pub(super) const TARGET: &str = "panic";

/// Installs a panic hook that logs each panic, and then calls the hook installed before.
pub fn log_panics() {
    let next = take_hook();
    set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or("no message");
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(target: TARGET, location, "a defect of this program: {message}");
        next(info);
    }));
}
