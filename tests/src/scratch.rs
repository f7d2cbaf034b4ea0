//! A test's own directory, with every socket, database and log in it.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use tempfile::TempDir;

/// A directory that goes with its test, unless the test fails: then it stays, and its path is printed.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
}

impl Scratch {
    /// An empty one. Its path is short, because a socket's may have 107 bytes at most (`unix(7)`).
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("ovn-").tempdir().expect("a temporary directory can be made");
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path inside, there or not.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Makes a directory inside.
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
