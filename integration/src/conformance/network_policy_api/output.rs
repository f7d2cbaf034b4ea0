//! What a test program of Go prints (`-test.v`), read line by line. Knows no process.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{
        runner::{Outcome, Spec},
        selection::{Sctp, WITHOUT_SCTP},
    },
    GROUP, ROOT,
};

/// What agnhost prints where the kernel has no SCTP.
const NO_PROTOCOL: &str = "protocol not supported";

/// The tests of a program, as far as it has printed their results.
#[derive(Debug)]
pub(super) struct Output {
    sctp: Sctp,
    /// The test whose lines follow.
    current: String,
    /// What tests without a result have printed.
    lines: BTreeMap<String, Vec<String>>,
    ended: Vec<Ended>,
}

#[derive(Debug)]
struct Ended {
    /// `TestConformance/Name/Name_of_a_part`
    name: String,
    outcome: Outcome,
    time: Duration,
    /// The program says that it failed, whatever `outcome` makes of that.
    failed: bool,
    /// It printed an error of its own.
    has_error: bool,
}

impl Output {
    pub(super) fn new(sctp: Sctp) -> Self {
        Self { sctp, current: String::new(), lines: BTreeMap::new(), ended: Vec::new() }
    }

    /// Reads the next line. Returns the test that begins with it, if one does. The program says how
    /// they ended when all have.
    pub(super) fn line(&mut self, line: &str) -> Option<String> {
        if let Some((what, name)) = line.strip_prefix("=== ").and_then(|line| line.split_once(' '))
        {
            if ["RUN", "NAME", "CONT"].contains(&what) {
                name.trim().clone_into(&mut self.current);
            }
            return (what == "RUN" && self.current != ROOT).then(|| readable(&self.current));
        }
        let Some((result, name, time)) = result(line) else {
            self.lines.entry(self.current.clone()).or_default().push(line.to_owned());
            return None;
        };
        let printed = self.lines.remove(name).unwrap_or_default();
        let outcome = match result {
            "PASS" => Outcome::Passed,
            "SKIP" => Outcome::Skipped(first_message(&printed)),
            _ if self.sctp == Sctp::Absent && lacks_only_sctp(&printed) => {
                Outcome::Skipped(format!("{WITHOUT_SCTP}, which this test tries among others"))
            }
            _ => Outcome::Failed(reason(&printed)),
        };
        let has_error = printed.iter().any(|line| error(line).is_some());
        self.ended.push(Ended {
            name: name.to_owned(),
            outcome,
            time,
            failed: result == "FAIL",
            has_error,
        });
        None
    }

    /// The names of the tests that were skipped as a whole.
    pub(super) fn skipped(&self) -> Vec<String> {
        let skipped = self.ended.iter().filter(|test| matches!(test.outcome, Outcome::Skipped(_)));
        skipped.map(|test| readable(&test.name)).collect()
    }

    /// The results of the tests that have no parts, and of those with parts that failed on their
    /// own. `succeeded`: how the suite `suite` ended.
    pub(super) fn specs(self, suite: &str, succeeded: bool) -> Vec<Spec> {
        let whole = format!("{GROUP} the suite {suite} as a whole");
        let parts = |of: &Ended| {
            let of = format!("{}/", of.name);
            self.ended.iter().filter(move |test| test.name.starts_with(&of))
        };
        // A test fails if one of its parts does.
        let is_own = |test: &&Ended| {
            if test.failed {
                test.has_error || !parts(test).any(|part| part.failed)
            } else {
                parts(test).next().is_none()
            }
        };
        let mut specs: Vec<Spec> = self
            .ended
            .iter()
            .filter(is_own)
            .map(|test| {
                let name = if test.name == ROOT {
                    whole.clone()
                } else {
                    format!("{GROUP} {}", readable(&test.name))
                };
                Spec { name, outcome: test.outcome.clone(), time: test.time }
            })
            .collect();
        let is_complete = self.ended.iter().any(|test| test.name == ROOT);
        if !is_complete || !(succeeded || self.ended.iter().any(|test| test.failed)) {
            let printed: Vec<String> = self.lines.into_values().flatten().collect();
            let outcome = Outcome::Failed(format!("it ended early: {}", reason(&printed)));
            specs.push(Spec { name: whole, outcome, time: Duration::ZERO });
        }
        specs
    }
}

