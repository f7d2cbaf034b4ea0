//! Checks every answer of the plugin: one JSON value that the CNI specification allows, with a
//! fitting exit status, in time.
//!
//! Each [`crate::Node`] keeps the answers of all plugin calls on it. Must not know what a call
//! should have answered.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::Outcome;

/// Deadline of an ADD without `timeoutSeconds`: the plugin's own default.
const ADD_PATIENCE: Duration = Duration::from_secs(55);
/// Deadline of every other verb. The plugin allows itself more (30 s for a DEL, 60 s for a GC); the
/// lab does not.
const SHORT_PATIENCE: Duration = Duration::from_secs(10);
/// Added to each deadline: [`SHORT_PATIENCE`] for the rollback, which is a DEL, and some seconds
/// for a busy machine. Ten times more would accept a call that hangs.
const GRACE: Duration = Duration::from_secs(15);

/// One call of the plugin that has ended.
#[derive(Debug, Clone)]
pub struct Answer {
    /// `CNI_COMMAND`.
    pub verb: String,
    /// How long it may take.
    pub patience: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

impl Answer {
    pub(crate) fn new(verb: &str, config: &Value, outcome: &Outcome) -> Self {
        let patience = match (verb, config["timeoutSeconds"].as_u64()) {
            ("ADD", asked) => asked.map_or(ADD_PATIENCE, Duration::from_secs),
            _ => SHORT_PATIENCE,
        };
        Self { verb: verb.to_owned(), patience, outcome: outcome.clone() }
    }

    /// Checks the answer against SPEC.md, "Section 2" and "Section 5". A plugin that was killed
    /// need not answer.
    ///
    /// # Errors
    /// If the specification does not allow this answer, or it came too late, or the plugin
    /// panicked.
    pub fn verify(&self) -> Result<()> {
        let Outcome { status, stdout, stderr, duration } = &self.outcome;
        ensure!(
            *duration <= self.patience + GRACE,
            "it took {duration:?}, its deadline was {:?}",
            self.patience
        );
        // Ended by a signal: only the time counts.
        let Some(status) = status.code() else { return Ok(()) };
        let has_no_panic = !stderr.contains("panicked at") && !stdout.contains("panicked at");
        ensure!(has_no_panic, "it panicked\nstdout: {stdout}\nstderr: {stderr}");
        let shape = match status {
            0 => success(&self.verb, stdout),
            1 => failure(stdout),
            other => bail!("exit status {other}\nstdout: {stdout}\nstderr: {stderr}"),
        };
        shape.with_context(|| format!("exit status {status}, stdout: {stdout}"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, outcome, .. } = self;
        write!(
            formatter,
            "{verb} after {:?}, {}: {}",
            outcome.duration,
            outcome.status,
            outcome.stdout.trim()
        )
    }
}

fn success(verb: &str, stdout: &str) -> Result<()> {
    let keys: &[&str] = match verb {
        "ADD" => &["cniVersion", "interfaces", "ips"],
        "VERSION" => &["cniVersion", "supportedVersions"],
        // The other verbs have no result.
        _ if stdout.trim().is_empty() => return Ok(()),
        _ => bail!("{verb} has nothing to print"),
    };
    let result: Value =
        serde_json::from_str(stdout).context("standard output is not one JSON value")?;
    keys.iter().try_for_each(|key| {
        ensure!(!result[*key].is_null(), "a result without {key}");
        Ok(())
    })
}

fn failure(stdout: &str) -> Result<()> {
    let error: Value =
        serde_json::from_str(stdout).context("standard output is not one JSON value")?;
    ensure!(
        error["cniVersion"].as_str().is_some_and(|version| !version.is_empty()),
        "an error without cniVersion"
    );
    ensure!(error["code"].as_u64().is_some_and(|code| code > 0), "an error without a code");
    ensure!(
        error["msg"].as_str().is_some_and(|text| !text.is_empty()),
        "an error without a message"
    );
    Ok(())
}

/// The answers of all calls, in the order in which the calls ended. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Answers(Arc<Mutex<Vec<Answer>>>);

impl Answers {
    pub(crate) fn keep(&self, answer: Answer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    }

    /// All of them so far.
    pub fn all(&self) -> Vec<Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use serde_json::json;

    use super::*;

    fn answer(verb: &str, status: i32, stdout: &str) -> Answer {
        let (stdout, stderr) = (stdout.to_owned(), String::new());
        let status = std::process::ExitStatus::from_raw(status);
        Answer::new(
            verb,
            &json!({}),
            &Outcome { status, stdout, stderr, duration: Duration::from_millis(5) },
        )
    }

    const OK: i32 = 0;
    const FAILED: i32 = 1 << 8;
    const KILLED: i32 = 9;
    const RESULT: &str = r#"{"cniVersion":"1.0.0","interfaces":[],"ips":[]}"#;
    const ERROR: &str = r#"{"cniVersion":"1.0.0","code":11,"msg":"no"}"#;

    #[test]
    fn what_the_specification_allows_is_accepted() {
        for answer in [
            answer("ADD", OK, RESULT),
            answer("ADD", FAILED, ERROR),
            answer("DEL", OK, ""),
            answer("STATUS", FAILED, ERROR),
            answer("ADD", KILLED, "{\"cniV"),
        ] {
            answer.verify().unwrap();
        }
    }

    #[test]
    fn what_it_does_not_allow_is_not() {
        for wrong in [
            answer("ADD", OK, ""),
            answer("ADD", OK, ERROR),
            answer("ADD", OK, &format!("{RESULT}{ERROR}")),
            answer("ADD", FAILED, RESULT),
            answer("ADD", FAILED, ""),
            answer("ADD", FAILED, r#"{"cniVersion":"1.0.0","code":0,"msg":"no"}"#),
            answer("ADD", FAILED, r#"{"code":11,"msg":"no"}"#),
            answer("ADD", 101 << 8, ERROR),
            answer("DEL", OK, "{}"),
            answer("DEL", FAILED, "panicked at src/del.rs"),
        ] {
            assert!(wrong.verify().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_that_comes_long_after_its_deadline_is_not_accepted() {
        let mut late = answer("ADD", FAILED, ERROR);
        late.outcome.duration = ADD_PATIENCE + GRACE + Duration::from_millis(1);
        assert!(late.verify().is_err());
        let asked = Answer::new("ADD", &json!({"timeoutSeconds": 2}), &late.outcome);
        assert_eq!(asked.patience, Duration::from_secs(2));
    }
}
