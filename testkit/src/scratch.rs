//! A directory for one test, with all its sockets, databases and logs.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
};

use tempfile::TempDir;

/// A directory that is removed with its test. If the test fails, the directory stays and its path
/// is printed.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
}

impl Scratch {
    /// An empty directory, for its owner alone. Its path is short, because that of a socket has at
    /// most 107 bytes (`unix(7)`).
    pub fn new() -> Self {
        let mut builder = tempfile::Builder::new();
        builder.prefix("ovn-").permissions(Permissions::from_mode(0o700));
        Self { dir: builder.tempdir().expect("a temporary directory can be made") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path inside; the file need not exist.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Creates a directory inside.
    pub fn make_dir(&self, name: &str) -> PathBuf {
        let dir = self.join(name);
        fs::create_dir_all(&dir).expect("a directory inside of ours can be made");
        dir
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if thread::panicking() {
            self.dir.disable_cleanup(true);
            eprintln!("the test's directory is kept: {}", self.path().display());
        }
    }
}
