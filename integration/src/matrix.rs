//! What the matrices have in common: how their tests run, and how findings are collected. The
//! matrix of faults is in [`crate::faults`], that of tenants in [`crate::tenants`].
//!
//! Must not know: the rows.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{command, executable};

/// The options with which the executables of the tests were built. Others would build everything
/// again.
const SELECTION: &[&str] = &["--workspace", "--features", "cni/failpoints,ovnkube/failpoints"];

/// One run of a matrix's tests by `cargo nextest`.
#[derive(Debug)]
pub struct Run<'a> {
    /// The module of the tests, which is also the name of the profile.
    pub name: &'a str,
    /// Which tests, in nextest's language of filters; all if empty.
    pub filter: &'a str,
    /// What the tests find in their environment besides.
    pub environment: &'a [(&'a str, String)],
}

impl Run<'_> {
    /// Runs the tests, whose output goes to the terminal. Whether they passed is in what they
    /// leave.
    ///
    /// # Errors
    /// If nextest does not run.
    pub fn run(&self) -> Result<()> {
        let Self { name, filter, environment } = self;
        let mut nextest = Command::new("cargo");
        nextest
            .current_dir(executable::workspace())
            .args(["nextest", "run", "--locked", "--profile", name])
            .args(SELECTION);
        // A selection without tests is for the report to judge.
        nextest.args(["--no-tests", "pass"]);
        if !filter.is_empty() {
            nextest.args(["-E", filter]);
        }
        nextest.envs(environment.iter().map(|(key, value)| (key, value)));
        let line = command::line(&nextest);
        let status = nextest.status().with_context(|| format!("start `{line}`"))?;
        // 100: tests failed, https://docs.rs/nextest-metadata (NextestExitCode).
        match status.code() {
            Some(0 | 100) => Ok(()),
            _ => bail!("`{line}`: {status}"),
        }
    }
}

/// The checks that do not hold: one must not hide the others.
#[derive(Debug, Default)]
pub struct Findings(Vec<String>);

impl Findings {
    /// Adds the failure of a check, if it is one.
    pub fn note(&mut self, what: &str, result: Result<()>) {
        if let Err(error) = result {
            self.0.push(format!("{what}: {error:#}"));
        }
    }

    /// All failures, one a line.
    ///
    /// # Errors
    /// If there is any.
    pub fn verdict(self) -> Result<()> {
        ensure!(self.0.is_empty(), "{}", self.0.join("\n"));
        Ok(())
    }
}
