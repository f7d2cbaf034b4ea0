//! Log files in Open vSwitch's line layout, so that the same tools read the logs of its daemons and
//! of these programs.
//!
//! | part | reads | writes |
//! |---|---|---|
//! | [`ReopenFile`] | the file's path | lines, one `write` each, to the file that has the path at that time |
//! | [`OvsLayout`], [`OvsFields`] | events, spans | a line: `TIMESTAMP\|SEQUENCE\|MODULE\|LEVEL\|message` |
//! | [`Level`] | `logLevel`, `--loglevel` | a filter of events |
//! | [`LogRateLimit`] | each occurrence of an event | at most one line a minute |
//! | [`start`] | a path and a level | the log of a short-lived program |
//! | `vlog` (feature `background`) | levels by module and destination | the log of a daemon |
//! | `background` (feature) | a path, a level, rotation | the log of a long-lived program |
//!
//! Logging never fails the program: lines that cannot be written are counted and dropped.

use std::{path::Path, sync::Mutex};

use tracing::Subscriber;
use tracing_subscriber::{Registry, fmt::MakeWriter, layer::SubscriberExt, registry::LookupSpan};

#[cfg(feature = "background")]
pub mod background;
mod escape;
mod fields;
mod layout;
mod level;
mod panic;
mod rate_limit;
mod reopen_file;
#[cfg(feature = "background")]
pub mod vlog;

pub use fields::OvsFields;
pub use layout::OvsLayout;
pub use level::{BadLevel, Level};
pub use panic::log_panics;
pub use rate_limit::LogRateLimit;
pub use reopen_file::ReopenFile;

/// A layer that writes every event as a line in Open vSwitch's layout.
pub fn layer<S, W>(writer: W) -> tracing_subscriber::fmt::Layer<S, OvsFields, OvsLayout, W>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .log_internal_errors(false)
        .fmt_fields(OvsFields)
        .event_format(OvsLayout::default())
        .with_writer(writer)
}

/// Starts the log of a short-lived program. The file is opened when the first line is written. An
/// unknown level is reported in the log, and the default is used instead.
///
/// The thread that logs writes the line: the process could exit before a background thread wrote
/// it.
pub fn start(file: &Path, level: Option<&str>) {
    let level = level.map_or(Ok(Level::default()), str::parse);
    let filter = level.as_ref().map_or(Level::default(), |level| *level).filter();
    let subscriber =
        Registry::default().with(filter).with(layer(Mutex::new(ReopenFile::new(file))));
    // Fails if a subscriber is set already, such as a test's. That one gets the events then.
    let _ = tracing::subscriber::set_global_default(subscriber);
    log_panics();
    if let Err(bad) = level {
        tracing::warn!(%bad, "logLevel is ignored");
    }
}

#[cfg(test)]
mod tests;
