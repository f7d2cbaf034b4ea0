//! Helm, by its own packages, with the API server of the cluster: releases, `--wait`, three-way
//! merges, hooks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use integration::{Cluster, command, executable, mounts};
use serde_json::Value;

/// A release of the chart in a cluster, in the namespace `ovn-kubernetes`.
pub(crate) struct Release<'a> {
    pub(crate) name: &'a str,
    pub(crate) cluster: &'a Cluster,
}

impl Release<'_> {
    pub(crate) fn install(&self, values: &Value) -> Result<()> {
        self.run("install", [chart(), written(values)?]).map(drop)
    }

    /// With the values of before, in which these take the place of others.
    pub(crate) fn upgrade(&self, values: &Value) -> Result<()> {
        self.run("upgrade", [chart(), written(values)?]).map(drop)
    }

    pub(crate) fn roll_back_to(&self, revision: u32) -> Result<()> {
        self.run("rollback", [PathBuf::from(revision.to_string())]).map(drop)
    }

    pub(crate) fn uninstall(&self) -> Result<()> {
        self.run("uninstall", []).map(drop)
    }

    /// Runs the pods of `helm test`; what they say.
    pub(crate) fn test(&self) -> Result<String> {
        self.run("test", [])
    }

    /// A line for each revision, the oldest first: its number and its state.
    pub(crate) fn history(&self) -> Result<Vec<String>> {
        Ok(self.run("history", [])?.lines().map(str::to_owned).collect())
    }

    fn run(&self, verb: &str, arguments: impl IntoIterator<Item = PathBuf>) -> Result<String> {
        let tool = executable::target_dir()?.join("tools/charts");
        ensure!(
            tool.is_file(),
            "{} is missing; build it with: integration/prerequisites.sh test",
            tool.display()
        );
        let mut helm = Command::new(tool);
        helm.arg(verb)
            .args(arguments)
            .env("RELEASE", self.name)
            .env("KUBECONFIG", self.cluster.kubeconfig());
        // Else clients keep what they discover in the home directory.
        command::output(helm.env("KUBECACHEDIR", Path::new(mounts::LAB).join("discovery")))
    }
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/helm/ovn-kubernetes")
}

fn written(values: &Value) -> Result<PathBuf> {
    let file = Path::new(mounts::LAB).join("values.json");
    // JSON is YAML.
    fs::write(&file, values.to_string())?;
    Ok(file)
}
