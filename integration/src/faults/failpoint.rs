//! Failpoints of a plugin with the feature `failpoints`: before and after each stage of an ADD it
//! can be made to fail, to die or to hang.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use contract::stage::Stage;

use super::Site;
use crate::{Invocation, Node, Pod, command, executable, mounts};

/// The environment variable that the plugin reads. An executable that contains this name has
/// failpoints.
pub const VARIABLE: &str = "OVN_CNI_FAILPOINT";

/// Every failpoint, in the order of the stages: `before:netns`, `after:netns`, …
pub fn places() -> impl Iterator<Item = (Stage, String)> {
    Stage::ALL
        .into_iter()
        .flat_map(|stage| ["before", "after"].map(|side| (stage, format!("{side}:{stage}"))))
}

/// Installs a plugin with failpoints on `node`: the one under test if it has them, or one that this
/// builds.
pub fn install(node: &Node) -> Result<()> {
    let installed = node.path(mounts::PLUGINS).join(executable::PLUGIN);
    fs::remove_file(&installed).or_else(|error| {
        if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
    })?;
    symlink(plugin_with_failpoints()?, &installed).context("install the plugin that has failpoints")
}

fn plugin_with_failpoints() -> Result<PathBuf> {
    // Every failpoint reads the variable, so its name is in the data of such an executable.
    let has_them = |path: &PathBuf| {
        fs::read(path).is_ok_and(|program| {
            program.windows(VARIABLE.len()).any(|bytes| bytes == VARIABLE.as_bytes())
        })
    };
    if let Some(plugin) = executable::under_test(executable::PLUGIN).ok().filter(has_them) {
        return Ok(plugin);
    }
    // A target directory of its own: the plugin under test stays as it is.
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
    command::output(cargo.arg("--target-dir").arg(&target))
        .context("build the plugin with failpoints")?;
    Ok(target.join("debug").join(executable::PLUGIN))
}

impl Site<'_> {
    /// An ADD of `pod` with `failpoint`: `after:veth=kill`, `before:pod=hang`, …; call [`install`]
    /// first.
    pub fn add_with(&self, failpoint: &str, pod: &Pod) -> Invocation {
        self.node.runtime().call("ADD", Some(pod)).env(VARIABLE, failpoint)
    }
}
