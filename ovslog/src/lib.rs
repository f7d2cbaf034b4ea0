//! Log files in Open vSwitch's own line layout, so that one `less` and one `grep` serve for its daemons and for these programs.
//!
//! | part | reads | writes |
//! |---|---|---|
//! | [`ReopenFile`] | the file's path | lines, one `write` each, into whatever file has that path now |
//! | [`OvsLayout`], [`OvsFields`] | events and spans | one line: `TIMESTAMP\|SEQUENCE\|MODULE\|LEVEL\|message` |
//! | [`Level`] | `logLevel`, `--loglevel` | what is logged |
//! | [`start`] | a path and a level | the log of a program that ends soon |
//! | `background` (feature) | the same, and when to rename | the log of one that lives long |
//!
//! Logging never fails its program: what cannot be written is counted and forgotten.

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
mod reopen_file;

pub use fields::OvsFields;
pub use layout::OvsLayout;
pub use level::{BadLevel, Level};
pub use panic::log_panics;
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

/// Starts the log of a program that ends soon. The file is opened with the first line. A level that is unknown is reported there, and the
/// default counts.
///
/// Writes directly: the process ends too soon for another thread to write for it.
pub fn start(file: &Path, level: Option<&str>) {
    let level = level.map_or(Ok(Level::default()), str::parse);
    let filter = level.as_ref().map_or(Level::default(), |level| *level).filter();
    let subscriber = Registry::default().with(filter).with(layer(Mutex::new(ReopenFile::new(file))));
    // Somebody's subscriber may be there already (a test's): then it gets the events.
    let _ = tracing::subscriber::set_global_default(subscriber);
    log_panics();
    if let Err(bad) = level {
        tracing::warn!(%bad, "logLevel is ignored");
    }
}

#[cfg(test)]
mod tests;
