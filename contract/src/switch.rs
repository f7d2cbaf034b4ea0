//! Annotations that turn something on: `true` or `false`. Users write them.

use std::collections::BTreeMap;

/// Characters of a value in a message.
const SHOWN: usize = 64;

/// A value that does not say whether something is on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{annotation} has {value:?}, which is neither true nor false")]
pub struct NotASwitch {
    pub annotation: &'static str,
    /// The beginning of the value.
    pub value: Box<str>,
}

/// Whether the annotation is `true`. An absent one is `false`.
///
/// # Errors
/// The value is neither `true` nor `false`.
pub(crate) fn is_on(
    annotations: &BTreeMap<String, String>,
    annotation: &'static str,
) -> Result<bool, NotASwitch> {
    match annotations.get(annotation).map(String::as_str) {
        Some("true") => Ok(true),
        Some("false") | None => Ok(false),
        Some(value) => Err(NotASwitch { annotation, value: value.chars().take(SHOWN).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_is_on_and_what_is_no_switch_is_named_in_a_short_message() {
        let read = |text: &str| {
            is_on(
                &BTreeMap::from([("example.org/on".to_owned(), text.to_owned())]),
                "example.org/on",
            )
        };
        assert_eq!(["true", "false"].map(read), [Ok(true), Ok(false)]);
        assert_eq!(is_on(&BTreeMap::new(), "example.org/on"), Ok(false));
        for text in ["", "True", "yes", "1", "true ", &"x".repeat(100_000)] {
            let bad = read(text).unwrap_err().to_string();
            let start: String = text.chars().take(SHOWN).collect();
            assert_eq!(
                bad,
                format!("example.org/on has {start:?}, which is neither true nor false")
            );
        }
    }
}
