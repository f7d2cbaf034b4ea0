//! `integration tenants`: tries the rows and prints a line for each.

use std::{fmt, fs, process::ExitCode};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;

use super::{
    LONG,
    matrix::{self, ROWS, Row},
    outcome::Outcome,
    table,
};
use crate::{executable, matrix::Run};

/// Try every row of the matrix of tenants, and print which hold.
#[derive(Debug, Clone, Args)]
pub struct Tenants {
    /// Only these rows.
    rows: Vec<u8>,
    /// Skip the long forms of rows, and those that need Kubernetes.
    #[arg(long)]
    quick: bool,
    /// Run nothing: print the result of the last run.
    #[arg(long)]
    last: bool,
    /// Run nothing: write the table of SECURITY.md anew.
    #[arg(long)]
    table: bool,
}

/// What a row comes to.
#[derive(Debug, Clone, PartialEq)]
enum Mark {
    Held,
    /// It is known to fail, and does.
    Known(&'static str),
    /// It is marked as one that fails, and holds.
    HoldsNow,
    Failed(String),
    /// It was not tried in this form.
    NotTried,
}

impl Tenants {
    /// Tries the rows. The exit status is 0 if every selected row holds, or is known to fail.
    ///
    /// # Errors
    /// If there is no such row, or nextest does not run.
    pub fn run(&self, say: &mut dyn FnMut(&str)) -> Result<ExitCode> {
        if self.table {
            return write_table().map(|()| ExitCode::SUCCESS);
        }
        for number in &self.rows {
            ensure!(matrix::find(*number).is_some(), "there is no row {number}");
        }
        let rows: Vec<&Row> = ROWS
            .iter()
            .filter(|row| self.rows.is_empty() || self.rows.contains(&row.number))
            .collect();
        if !self.last {
            rows.iter().try_for_each(|row| Outcome::forget(row.number))?;
            let numbers: Vec<String> = rows.iter().map(|row| row.number.to_string()).collect();
            let mut environment = vec![(super::ROWS, numbers.join(" "))];
            environment.extend((!self.quick).then(|| (LONG, "1".to_owned())));
            // Those of the other form have nothing to do.
            let filter = if self.quick { "not test(/^tenants::kubernetes::/)" } else { "" };
            Run { name: "tenants", filter, environment: &environment }.run()?;
        }
        let outcomes =
            rows.iter().map(|row| Outcome::of(row.number)).collect::<Result<Vec<_>>>()?;
        let marks: Vec<Mark> =
            rows.iter().zip(&outcomes).map(|(row, outcome)| judge(row, outcome.as_ref())).collect();
        for ((row, outcome), mark) in rows.iter().zip(&outcomes).zip(&marks) {
            say(&line(row, outcome.as_ref(), mark));
        }
        say(&summary(&rows, &marks));
        let is_well = |mark: &Mark| match mark {
            Mark::Held | Mark::Known(_) | Mark::HoldsNow => true,
            Mark::NotTried => self.quick,
            Mark::Failed(_) => false,
        };
        Ok(if marks.iter().all(is_well) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn write_table() -> Result<()> {
    let file = executable::workspace().join("SECURITY.md");
    let document = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let renewed =
        table::renewed(&document).map_err(|missing| anyhow!("SECURITY.md lacks {missing:?}"))?;
    Ok(fs::write(&file, renewed)?)
}

fn judge(row: &Row, outcome: Option<&Outcome>) -> Mark {
    match (outcome.map(|outcome| outcome.failure.as_ref()), row.fails) {
        (None, _) => Mark::NotTried,
        (Some(None), None) => Mark::Held,
        (Some(None), Some(_)) => Mark::HoldsNow,
        (Some(Some(_)), Some(reason)) => Mark::Known(reason),
        (Some(Some(failure)), None) => Mark::Failed(failure.clone()),
    }
}

fn line(row: &Row, outcome: Option<&Outcome>, mark: &Mark) -> String {
    let Row { number, party, attack, expected, beside, fails: _ } = row;
    let mut text = format!("{number:>3}  {mark}  {}: {attack}", party.name());
    if let Some(Outcome { seconds, figure, bystander, failure, .. }) = outcome {
        text += &format!("\n       seen: {figure}\n       bystander: {bystander} ({seconds:.1} s)");
        if let Some(failure) = failure {
            let failure = failure.replace('\n', "\n         ");
            text += &format!("\n       expected: {expected}\n       but: {failure}");
        }
    }
    if let Mark::Known(reason) = mark {
        text += &format!("\n       known: {reason}");
    }
    if let Some(beside) = beside {
        text += &format!("\n       not prevented: {beside}");
    }
    text
}

/// Every mark has the same width.
impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Held => "held     ",
            Self::Known(_) => "known    ",
            Self::HoldsNow => "HOLDS NOW",
            Self::Failed(_) => "FAILED   ",
            Self::NotTried => "not tried",
        })
    }
}

fn summary(rows: &[&Row], marks: &[Mark]) -> String {
    let numbers = |which: fn(&Mark) -> bool| {
        let of_mark = rows.iter().zip(marks).filter(|(_, mark)| which(mark));
        of_mark.map(|(row, _)| row.number.to_string()).collect::<Vec<_>>()
    };
    let mut text = String::new();
    for (what, numbers) in [
        ("failed", numbers(|mark| matches!(mark, Mark::Failed(_)))),
        ("known to fail", numbers(|mark| matches!(mark, Mark::Known(_)))),
        (
            "hold although marked as failing; take the mark away",
            numbers(|mark| matches!(mark, Mark::HoldsNow)),
        ),
        ("not tried in this form", numbers(|mark| matches!(mark, Mark::NotTried))),
    ] {
        if !numbers.is_empty() {
            text = format!("{text}{what}: {}\n", numbers.join(", "));
        }
    }
    let held = numbers(|mark| matches!(mark, Mark::Held | Mark::HoldsNow)).len();
    format!("{text}{held} of {} hold", rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::matrix::Party;

    fn row(fails: Option<&'static str>) -> Row {
        Row {
            number: 7,
            party: Party::Pod,
            attack: "floods",
            expected: "peace",
            beside: None,
            fails,
        }
    }

    fn outcome(failure: Option<&str>) -> Outcome {
        Outcome {
            number: 7,
            seconds: 1.0,
            figure: "3 frames".to_owned(),
            bystander: "0 lost".to_owned(),
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn a_row_that_is_known_to_fail_is_told_apart_from_one_that_fails() {
        let (failed, held) = (outcome(Some("war")), outcome(None));
        assert_eq!(judge(&row(None), Some(&failed)), Mark::Failed("war".to_owned()));
        assert_eq!(judge(&row(Some("a bug")), Some(&failed)), Mark::Known("a bug"));
        assert_eq!(judge(&row(Some("a bug")), Some(&held)), Mark::HoldsNow);
        assert_eq!(judge(&row(None), Some(&held)), Mark::Held);
        assert_eq!(judge(&row(None), None), Mark::NotTried);
    }

    #[test]
    fn a_line_has_the_figure_and_what_does_not_hold() {
        let (row, outcome) = (row(Some("a bug")), outcome(Some("war")));
        let text = line(&row, Some(&outcome), &judge(&row, Some(&outcome)));
        for part in ["  7  known", "seen: 3 frames", "but: war", "known: a bug", "expected: peace"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let rows = [&row];
        assert_eq!(summary(&rows, &[Mark::Known("a bug")]), "known to fail: 7\n0 of 1 hold");
    }
}
