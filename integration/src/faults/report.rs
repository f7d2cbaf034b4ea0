//! `integration faults`: runs the tests of the rows and prints a line for each.
//!
//! Reads the report of `cargo nextest` (JUnit). Must not know what the tests do.

use std::{fmt, fs, io, process::ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use super::{
    LONG,
    matrix::{self, Elsewhere, ROWS, Row},
};
use crate::{executable, matrix::Run};

/// Inject the faults of the matrix, and print which of its rows hold.
#[derive(Debug, Clone, Args)]
pub struct Faults {
    /// Only these rows.
    rows: Vec<u8>,
    /// Skip the long forms of rows.
    #[arg(long)]
    quick: bool,
    /// Run nothing: print the result of the last run.
    #[arg(long)]
    last: bool,
}

/// The result of a row.
#[derive(Debug, Clone, PartialEq)]
enum Mark {
    Held {
        seconds: f64,
    },
    Failed {
        seconds: f64,
        tests: Vec<String>,
    },
    /// A test of another command holds it.
    Elsewhere(Elsewhere),
    NotThereYet(&'static str),
    NoTest,
}

/// One test, as nextest reports it.
#[derive(Debug, Clone, PartialEq)]
struct Test {
    name: String,
    seconds: f64,
    passed: bool,
}

impl Faults {
    /// Runs the tests and prints the results. The exit status is 0 if every selected row holds, or
    /// has a reason to have no test.
    ///
    /// # Errors
    /// If there is no such row, or nextest does not run or leaves no report.
    pub fn run(&self, say: &mut dyn FnMut(&str)) -> Result<ExitCode> {
        for number in &self.rows {
            ensure!(matrix::find(*number).is_some(), "there is no row {number}");
        }
        let rows: Vec<&Row> = ROWS
            .iter()
            .filter(|row| self.rows.is_empty() || self.rows.contains(&row.number))
            .collect();
        let junit = executable::target_dir()?.join("nextest/faults/junit.xml");
        if !self.last {
            // A report of an earlier run must not stand for this one.
            fs::remove_file(&junit).or_else(|error| {
                if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
            })?;
            self.run_tests()?;
        }
        let text = fs::read_to_string(&junit)
            .with_context(|| format!("no report of nextest in {}: see above", junit.display()))?;
        let marks = judge(&rows, &tests_in(&text)?);
        rows.iter().zip(&marks).for_each(|(row, mark)| say(&line(row, mark)));
        say(&summary(&rows, &marks));
        let well = |mark: &Mark| match mark {
            Mark::Held { .. } | Mark::Elsewhere(_) | Mark::NotThereYet(_) => true,
            Mark::Failed { .. } | Mark::NoTest => false,
        };
        Ok(if marks.iter().all(well) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn run_tests(&self) -> Result<()> {
        let filter: Vec<String> =
            self.rows.iter().map(|number| format!("test(/(^|::)row_{number:02}_/)")).collect();
        let long = (!self.quick).then(|| (LONG, "1".to_owned()));
        Run { name: "faults", filter: &filter.join(" + "), environment: long.as_slice() }.run()
    }
}

/// The tests in a JUnit report: each `<testcase …>`, failed if `<failure>` or `<error>` is in it.
fn tests_in(junit: &str) -> Result<Vec<Test>> {
    let test = |element: &str| {
        let attribute = |key: &str| {
            let (_, rest) = element.split_once(&format!(" {key}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let name = attribute("name").context("a test without a name")?.to_owned();
        let seconds = attribute("time").with_context(|| format!("{name} without a time"))?;
        let seconds = seconds.parse().with_context(|| format!("time of {name}: {seconds:?}"))?;
        // Text is escaped, so these can only be elements.
        let passed = !element.contains("<failure") && !element.contains("<error");
        Ok(Test { name, seconds, passed })
    };
    junit.split("<testcase").skip(1).map(test).collect()
}

fn judge(rows: &[&Row], tests: &[Test]) -> Vec<Mark> {
    let mark = |row: &&Row| {
        let of_row: Vec<&Test> =
            tests.iter().filter(|test| matrix::number_of(&test.name) == Some(row.number)).collect();
        let seconds = of_row.iter().map(|test| test.seconds).sum();
        let failed: Vec<String> =
            of_row.iter().filter(|test| !test.passed).map(|test| test.name.clone()).collect();
        match (of_row.is_empty(), row.elsewhere, row.absent) {
            (true, Some(test), _) => Mark::Elsewhere(test),
            (true, None, Some(reason)) => Mark::NotThereYet(reason),
            (true, None, None) => Mark::NoTest,
            (false, ..) if failed.is_empty() => Mark::Held { seconds },
            (false, ..) => Mark::Failed { seconds, tests: failed },
        }
    };
    rows.iter().map(mark).collect()
}

fn line(row: &Row, mark: &Mark) -> String {
    let Row { number, fault, expected, instead, elsewhere: _, absent: _ } = row;
    let text = match mark {
        Mark::Failed { tests, .. } => {
            format!(
                "{number:>3}  {mark}  {fault}\n       expected: {expected}\n       failed: {}",
                tests.join(", ")
            )
        }
        Mark::NotThereYet(reason) => {
            format!("{number:>3}  {mark}  {fault} (not there yet: {reason})")
        }
        Mark::Elsewhere(Elsewhere { command, test }) => {
            format!("{number:>3}  {mark}  {fault}\n       `{command}`: {test}")
        }
        Mark::Held { .. } | Mark::NoTest => format!("{number:>3}  {mark}  {fault}"),
    };
    match instead {
        Some(instead) => format!("{text}\n       on purpose: {instead}"),
        None => text,
    }
}

/// Every mark has the same width.
impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { seconds } => write!(formatter, "held    {seconds:>6.1} s"),
            Self::Failed { seconds, .. } => write!(formatter, "FAILED  {seconds:>6.1} s"),
            Self::Elsewhere(_) => write!(formatter, "elsewhere       "),
            Self::NotThereYet(_) => write!(formatter, "absent          "),
            Self::NoTest => write!(formatter, "no test         "),
        }
    }
}

fn summary(rows: &[&Row], marks: &[Mark]) -> String {
    let numbers = |which: fn(&Mark) -> bool| {
        let numbers = rows
            .iter()
            .zip(marks)
            .filter(|(_, mark)| which(mark))
            .map(|(row, _)| row.number.to_string());
        numbers.collect::<Vec<_>>()
    };
    let mut text = String::new();
    for (what, numbers) in [
        ("failed", numbers(|mark| matches!(mark, Mark::Failed { .. }))),
        ("without a test", numbers(|mark| matches!(mark, Mark::NoTest))),
        ("held by tests of other commands", numbers(|mark| matches!(mark, Mark::Elsewhere(_)))),
        ("of parts that do not exist yet", numbers(|mark| matches!(mark, Mark::NotThereYet(_)))),
    ] {
        if !numbers.is_empty() {
            text = format!("{text}{what}: {}\n", numbers.join(", "));
        }
    }
    let held = numbers(|mark| matches!(mark, Mark::Held { .. })).len();
    format!("{text}{held} of {} hold", rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUNIT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="0" time="9.1">
    <testsuite name="integration::faults" tests="3" failures="1">
        <testcase name="server::row_01_one" classname="integration::faults" timestamp="2026-11-22T05:00:00Z" time="2.500">
        </testcase>
        <testcase name="server::row_01_two" classname="integration::faults" time="1.000"/>
        <testcase name="database::row_10_x" classname="integration::faults" time="3.000">
            <failure message="panicked" type="test failure">row 10 &lt;b></failure>
            <system-out>&lt;failure</system-out>
        </testcase>
        <testcase name="oracles::a_lost_packet_is_noticed" classname="integration::faults" time="3.000"/>
    </testsuite>
</testsuites>"#;

    fn row(number: u8, absent: Option<&'static str>) -> Row {
        Row { number, fault: "fault", expected: "peace", instead: None, elsewhere: None, absent }
    }

    #[test]
    fn a_row_holds_if_all_its_tests_have_passed() {
        let rows = [row(1, None), row(2, None), row(3, Some("no part")), row(10, None)];
        let rows: Vec<&Row> = rows.iter().collect();
        let marks = judge(&rows, &tests_in(JUNIT).unwrap());
        let failed = Mark::Failed { seconds: 3.0, tests: vec!["database::row_10_x".to_owned()] };
        assert_eq!(
            marks,
            [Mark::Held { seconds: 3.5 }, Mark::NoTest, Mark::NotThereYet("no part"), failed]
        );
        let text = summary(&rows, &marks);
        assert!(
            text.ends_with("\n1 of 4 hold")
                && text.contains("failed: 10\n")
                && text.contains("yet: 3\n"),
            "{text}"
        );
        assert!(text.contains("without a test: 2\n"), "{text}");
    }

    #[test]
    fn what_differs_on_purpose_is_printed_whether_the_row_holds_or_not() {
        let differs = Row { instead: Some("war: it pays"), ..row(1, None) };
        for mark in [
            Mark::Held { seconds: 1.0 },
            Mark::NoTest,
            Mark::Failed { seconds: 1.0, tests: vec!["row_01_x".to_owned()] },
        ] {
            let text = line(&differs, &mark);
            assert!(text.ends_with("\n       on purpose: war: it pays"), "{text}");
        }
        assert!(!line(&row(1, None), &Mark::NoTest).contains("on purpose"));
    }

    #[test]
    fn a_row_that_another_command_holds_is_named_with_its_test_and_not_counted_as_held() {
        let held_by = Elsewhere { command: "make test", test: "no_node" };
        let elsewhere = Row { elsewhere: Some(held_by), ..row(2, None) };
        let rows = [&elsewhere];
        let marks = judge(&rows, &tests_in(JUNIT).unwrap());
        assert_eq!(marks, [Mark::Elsewhere(held_by)]);
        assert!(line(&elsewhere, &marks[0]).ends_with("`make test`: no_node"));
        assert_eq!(summary(&rows, &marks), "held by tests of other commands: 2\n0 of 1 hold");
    }

    #[test]
    fn a_row_with_a_reason_counts_once_it_has_a_test() {
        let marks = judge(&[&row(1, Some("no part"))], &tests_in(JUNIT).unwrap());
        assert_eq!(marks, [Mark::Held { seconds: 3.5 }]);
    }
}
