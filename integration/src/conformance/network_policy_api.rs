//! The suites of the network-policy-api project as processes: Go's test programs, one after the
//! other, because their policies are of the whole cluster and have the same pods.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, cluster::credentials::ADMIN, eventually, executable};

use super::{
    runner::{Outcome, Spec},
    selection::{Sctp, Selection, WITHOUT_SCTP},
};

mod output;

use output::Output;

/// Ends a suite that hangs. Each takes some minutes.
const TIME_LIMIT: &str = "1h";

/// Begins the names of the suites' namespaces.
const NAMESPACES: &str = "network-policy-conformance-";

/// How long these may take to go: their pods have 30 s to end, and do not use them all; the rest is
/// for a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The test of each program that contains all others.
const ROOT: &str = "TestConformance";

/// Begins the name of each spec.
pub(super) const GROUP: &str = "[network-policy-api]";

/// A test with this in its name needs SCTP from its begin to its end.
const OF_SCTP: &str = "SCTP";

/// Where `integration/cluster/network-policy-api.sh` has put programs, definitions and images.
#[derive(Debug)]
pub(super) struct Suites(PathBuf);

/// A suite, by the name of its folder.
struct Suite {
    name: &'static str,
    /// Without these features of a cluster the suite skips each of its tests and makes no pods.
    features: &'static str,
}

const SUITES: [Suite; 2] = [
    Suite {
        name: "admin-network-policy",
        features: "AdminNetworkPolicy,BaselineAdminNetworkPolicy",
    },
    Suite { name: "cluster-network-policy", features: "ClusterNetworkPolicy" },
];

impl Suites {
    pub(super) fn find() -> Result<Self> {
        Ok(Self(executable::made("network-policy-api", "conformance")?))
    }

    /// Definitions of the objects that the tests create.
    pub(super) fn definitions(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for suite in &SUITES {
            files.extend(files_in(&self.0.join(suite.name).join("definitions"))?);
        }
        Ok(files)
    }

    /// Archives of the images that the tests ask for.
    pub(super) fn images(&self) -> Result<Vec<PathBuf>> {
        files_in(&self.0.join("images"))
    }

    /// Runs the selected tests; `say` hears of each when it begins. What the suites print goes to
    /// `results`.
    pub(super) fn run(
        &self,
        cluster: &Cluster,
        selection: &Selection,
        results: &Path,
        say: &dyn Fn(&str),
    ) -> Result<Vec<Spec>> {
        let (focus, sctp) = (selection.focus_of_policies.as_deref(), selection.sctp);
        let mut specs = Vec::new();
        for suite in &SUITES {
            let names = self.list(cluster, suite, focus)?;
            let needs_sctp = |name: &String| sctp == Sctp::Absent && name.contains(OF_SCTP);
            let (left_out, selected): (Vec<String>, Vec<String>) =
                names.into_iter().partition(needs_sctp);
            specs.extend(left_out.into_iter().map(|name| {
                let name = format!("{GROUP} {name}");
                Spec {
                    name,
                    outcome: Outcome::Skipped(WITHOUT_SCTP.to_owned()),
                    time: Duration::ZERO,
                }
            }));
            // The suite makes its pods, whether a test follows or not.
            if !selected.is_empty() {
                wait_for_namespaces(cluster)?;
                specs.extend(self.run_one(cluster, suite, focus, sctp, results, say)?);
            }
        }
        Ok(specs)
    }

    /// The names of a suite's tests, as it says them of those that it skips.
    fn list(&self, cluster: &Cluster, suite: &Suite, focus: Option<&str>) -> Result<Vec<String>> {
        let mut program = self.program(cluster, suite, focus);
        let answer = program.arg(format!("-exempt-features={}", suite.features)).output();
        let answer = answer.with_context(|| format!("start the suite {}", suite.name))?;
        let text = String::from_utf8_lossy(&answer.stdout);
        let mut output = Output::new(Sctp::Present);
        for line in text.lines() {
            output.line(line);
        }
        ensure!(answer.status.success(), "the suite {} cannot list its tests: {text}", suite.name);
        Ok(output.skipped())
    }

    fn run_one(
        &self,
        cluster: &Cluster,
        suite: &Suite,
        focus: Option<&str>,
        sctp: Sctp,
        results: &Path,
        say: &dyn Fn(&str),
    ) -> Result<Vec<Spec>> {
        let mut program = self.program(cluster, suite, focus);
        if sctp == Sctp::Absent {
            program.arg(format!("-test.skip=^{ROOT}$/{OF_SCTP}"));
        }
        let log = results.join(format!("{}.txt", suite.name));
        let mut log = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        // Both together: why it ended early is on standard error.
        let (lines, end) = io::pipe()?;
        program.current_dir(results).stdin(Stdio::null()).stdout(end.try_clone()?).stderr(end);
        let mut child =
            program.spawn().with_context(|| format!("start the suite {}", suite.name))?;
        // It has the end of the pipe, too.
        drop(program);
        let mut output = Output::new(sctp);
        for line in BufReader::new(lines).split(b'\n') {
            let line = line?;
            log.write_all(&line)?;
            log.write_all(b"\n")?;
            if let Some(begins) = output.line(&String::from_utf8_lossy(&line)) {
                say(&begins);
            }
        }
        let status = child.wait()?;
        Ok(output.specs(suite.name, status.success()))
    }

    fn program(&self, cluster: &Cluster, suite: &Suite, focus: Option<&str>) -> Command {
        let mut program = Command::new(self.0.join(suite.name).join("conformance.test"));
        program.env("KUBECONFIG", cluster.credentials.kubeconfig(ADMIN));
        program.args(["-test.v", "-all-features"]).arg(format!("-test.timeout={TIME_LIMIT}"));
        let focus = focus.map(|focus| format!("/{focus}")).unwrap_or_default();
        program.arg(format!("-test.run=^{ROOT}${focus}"));
        program
    }
}

/// Waits until nothing is left of the suite before, which deletes its namespaces and does not wait.
/// The next one cannot create anything in a namespace of the same name that is still there.
fn wait_for_namespaces(cluster: &Cluster) -> Result<()> {
    eventually("the namespaces of the suite before are gone", PATIENCE, || {
        let all = cluster.api.read("/api/v1/namespaces")?;
        let names = all["items"].as_array().context("a list of namespaces")?;
        let names = names.iter().filter_map(|namespace| namespace["metadata"]["name"].as_str());
        let left: Vec<&str> = names.filter(|name| name.starts_with(NAMESPACES)).collect();
        ensure!(left.is_empty(), "{} are left", left.join(", "));
        Ok(())
    })
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.sort();
    Ok(files)
}
