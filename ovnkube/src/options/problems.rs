//! All errors of the options, reported together.

use std::fmt;

/// The errors to be corrected before the program can start. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<String>);

/// The errors found so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Gathered(Vec<String>);

impl Gathered {
    /// Adds an error: what is wrong, in which source, and what to do. The same text counts once.
    pub(super) fn add(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    /// The value; an error is added.
    pub(super) fn take<T>(&mut self, outcome: Result<T, String>) -> Option<T> {
        outcome.map_err(|problem| self.add(problem)).ok()
    }

    /// Fails if there is any error.
    pub(super) fn none_or(self) -> Result<(), Problems> {
        if self.0.is_empty() { Ok(()) } else { Err(Problems(self.0)) }
    }
}

/// Both values, or the errors of both.
pub(super) fn both<T, U>(
    one: Result<T, Problems>,
    other: Result<U, Problems>,
) -> Result<(T, U), Problems> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Ok(_), Err(problems)) | (Err(problems), Ok(_)) => Err(problems),
        (Err(Problems(one)), Err(Problems(other))) => {
            let mut all = Gathered(one);
            other.into_iter().for_each(|problem| all.add(problem));
            Err(Problems(all.0))
        }
    }
}

impl Problems {
    /// A value is missing, and no error says which.
    pub(super) fn incomplete() -> Self {
        Self(vec!["the options are incomplete".to_owned()])
    }

    /// The errors, each a text of one line without a full stop.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [problem] => f.write_str(problem),
            problems => {
                write!(f, "{} problems with the options", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for Problems {}
