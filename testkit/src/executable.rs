//! Where executables are: those under test in `OVN_CNI_BIN_DIR` if that is set (for those of a
//! package), otherwise beside the running one, as cargo builds them; tools in `target/tools` or
//! `PATH`.

use std::{
    env, fs, iter,
    path::{Path, PathBuf},
    process::Command,
    sync::Once,
};

use anyhow::{Context as _, Result, ensure};

/// Name of the plugin's executable.
pub const PLUGIN: &str = "ovn-k8s-cni-overlay";
/// Name of the server's executable.
pub const SERVER: &str = "ovnkube";
/// Environment variable: a directory with the executables under test, instead of cargo's.
pub const BIN_DIR: &str = "OVN_CNI_BIN_DIR";

/// Path of an executable under test, which is built first if cargo's is missing or old: `cargo test
/// -p tests` does not build other packages' executables.
#[track_caller]
pub fn path(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    if env::var_os(BIN_DIR).is_none() {
        let directory = build_dir().expect("cargo has built the test");
        BUILT.call_once(|| {
            if !is_current(&directory.join(PLUGIN)) || !is_current(&directory.join(SERVER)) {
                build(&directory);
            }
        });
    }
    under_test(name).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Path of the executable under test called `name`, as it is.
///
/// # Errors
/// If it is not there, with the command that builds it.
pub fn under_test(name: &str) -> Result<PathBuf> {
    let directory = match env::var_os(BIN_DIR) {
        Some(dir) => {
            PathBuf::from(dir).canonicalize().with_context(|| format!("directory in {BIN_DIR}"))?
        }
        None => build_dir()?,
    };
    let path = directory.join(name);
    ensure!(
        path.is_file(),
        "{} is missing; build it with: cargo build -p cni -p ovnkube (or set {BIN_DIR})",
        path.display()
    );
    Ok(path)
}

/// Path of the command of a package that is no product; cargo's, always.
///
/// # Errors
/// If it is not there, with the command that builds it.
pub fn of_package(name: &str) -> Result<PathBuf> {
    let path = build_dir()?.join(name);
    ensure!(path.is_file(), "{} is missing; build it with: cargo build -p {name}", path.display());
    Ok(path)
}

/// A tool that `prerequisites.sh` installs into `target/tools`, or one in `PATH`.
///
/// # Errors
/// If neither has it, with the command that installs it.
pub fn tool(name: &str) -> Result<PathBuf> {
    let installed = target_dir()?.join("tools").join(name);
    let path = env::var_os("PATH").unwrap_or_default();
    iter::once(installed)
        .chain(env::split_paths(&path).map(|dir| dir.join(name)))
        .find(|path| path.is_file())
        .with_context(|| {
            format!("{name} is missing; install it with: integration/prerequisites.sh test")
        })
}

/// A directory in cargo's target directory that `make GOAL` fills.
///
/// # Errors
/// If it is not there, with that command.
pub fn made(directory: &str, goal: &str) -> Result<PathBuf> {
    let path = target_dir()?.join(directory);
    ensure!(path.is_dir(), "{} is missing; it comes with: make {goal}", path.display());
    Ok(path)
}

/// The root of the source tree. It is not derived from cargo's target directory, which may be
/// elsewhere.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is in a workspace")
}

/// Cargo's target directory, which contains the running executable.
///
/// # Errors
/// If it is in none.
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

/// Whether an executable exists and is newer than all its sources, which cargo lists in the file
/// beside it.
fn is_current(executable: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    let (Ok(built), Ok(list)) =
        (modified(executable), fs::read_to_string(executable.with_extension("d")))
    else {
        return false;
    };
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
    sources
        .split_whitespace()
        .all(|source| modified(Path::new(source)).is_ok_and(|changed| changed <= built))
}

/// Builds with the features of `make test`, because the other packages' tests use the same
/// executables. Cargo's own lock serializes the builds of several test processes.
fn build(directory: &Path) {
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let target = directory.parent().expect("cargo's directories are inside of another");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--offline",
        "--package",
        "cni",
        "--package",
        "ovnkube",
        "--features",
        "cni/failpoints,ovnkube/failpoints",
    ]);
    cargo.args(["--profile", profile]).arg("--target-dir").arg(target).current_dir(workspace());
    let status = cargo.status().unwrap_or_else(|error| panic!("{cargo:?}: {error}"));
    assert!(status.success(), "{cargo:?}: {status}");
}
