//! A report for people: a line for each finding, below the heading of its subject, in 80 columns.

use std::fmt::Write as _;

use super::{Colour, Finding, Report, State};

/// The width where the terminal does not say another in `COLUMNS`.
const WIDTH: usize = 80;
/// The narrowest width that is used.
const NARROWEST: usize = 40;
/// The columns of a finding's state.
const STATE: usize = 8;
/// The widest column of names; a longer name has a line of its own.
const NAMES: usize = 24;

/// The page, and at its end one line with how it is.
pub(super) fn page(report: &Report, colour: Colour) -> String {
    let width =
        std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH);
    let width = width.max(NARROWEST);
    let longest =
        report.findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
    let names = longest.min(NAMES);
    let mut page = String::new();
    let mut subject = "";
    for finding in &report.findings {
        if finding.subject != subject {
            let _ =
                writeln!(page, "{}{}", if subject.is_empty() { "" } else { "\n" }, finding.subject);
            subject = finding.subject;
        }
        line(&mut page, finding, names, width, colour);
    }
    for (subject, count) in &report.omitted {
        let _ = writeln!(page, "\n{subject}: {count} more like these are left out");
    }
    let _ = writeln!(page, "\n{}", conclusion(report));
    page
}

fn line(page: &mut String, finding: &Finding, names: usize, width: usize, colour: Colour) {
    let Finding { name, state, summary, next, .. } = finding;
    let word = format!("{:STATE$}", state.word());
    let _ = write!(page, "  {} {name:names$}", coloured(&word, *state, colour));
    let indent = 2 + STATE + 1 + names + 2;
    let is_long = name.chars().count() > names;
    let start = if is_long { format!("\n{:indent$}", "") } else { "  ".to_owned() };
    let _ = writeln!(page, "{start}{}", wrapped(summary, indent, width));
    if let Some(next) = next {
        let _ = writeln!(page, "{:indent$}next: {}", "", wrapped(next, indent + 6, width));
    }
}

/// The text in lines that end before `width`; those after the first begin at `indent`.
fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > room {
            let _ = write!(lines, "\n{:indent$}", "");
            used = 0;
        }
        if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

fn coloured(word: &str, state: State, colour: Colour) -> String {
    let code = match state {
        State::Ok => "32",
        State::Skipped => "2",
        State::Warning | State::Unknown => "33",
        State::Failed => "31",
    };
    match colour {
        Colour::Plain => word.to_owned(),
        Colour::Terminal => format!("\u{1b}[{code}m{word}\u{1b}[0m"),
    }
}

fn conclusion(report: &Report) -> String {
    let count = |state| report.findings.iter().filter(|finding| finding.state == state).count();
    let counts = [State::Failed, State::Unknown, State::Warning, State::Ok, State::Skipped]
        .map(|state| (count(state), state));
    let counts = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {}", state.word()));
    format!("{}: {}", report.kind, counts.collect::<Vec<_>>().join(", "))
}
