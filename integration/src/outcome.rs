//! How a call of the plugin ended.

use std::{process::ExitStatus, time::Duration};

use anyhow::{Result, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;

/// Outcome of a call of the plugin.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// The answer: a result or an error, as JSON, or nothing.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// From start to end; about 2 ms of it belong to `nsenter`.
    pub duration: Duration,
}

/// The error object of the CNI specification.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CniError {
    /// Number that runtimes act on.
    pub code: u32,
    /// One line for people.
    pub msg: String,
    /// More for people.
    #[serde(default)]
    pub details: String,
}

impl Outcome {
    /// The result; null if it printed nothing.
    ///
    /// # Errors
    /// If the call failed, or printed something else than JSON.
    pub fn success(&self) -> Result<Value> {
        match (self.status.success(), self.stdout.trim()) {
            (false, _) => Err(self.described("the plugin failed")),
            (true, "") => Ok(Value::Null),
            (true, text) => serde_json::from_str(text)
                .map_err(|error| self.described(&format!("standard output is not JSON: {error}"))),
        }
    }

    /// The CNI error.
    ///
    /// # Errors
    /// If the call succeeded, or printed something else than a CNI error.
    pub fn failure(&self) -> Result<CniError> {
        if self.status.success() {
            bail!(self.described("the plugin succeeded, although it should not"));
        }
        serde_json::from_str(self.stdout.trim()).map_err(|error| {
            self.described(&format!("standard output is not a CNI error: {error}"))
        })
    }

    fn described(&self, what: &str) -> anyhow::Error {
        let Self { status, stdout, stderr, duration } = self;
        anyhow!("{what} ({status}, after {duration:?})\nstdout: {stdout}\nstderr: {stderr}")
    }
}
