//! What may reach a log line: no control characters, and of one value no more than a reader wants. Values come from annotations,
//! configurations and other programs' error texts.

use std::fmt::{self, Write};

/// The most bytes that one value takes of a line.
const LONGEST: usize = 1024;

/// A text in the making: control characters escaped, cut off (`…`) after [`LONGEST`] bytes.
#[derive(Debug, Default)]
pub(super) struct Escaped {
    text: String,
    full: bool,
}

impl Escaped {
    /// What is left of `value`.
    pub(super) fn text(value: impl fmt::Display) -> String {
        let mut escaped = Self::default();
        // Only a value's own `Display` can fail; what it has written until then is shown.
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

/// C0, DEL and C1 (ANSI sequences start with one of them), and what ends a line or turns its direction for a reader of Unicode.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
