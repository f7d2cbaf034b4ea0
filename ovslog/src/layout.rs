//! The line layout of Open vSwitch's daemons: the default pattern for files (ovs-appctl(8),
//! `vlog/set PATTERN`).

use std::{
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};

use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::LookupSpan,
};

use super::{fields::Fields, panic};

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Formats an event as a line: time in UTC, number of the line in this process, module, level, the
/// request that it belongs to, message, fields.
///
/// `2018-01-03T08:42:39.609Z|00042|attach|INFO|[ADD shop/cart-0 sandbox=0123456789ab eth0] message
/// key=value`
#[derive(Debug, Default)]
pub struct OvsLayout {
    lines: AtomicU32,
}

impl<S, N> FormatEvent<S, N> for OvsLayout
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = OffsetDateTime::now_utc().format(TIMESTAMP).map_err(|_| fmt::Error)?;
        let line = self.lines.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        write!(writer, "{now}|{line:05}|{}|{}|", module(metadata), level(metadata))?;

        // All spans share one pair of brackets, the outermost first.
        let mut separator = '[';
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(formatted) = span
                .extensions()
                .get::<FormattedFields<N>>()
                .filter(|formatted| !formatted.is_empty())
            {
                write!(writer, "{separator}{formatted}")?;
                separator = ' ';
            }
        }
        if separator == ' ' {
            writer.write_str("] ")?;
        }

        writer.write_str(&fields.message)?;
        for field in fields.others() {
            write!(writer, " {field}")?;
        }
        writer.write_char('\n')
    }
}

/// The module of an event: the last part of its target's path.
fn module(metadata: &Metadata<'static>) -> &'static str {
    module_of(metadata.target())
}

/// The module of a target.
pub(crate) fn module_of(target: &str) -> &str {
    target.rsplit("::").next().unwrap_or_default()
}

/// Open vSwitch's name of a level. EMER is a panic.
fn level(metadata: &Metadata<'_>) -> &'static str {
    match *metadata.level() {
        Level::ERROR if metadata.target() == panic::TARGET => "EMER",
        Level::ERROR => "ERR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DBG",
    }
}
