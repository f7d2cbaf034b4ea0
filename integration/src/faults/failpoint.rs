//! The places at which a plugin with the feature `failpoints` can be made to fail, to die or to hang: before and after each stage of an ADD.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use contract::stage::Stage;

use super::Site;
use crate::{Invocation, Node, Pod, command, executable};

/// The variable that the plugin reads; a plugin that has its name in it has failpoints.
pub const VARIABLE: &str = "OVN_CNI_FAILPOINT";

/// Every place, in the order of the stages: `before:ovsdb`, `after:ovsdb`, …
pub fn places() -> impl Iterator<Item = (Stage, String)> {
    Stage::ALL.into_iter().flat_map(|stage| ["before", "after"].map(|side| (stage, format!("{side}:{stage}"))))
}

/// Installs a plugin that has failpoints on `node`: the one under test, or one that is built for it.
pub fn install(node: &Node) -> Result<()> {
    let installed = node.path("/opt/cni/bin").join(executable::PLUGIN);
    fs::remove_file(&installed).or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    symlink(plugin_with_failpoints()?, &installed).context("install the plugin that has failpoints")
}

fn plugin_with_failpoints() -> Result<PathBuf> {
    let has_them =
        |path: &PathBuf| fs::read(path).is_ok_and(|program| program.windows(VARIABLE.len()).any(|bytes| bytes == VARIABLE.as_bytes()));
    if let Some(plugin) = executable::under_test(executable::PLUGIN).ok().filter(has_them) {
        return Ok(plugin);
    }
    let target = executable::target_dir()?.join("failpoints");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).args([
        "build",
        "--quiet",
        "--locked",
        "-p",
        "cni",
        "--features",
        "failpoints",
    ]);
    command::output(cargo.arg("--target-dir").arg(&target)).context("build the plugin with failpoints")?;
    Ok(target.join("debug").join(executable::PLUGIN))
}

impl Site<'_> {
    /// An ADD of `pod` that meets `failpoint`: `after:veth=kill`, `before:pod=hang`, …; [`install`] first.
    pub fn add_with(&self, failpoint: &str, pod: &Pod) -> Invocation {
        self.node.runtime().call("ADD", Some(pod)).env(VARIABLE, failpoint)
    }
}
