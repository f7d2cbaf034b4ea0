//! Escapes and shortens values before they reach a log line. Values come from annotations,
//! configurations and error texts of other programs, which may hold control characters or be very
//! long.

use std::fmt::{self, Write};

/// The length in bytes at which one value is cut. Ten times less would cut paths and chains of
/// errors; ten times more would let a single value fill the screen.
const LONGEST: usize = 1024;

/// A writer of one value: escapes control characters, and cuts the value (`…`) after [`LONGEST`]
/// bytes.
#[derive(Debug, Default)]
pub(super) struct Escaped {
    text: String,
    full: bool,
}

impl Escaped {
    /// The escaped and shortened `value`.
    pub(super) fn text(value: impl fmt::Display) -> String {
        let mut escaped = Self::default();
        // Only the value's own `Display` can fail. The text until then is used.
        let _ = write!(escaped, "{value}");
        escaped.text
    }
}

impl Write for Escaped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.full {
                break;
            }
            if self.text.len() + c.len_utf8() > LONGEST {
                self.full = true;
                self.text.push('…');
            } else if is_control(c) {
                self.text.extend(c.escape_default());
            } else {
                self.text.push(c);
            }
        }
        Ok(())
    }
}

/// Whether a character is escaped: C0, DEL and C1 (ANSI sequences start with one of them), and the
/// Unicode characters that end a line or change the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
