//! The executables under test: in `OVN_CNI_BIN_DIR` if that is set (for those of a package), otherwise beside
//! the test's own.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Name of the plugin.
pub const PLUGIN: &str = "ovn-k8s-cni-overlay";
/// Name of the server.
pub const SERVER: &str = "ovnkube";

const BIN_DIR: &str = "OVN_CNI_BIN_DIR";

/// Path of an executable under test.
#[track_caller]
pub fn path(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let path = DIRECTORY.get_or_init(directory).join(name);
    assert!(path.is_file(), "{} is missing; build it with: cargo build -p cni -p ovnkube", path.display());
    path
}

/// The root of the source tree.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is in a workspace")
}

fn directory() -> PathBuf {
    if let Some(directory) = env::var_os(BIN_DIR) {
        return PathBuf::from(directory)
            .canonicalize()
            .unwrap_or_else(|error| panic!("the directory in {BIN_DIR}: {error}"));
    }
    let own = env::current_exe().expect("the test's executable has a path");
    let directory = own
        .ancestors()
        .skip(1)
        .find(|directory| !directory.ends_with("deps"))
        .expect("the executable is in a directory");
    // `cargo test -p tests` does not build other packages' executables.
    if !is_current(&directory.join(PLUGIN)) || !is_current(&directory.join(SERVER)) {
        build(directory);
    }
    directory.to_owned()
}

/// Whether an executable exists and is newer than all its sources, which cargo lists in the file beside it.
fn is_current(executable: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    let (Ok(built), Ok(list)) = (modified(executable), fs::read_to_string(executable.with_extension("d")))
    else {
        return false;
    };
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
    sources.split_whitespace().all(|source| modified(Path::new(source)).is_ok_and(|changed| changed <= built))
}

/// Builds with the features of `make test`, because the other packages' tests use the same executables.
/// Cargo's own lock serializes the builds of several test processes.
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
