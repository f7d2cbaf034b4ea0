//! Where the executables are: beside the running one, as cargo builds them, unless `OVN_CNI_BIN_DIR` says
//! otherwise.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

/// Name of the plugin's executable.
pub const PLUGIN: &str = "ovn-k8s-cni-overlay";
/// Name of the server's executable.
pub const SERVER: &str = "ovnkube";
/// Environment variable: a directory with the executables under test, instead of cargo's.
pub const BIN_DIR: &str = "OVN_CNI_BIN_DIR";

/// Path of the executable under test called `name`.
///
/// # Errors
/// If it is not there, with the command that builds it.
pub fn under_test(name: &str) -> Result<PathBuf> {
    let dir = match env::var_os(BIN_DIR) {
        Some(dir) => PathBuf::from(dir).canonicalize().with_context(|| format!("directory in {BIN_DIR}"))?,
        None => build_dir()?,
    };
    let path = dir.join(name);
    ensure!(
        path.is_file(),
        "{} is missing; build it with: cargo build -p cni -p ovnkube (or set {BIN_DIR})",
        path.display()
    );
    Ok(path)
}

/// Path of this package's own command: its hidden subcommands run on nodes and in pods.
///
/// # Errors
/// If it is not there, with the command that builds it.
pub fn own() -> Result<PathBuf> {
    let path = build_dir()?.join("integration");
    ensure!(path.is_file(), "{} is missing; build it with: cargo build -p integration", path.display());
    Ok(path)
}

/// A tool that `prerequisites.sh` installs into `target/tools`, or one in `PATH`.
///
/// # Errors
/// If neither has it, with the command that installs it.
pub fn tool(name: &str) -> Result<PathBuf> {
    let installed = target_dir()?.join("tools").join(name);
    let path = env::var_os("PATH").unwrap_or_default();
    std::iter::once(installed)
        .chain(env::split_paths(&path).map(|dir| dir.join(name)))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is missing; install it with: integration/prerequisites.sh test"))
}

/// Cargo's target directory, which contains the running executable.
pub fn target_dir() -> Result<PathBuf> {
    let build_dir = build_dir()?;
    build_dir.parent().map(Path::to_path_buf).context("the executable is not in a target directory")
}

/// `target/debug`: the directory of the running executable, or the one above it if that is `deps`.
fn build_dir() -> Result<PathBuf> {
    let exe = env::current_exe().context("path of the running executable")?;
    let dir = exe.parent().context("the running executable has no directory")?;
    let above = dir.parent().filter(|_| dir.ends_with("deps"));
    Ok(above.unwrap_or(dir).to_path_buf())
}
