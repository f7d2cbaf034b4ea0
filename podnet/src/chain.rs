//! An error with its causes, as one line, for what is printed to runtimes: a cause that the error above it has quoted is left out. Must not know any
//! error.

use std::error::Error;

/// An error with all that caused it, on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        // Some libraries repeat their cause in their own words.
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        source = cause.source();
    }
    text
}
