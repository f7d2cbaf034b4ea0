//! The form of a value: boolean, number, time, or a parser of its own.

use std::time::Duration;

/// The form of an option's value.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// True or false; the name alone is true.
    Switch,
    Text,
    Number {
        least: u64,
        most: u64,
    },
    /// A duration in Go's format: `100s`, `10m`, `1h30m`.
    Span,
    Path,
    /// Text that is never shown.
    Secret,
    /// Text with a parser of its own.
    Checked {
        value_name: &'static str,
        check: fn(&str) -> Result<(), String>,
    },
}

impl Kind {
    pub const NUMBER: Self = Self::Number { least: 0, most: u64::MAX };
    pub const PORT: Self = Self::Number { least: 1, most: 65535 };

    pub(super) const fn value_name(self) -> &'static str {
        match self {
            Self::Switch => "true|false",
            Self::Text => "TEXT",
            Self::Number { .. } => "NUMBER",
            Self::Span => "TIME",
            Self::Path => "PATH",
            Self::Secret => "SECRET",
            Self::Checked { value_name, .. } => value_name,
        }
    }

    /// Whether a value has this form. The error ends the sentence that begins with the option's
    /// name.
    pub(super) fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Switch => switch(value).map(drop),
            Self::Number { least, most } => number(value, least, most).map(drop),
            Self::Span => span(value).map(drop),
            Self::Text | Self::Path | Self::Secret => Ok(()),
            Self::Checked { check, .. } => check(value),
        }
    }
}

/// The booleans of Go's flags (`strconv.ParseBool`) and of gcfg's files (`yes`, `on`).
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("{:?} is neither true nor false", shown(text))),
    }
}

/// Decimal, or hexadecimal after `0x`.
pub(super) fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match parsed {
        // Rust's parsers accept a leading `+`.
        Ok(number) if (least..=most).contains(&number) && !text.contains('+') => Ok(number),
        _ if most == u64::MAX => Err(format!("{:?} is no number from {least} on", shown(text))),
        _ => Err(format!("{:?} is no number from {least} to {most}", shown(text))),
    }
}

/// A duration: numbers with units in any order (Go's `time.ParseDuration`), or a bare number of
/// seconds.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let bad = || format!("{:?} is no time such as 100s, 10m or 1h30m", shown(text));
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (amount, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(letters);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        let amount: f64 = amount.parse().map_err(|_| bad())?;
        let part = Duration::try_from_secs_f64(amount * seconds).map_err(|_| bad())?;
        total = total.checked_add(part).ok_or_else(bad)?;
        rest = next;
    }
    if text.is_empty() { Err(bad()) } else { Ok(total) }
}

/// A value for a message, shortened.
pub(super) fn shown(value: &str) -> String {
    // Characters: a line of a terminal. A mistyped file or certificate would otherwise fill the
    // log.
    const MOST: usize = 80;
    if value.chars().count() <= MOST {
        value.to_owned()
    } else {
        value.chars().take(MOST).chain(['…']).collect()
    }
}
