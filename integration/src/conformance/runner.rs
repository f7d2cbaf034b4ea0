//! The suite as a process: Ginkgo's runner with several copies of `e2e.test`.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use integration::{
    Cluster,
    cluster::{credentials::ADMIN, programs},
    executable,
};
use serde::Deserialize;

use super::selection::Selection;

/// Ends a suite that hangs. All specs of the group, one at a time, take less.
const TIME_LIMIT: &str = "4h";

/// Where `integration/cluster/conformance.sh` has put programs and images.
#[derive(Debug)]
pub(super) struct Suite(PathBuf);

/// What became of one spec.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spec {
    /// Its whole name, as Ginkgo's `--focus` sees it.
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) time: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// With the first line that says why.
    Failed(String),
    /// By itself, and why.
    Skipped(String),
    /// Not selected.
    NotRun,
}

impl Suite {
    pub(super) fn find() -> Result<Self> {
        Ok(Self(executable::made("conformance-suite", "conformance")?))
    }

    /// Archives of the images that specs ask for.
    pub(super) fn images(&self) -> Result<Vec<PathBuf>> {
        let directory = self.0.join("images");
        let entries =
            fs::read_dir(&directory).with_context(|| format!("read {}", directory.display()))?;
        entries.map(|entry| Ok(entry?.path())).collect()
    }

    /// Runs the selected specs; `say` hears of each when it ends. The suite's report and output go
    /// to `results`.
    pub(super) fn run(
        &self,
        cluster: &Cluster,
        selection: &Selection,
        procs: u32,
        results: &Path,
        say: &dyn Fn(&str),
    ) -> Result<Vec<Spec>> {
        let report = results.join("report.json");
        // Not the one of an earlier run.
        let _ = fs::remove_file(&report);
        let mut ginkgo = Command::new(self.0.join("bin/ginkgo"));
        ginkgo.args(["--no-color", "-v", "--silence-skips", "--json-report=report.json"]);
        ginkgo.arg(format!("--output-dir={}", results.display()));
        ginkgo.arg(format!("--procs={procs}")).arg(format!("--timeout={TIME_LIMIT}"));
        ginkgo
            .arg(format!("--focus={}", selection.focus))
            .arg(format!("--skip={}", selection.skip()));
        ginkgo.arg(self.0.join("bin/e2e.test")).arg("--");
        ginkgo.arg(format!("--kubeconfig={}", cluster.credentials.kubeconfig(ADMIN).display()));
        ginkgo.arg(format!("--num-nodes={}", cluster.workers.len()));
        ginkgo.arg(format!("--kubectl-path={}", programs::kubernetes("kubectl")?.display()));
        // No cloud; the control plane is not made of pods that could be awaited.
        ginkgo.args(["--provider=skeleton", "--allowed-not-ready-nodes=0", "--minStartupPods=0"]);
        ginkgo.current_dir(results).stdin(Stdio::null()).stdout(Stdio::piped());
        let log = results.join("output.txt");
        let mut log = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        ginkgo.stderr(log.try_clone()?);
        let mut child = ginkgo.spawn().context("start ginkgo")?;
        let output = child.stdout.take().context("the output of ginkgo")?;
        let mut ended: Option<String> = None;
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            log.write_all(&line)?;
            log.write_all(b"\n")?;
            let line = String::from_utf8_lossy(&line);
            // The result of a spec, and its name in the next line.
            if let Some(result) = ended.take() {
                say(&format!("{result}  {line}"));
            } else if line.starts_with("• [") {
                ended = Some(line.into_owned());
            }
        }
        // The report says what failed; the status says it, too.
        child.wait()?;
        let text = fs::read_to_string(&report).with_context(|| {
            format!("read {}: the suite did not run, see its output", report.display())
        })?;
        specs(&text)
    }
}

/// The parts of Ginkgo's report (`types.Report`) that matter here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Option<Vec<SpecReport>>,
    special_suite_failure_reasons: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    /// In nanoseconds.
    run_time: u64,
    failure: Option<Failure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    message: Option<String>,
}

fn specs(text: &str) -> Result<Vec<Spec>> {
    let reports: Vec<Report> = serde_json::from_str(text).context("read the report of ginkgo")?;
    let mut specs = Vec::new();
    for report in reports {
        let reasons = report.special_suite_failure_reasons.unwrap_or_default();
        let serious =
            reasons.iter().find(|reason| !reason.starts_with("Detected Programmatic Focus"));
        for spec in report.spec_reports.unwrap_or_default() {
            let is_spec = spec.leaf_node_type == "It";
            let spec = spec.into_spec();
            // What comes before and after all specs counts if it fails, and then it stands for all
            // of them.
            if is_spec || matches!(spec.outcome, Outcome::Failed(_)) {
                specs.push(spec);
            }
        }
        if let Some(reason) = serious {
            let outcome = Outcome::Failed(reason.clone());
            specs.push(Spec {
                name: "the suite as a whole".to_owned(),
                outcome,
                time: Duration::ZERO,
            });
        }
    }
    Ok(specs)
}

impl SpecReport {
    fn into_spec(self) -> Spec {
        let mut texts = self.container_hierarchy_texts.unwrap_or_default();
        texts.push(if self.leaf_node_text.is_empty() {
            self.leaf_node_type
        } else {
            self.leaf_node_text
        });
        let message = self.failure.and_then(|failure| failure.message).unwrap_or_default();
        let outcome = match self.state.as_str() {
            "passed" => Outcome::Passed,
            "skipped" | "pending" if message.is_empty() => Outcome::NotRun,
            "skipped" | "pending" => Outcome::Skipped(first_line(&message)),
            other => Outcome::Failed(format!("{other}: {}", first_line(&message))),
        };
        Spec { name: texts.join(" "), outcome, time: Duration::from_nanos(self.run_time) }
    }
}

fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_ginkgo_tells_passed_failed_skipped_and_not_selected_apart() {
        let report = r#"[{"SpecReports": [
            {"ContainerHierarchyTexts": ["[sig-network] A"], "LeafNodeType": "It", "LeafNodeText": "works", "State": "passed", "RunTime": 1500000000},
            {"ContainerHierarchyTexts": ["[sig-network] A"], "LeafNodeType": "It", "LeafNodeText": "fails", "State": "failed", "RunTime": 1, "Failure": {"Message": "\nwhy\nmore"}},
            {"ContainerHierarchyTexts": ["[sig-network] A"], "LeafNodeType": "It", "LeafNodeText": "needs more", "State": "skipped", "RunTime": 1, "Failure": {"Message": "no zones"}},
            {"ContainerHierarchyTexts": ["[sig-apps] B"], "LeafNodeType": "It", "LeafNodeText": "is of others", "State": "skipped", "RunTime": 0},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "SynchronizedBeforeSuite", "LeafNodeText": "", "State": "passed", "RunTime": 1}
        ], "SpecialSuiteFailureReasons": null}]"#;
        let specs = specs(report).expect("it is a report");
        let seen: Vec<(&str, &Outcome)> =
            specs.iter().map(|spec| (spec.name.as_str(), &spec.outcome)).collect();
        assert_eq!(
            seen,
            [
                ("[sig-network] A works", &Outcome::Passed),
                ("[sig-network] A fails", &Outcome::Failed("failed: why".to_owned())),
                ("[sig-network] A needs more", &Outcome::Skipped("no zones".to_owned())),
                ("[sig-apps] B is of others", &Outcome::NotRun),
            ]
        );
        assert_eq!(specs[0].time, Duration::from_millis(1500));
    }
}
