//! Flows of all kinds that are held while something is done to a cluster, by `ovnkube connectivity
//! test --disruption`: from pods and nodes to pods, Services and node ports, by TCP, UDP and ICMP.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, command};
use serde_json::Value;

use crate::cluster::day_two::{must_leave_nothing, of_state, ovnkube};

/// The line on standard error after which each packet counts.
const HELD: &str = "flows are held";

/// A run, which ends with [`end`](Self::end).
pub(crate) struct Held<'a> {
    cluster: &'a Cluster,
    run: Child,
}

impl<'a> Held<'a> {
    /// Starts pods of this image, and waits until all flows are answered. One lost packet of each
    /// flow is let pass: a busy machine delays it.
    pub(crate) fn start(cluster: &'a Cluster, image: &str) -> Result<Self> {
        let arguments = ["connectivity", "test", "--disruption", "--allowed-loss=1", "-o", "json"];
        let mut run = ovnkube(cluster, &arguments)?
            .args(["--image", image])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        let mut lines = BufReader::new(run.stderr.take().context("standard error")?);
        while !said.contains(HELD) {
            if lines.read_line(&mut said)? == 0 {
                let report = run.wait_with_output()?;
                let report = String::from_utf8_lossy(&report.stdout);
                anyhow::bail!("no flows: {said}{report}");
            }
        }
        Ok(Self { cluster, run })
    }

    /// Ends it. How many flows were held, and what those say that lost more than one packet.
    ///
    /// # Errors
    /// A flow lost its connection.
    pub(crate) fn end(self) -> Result<(usize, Vec<String>)> {
        command::output(
            std::process::Command::new("kill").args(["-INT", &self.run.id().to_string()]),
        )?;
        let output = self.run.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let report: Value = serde_json::from_str(&text).with_context(|| text.into_owned())?;
        let (ok, failed) = (of_state(&report, "ok").len(), of_state(&report, "failed"));
        let is_kept = |flow: &&Value| flow["details"]["broken"] == 0;
        ensure!(failed.iter().all(is_kept), "{ok} are well: {failed:#?}");
        must_leave_nothing(self.cluster)?;
        let lost = failed.iter().map(|flow| format!("{}: {}", flow["name"], flow["summary"]));
        Ok((ok + failed.len(), lost.collect()))
    }
}