/// `    --- PASS: TestConformance/Name (1.50s)`
fn result(line: &str) -> Option<(&str, &str, Duration)> {
    let (result, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
    let (name, time) = rest.split_once(" (")?;
    let seconds = time.strip_suffix("s)")?.parse().ok()?;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    ["PASS", "FAIL", "SKIP"].contains(&result).then_some((result, name, time))
}

/// Go writes the spaces of a name as `_`; the names of the suites have none of their own.
fn readable(name: &str) -> String {
    name.strip_prefix(ROOT).unwrap_or(name).trim_start_matches('/').replace(['/', '_'], " ")
}

/// An error of a test.
#[derive(Debug)]
struct Failure<'a> {
    error: &'a str,
    /// What the test says of the connection that it tried last. v0.3.0 tries each again for some
    /// seconds, and an attempt before the last one is no failure.
    connection: Option<&'a str>,
    /// The command of that connection.
    command: Option<&'a str>,
}

impl Failure<'_> {
    /// Whether a connection was not as expected because the kernel has no SCTP.
    fn is_of_sctp(&self) -> bool {
        self.connection.is_some_and(|connection| connection.contains(NO_PROTOCOL))
            && ["Should be true", "Condition never satisfied"].contains(&self.error)
    }
}

fn failures(printed: &[String]) -> Vec<Failure<'_>> {
    let (mut connection, mut command, mut failures) = (None, None, Vec::new());
    for line in printed {
        if line.contains("FAILED Command was ") {
            command = Some(message(line));
        } else if line.contains("Expected connection to ")
            || line.contains("FAILED to execute command ")
        {
            connection = Some(message(line));
        } else if let Some(error) = error(line) {
            failures.push(Failure {
                error,
                connection: connection.take(),
                command: command.take(),
            });
        }
    }
    failures
}

/// Whether nothing failed but connections of SCTP, and these because the kernel has none.
fn lacks_only_sctp(printed: &[String]) -> bool {
    let failures = failures(printed);
    !failures.is_empty() && failures.iter().all(Failure::is_of_sctp)
}

/// Why a test failed, in one line.
fn reason(printed: &[String]) -> String {
    let failures = failures(printed);
    let failure = failures.iter().find(|failure| !failure.is_of_sctp()).or(failures.first());
    let part = |part: &str| {
        let line = printed.iter().find(|line| line.contains(part))?;
        Some(line.split_once(part)?.1.trim().to_owned())
    };
    let from_failure = failure.map(|failure| match (failure.connection, part("Messages:")) {
        (Some(connection), _) => {
            [connection, failure.command.unwrap_or_default()].join(" ").trim().to_owned()
        }
        (None, Some(text)) => text,
        (None, None) => failure.error.to_owned(),
    });
    let panic = || part("panic: ").map(|text| format!("panic: {text}"));
    let last = || {
        printed.iter().map(|line| message(line)).rfind(|line| !line.is_empty()).map(str::to_owned)
    };
    from_failure.or_else(panic).or_else(last).unwrap_or_else(|| "without a word".to_owned())
}

/// The text of `Error:      text`, indented by tabs.
fn error(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("Error:").map(str::trim)
}

fn first_message(printed: &[String]) -> String {
    printed.first().map(|line| message(line)).unwrap_or_default().to_owned()
}

/// `    suite.go:178: text` without what is before the text.
fn message(line: &str) -> &str {
    let line = line.trim();
    let text = line.split_once(": ").filter(|(place, _)| place.contains(".go:"));
    text.map_or(line, |(_, text)| text)
}

#[cfg(test)]
mod tests;
