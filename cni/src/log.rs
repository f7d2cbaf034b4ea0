//! Log files in Open vSwitch's own line layout, so that one `less` and one `grep` serve for its daemons and for these programs.
//!
//! | part | reads | writes |
//! |---|---|---|
//! | [`ReopenFile`] | the file's path | lines, one `write` each, into whatever file has that path now |
//! | [`OvsLayout`], [`OvsFields`] | events and spans | one line: `TIMESTAMP\|SEQUENCE\|MODULE\|LEVEL\|message` |
//! | [`Level`] | `logLevel`, `--loglevel` | what is logged |
//! | [`start_plugin_log`] | the CNI configuration | the plugin's log |
//!
//! Logging never fails a pod: what cannot be written is counted and forgotten.

use std::sync::Mutex;

use contract::{net_conf::LogConf, paths::PLUGIN_LOG};
use tracing::Subscriber;
use tracing_subscriber::{Registry, fmt::MakeWriter, layer::SubscriberExt, registry::LookupSpan};

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

/// Starts the plugin's log as its configuration says. The file is opened with the first line; a level that is none is said there.
///
/// Writes directly: the process ends too soon for another thread to write for it.
pub fn start_plugin_log(conf: &LogConf) {
    let level = conf.level.as_deref().map_or(Ok(Level::default()), str::parse);
    let file = ReopenFile::new(conf.file.as_deref().unwrap_or(PLUGIN_LOG));
    let filter = level.as_ref().map_or(Level::default(), |level| *level).filter();
    let subscriber = Registry::default().with(filter).with(layer(Mutex::new(file)));
    // Somebody's subscriber may be there already (a test's): then it gets the events.
    let _ = tracing::subscriber::set_global_default(subscriber);
    log_panics();
    if let Err(bad) = level {
        tracing::warn!(%bad, "logLevel is ignored");
    }
}

#[cfg(test)]
mod tests;
