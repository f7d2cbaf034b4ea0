//! What a command has found, and its output. `status`, `check` and `connectivity test` end in one
//! [`Report`], so that all of them print the same text, JSON and YAML.
//!
//! Names and messages come from objects of users. A finding takes them only as [`printable`] text:
//! bounded, and without characters that a terminal obeys.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, IsTerminal as _, Write as _, stdout},
    process::ExitCode,
};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod html;
mod run;
mod text;

pub(crate) use run::{INTERRUPTED, ended, run, until_interrupted};

/// The most findings of one subject and state that are printed; the rest is counted. A cluster may
/// have thousands of objects with the same fault, and the first hundred say what it is.
const MOST_ALIKE: usize = 100;
/// The longest text of a finding, in characters: some lines of a terminal.
const LONGEST: usize = 400;

/// The state of what was looked at. The worst one is the report's.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Ok,
    /// It was not looked at, which is no fault.
    Skipped,
    /// It works, and something about it needs attention.
    Warning,
    /// There was no answer.
    Unknown,
    /// It does not work.
    Failed,
}

/// One statement about one object.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The heading under which it stands: `databases`, `nodes`.
    pub subject: &'static str,
    /// The object's name.
    pub name: String,
    pub state: State,
    /// One sentence.
    pub summary: String,
    /// The command that says more, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Facts for programs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<&'static str, Value>,
}

/// A finding that another process of this program has written. Its details are left out.
#[derive(Debug, Deserialize)]
pub(crate) struct ReportedFinding {
    pub(crate) subject: String,
    pub(crate) name: String,
    pub(crate) state: State,
    summary: String,
    next: Option<String>,
}

/// All findings of a command.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of this form of output. Fields may be added; none is removed or changes its
    /// meaning.
    api_version: &'static str,
    /// The command.
    kind: &'static str,
    /// The worst state.
    pub state: State,
    pub findings: Vec<Finding>,
    /// How many findings are left out, by subject.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    omitted: BTreeMap<&'static str, usize>,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Yaml,
    /// A page of its own, for `status`.
    Html,
}

/// Whether words are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Plain,
    Terminal,
}

impl Colour {
    /// Colours are for terminals, unless `NO_COLOR` (<https://no-color.org>) is set or the terminal
    /// has none.
    pub fn of_stdout() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb {
            true => Self::Terminal,
            false => Self::Plain,
        }
    }
}

impl State {
    /// The word in the text.
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Failed => "FAILED",
        }
    }
}

impl Finding {
    /// A statement about the object. Both texts may come from users.
    pub fn new(subject: &'static str, name: &str, state: State, summary: &str) -> Self {
        let (name, summary) = (printable(name), printable(summary));
        Self { subject, name, state, summary, next: None, details: BTreeMap::new() }
    }

    /// With the command that says more. It may have names of users' objects in it.
    #[must_use]
    pub fn next(mut self, next: &str) -> Self {
        self.next = Some(printable(next));
        self
    }

    /// With a fact for programs.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.details.insert(key, printable_value(value.into()));
        self
    }
}

impl ReportedFinding {
    /// The same below this heading.
    pub(crate) fn under(self, subject: &'static str) -> Finding {
        let finding = Finding::new(subject, &self.name, self.state, &self.summary);
        match self.next {
            Some(next) => finding.next(&next),
            None => finding,
        }
    }
}

impl Report {
    /// The report of a command. Of findings that are alike, those beyond a bound are only counted.
    pub fn new(kind: &'static str, findings: Vec<Finding>) -> Self {
        let state = findings.iter().map(|finding| finding.state).max().unwrap_or(State::Ok);
        let state = if state == State::Skipped { State::Ok } else { state };
        let (mut seen, mut omitted) = (BTreeMap::new(), BTreeMap::new());
        let mut kept = Vec::new();
        for finding in findings {
            let alike: &mut usize = seen.entry((finding.subject, finding.state)).or_default();
            *alike += 1;
            if *alike <= MOST_ALIKE {
                kept.push(finding);
            } else {
                *omitted.entry(finding.subject).or_default() += 1;
            }
        }
        Self { api_version: "report.k8s.ovn.org/v1", kind, state, findings: kept, omitted }
    }

    /// The whole output.
    pub fn output(&self, format: Format, colour: Colour) -> String {
        match format {
            Format::Text => text::page(self, colour),
            Format::Html => html::page(self, Timestamp::now()),
            // Every part of a report has a form in JSON.
            Format::Json => format!("{:#}\n", self.json()),
            Format::Yaml => serde_yaml_ng::to_string(&self.json()).unwrap_or_default(),
        }
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Prints it. The exit status says how it is: 0 all is well, 1 something does not work, 3
    /// something could not be found out, 4 something needs attention.
    pub fn print(&self, format: Format) -> ExitCode {
        let written = write!(stdout(), "{}", self.output(format, Colour::of_stdout()));
        match written {
            // Who reads has seen enough.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                eprintln!("ovnkube: standard output: {error}");
                ExitCode::FAILURE
            }
            _ => self.exit_status().into(),
        }
    }

    /// The exit status of a command with this report.
    pub fn exit_status(&self) -> u8 {
        match self.state {
            State::Ok | State::Skipped => 0,
            State::Failed => 1,
            State::Unknown => 3,
            State::Warning => 4,
        }
    }
}

/// The value with all its texts as a terminal may have them.
fn printable_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(printable(&text)),
        Value::Array(items) => items.into_iter().map(printable_value).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (key, printable_value(value))).collect()
        }
        other => other,
    }
}

/// The text as a terminal may have it: control characters, and those that turn the direction of
/// writing, are written as escapes, and its end is left out where it is too long.
pub fn printable(text: &str) -> String {
    let mut shown = String::new();
    for (count, c) in text.trim_end().chars().enumerate() {
        if count == LONGEST {
            shown.push('…');
            break;
        }
        let is_direction = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
        if c.is_control() || is_direction {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests;
