//! Log lines: whatever a value contains, an event is one line of bounded length without control
//! characters.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use tracing::Subscriber;
use tracing_subscriber::{Registry, layer::SubscriberExt};

/// Nine values below, each limited to 1 KiB, of which escaping turns a byte into at most 10.
const LONGEST_LINE: usize = 100 * 1024;

/// The destination of the log.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `data` is text from outside: an annotation, a configuration, another program's error.
pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    let memory = Memory::default();
    let writer = memory.clone();
    tracing::subscriber::with_default(subscriber(writer), || {
        let _call = tracing::info_span!(
            "call",
            cni.command = text,
            pod.namespace = text,
            pod.name = text,
            sandbox = text,
            ifname = text
        )
        .entered();
        let error = io::Error::other(text);
        tracing::info!(
            plain = text,
            shown = %text,
            debugged = ?text,
            error = &error as &dyn std::error::Error,
            "{text}"
        );
    });
    let written = memory.0.lock().expect("no writer panics").clone();
    let line = String::from_utf8(written).expect("a log is text");
    let line = line.strip_suffix('\n').expect("a line ends");
    let bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!line.contains(bad), "{line:?}");
    assert!(line.len() <= LONGEST_LINE, "a line of {} bytes", line.len());
    assert_eq!(line.split('|').nth(3), Some("INFO"), "the layout is kept: {line}");
}

fn subscriber(writer: Memory) -> impl Subscriber {
    Registry::default().with(ovslog::layer(move || writer.clone()))
}
