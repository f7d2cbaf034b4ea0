//! What `ovnkube trace` and `policy explain` say.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use integration::{
    central::{NORTHBOUND, SOUTHBOUND},
    executable,
};
use serde_json::Value;

/// What the command has said.
pub(crate) struct Answer {
    pub(crate) report: Value,
    pub(crate) status: i32,
}

impl Answer {
    /// What `trace` says.
    pub(crate) fn of(mut command: Command, arguments: &[&str]) -> Result<Self> {
        command.arg("trace");
        Self::of_command(command, arguments)
    }

    fn of_command(mut command: Command, arguments: &[&str]) -> Result<Self> {
        let output =
            command.args(arguments).args(["-o", "json"]).output().context("start ovnkube")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let report = serde_json::from_str(&text).with_context(|| {
            format!("{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        Ok(Self { report, status: output.status.code().context("an exit status")? })
    }

    /// With the databases and the API server of the lab.
    pub(crate) fn in_lab(api_server: &str, arguments: &[&str]) -> Result<Self> {
        let command = Command::new(executable::under_test(executable::SERVER)?);
        Self::of_databases(command, api_server, arguments)
    }

    /// The same, by this command.
    pub(crate) fn of_databases(
        mut command: Command,
        api_server: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        // No other kubeconfig than the one that is given.
        command.env("HOME", "/nonexistent");
        let places = [
            format!("--nb-address={NORTHBOUND}"),
            format!("--sb-address={SOUTHBOUND}"),
            format!("--k8s-apiserver={api_server}"),
        ];
        let places = places.iter().map(String::as_str);
        Self::of(command, &arguments.iter().copied().chain(places).collect::<Vec<_>>())
    }

    /// What `policy explain` says, with the northbound database and the API server of the lab.
    pub(crate) fn explained(api_server: &str, arguments: [&str; 3]) -> Result<Self> {
        let mut command = Command::new(executable::under_test(executable::SERVER)?);
        command.env("HOME", "/nonexistent").args(["policy", "explain"]);
        command.arg(format!("--nb-address={NORTHBOUND}"));
        command.arg(format!("--k8s-apiserver={api_server}"));
        Self::of_command(command, &arguments)
    }

    /// The summaries of the findings below a heading.
    pub(crate) fn said(&self, subject: &str) -> Vec<String> {
        let findings = self.report["findings"].as_array().cloned().unwrap_or_default();
        let below = findings.into_iter().filter(|finding| finding["subject"] == subject);
        let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or("?").to_owned();
        below.map(|finding| text(&finding, "name") + ": " + &text(&finding, "summary")).collect()
    }

    pub(crate) fn must_say(&self, status: i32, subject: &str, words: &[&str]) -> Result<()> {
        let said = self.said(subject);
        let has = |line: &String| words.iter().all(|word| line.contains(word));
        ensure!(
            self.status == status && said.iter().any(has),
            "exit status {} instead of {status}, {words:?} in {subject}: {:#}",
            self.status,
            self.report
        );
        Ok(())
    }
}
