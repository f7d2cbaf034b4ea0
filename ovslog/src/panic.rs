//! A defect that ends a thread or the process is a line in the log, too: standard error of a plugin is nobody's.

use std::panic::{set_hook, take_hook};

/// Target of such an event, by which the layout tells it from others.
pub(super) const TARGET: &str = "panic";

/// From now on, a panic is logged before what else is done about it.
pub fn log_panics() {
    let next = take_hook();
    set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or("no message");
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(target: TARGET, message, location, "a defect of this program");
        next(info);
    }));
}
