//! The files of a directory and the pods in them. Looks when it is told to; blocks while it reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use contract::names::PodKey;
use nix::{errno::Errno, fcntl::OFlag};

use super::manifest::{self, ManifestError};
use crate::{
    chain,
    pods::{PodFacts, Pods},
};

/// The most bytes of a manifest that are read.
const LONGEST: u64 = 2 * 1024 * 1024;
/// Endings of a manifest's name. What an editor leaves beside it has another, or starts with a dot.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The files, as they were when they were looked at last.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    files: BTreeMap<OsString, Manifest>,
    /// Files that could not be read for want of descriptors or memory.
    unread: BTreeSet<OsString>,
    reads: u64,
    pods: Pods,
}

/// One file that was read at least once.
#[derive(Debug, Default)]
struct Manifest {
    pods: Vec<(PodKey, PodFacts)>,
    /// Where several files have the same pod, the one that was read last counts.
    read: u64,
    /// Said once.
    problem: Option<String>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("reading")]
    Read(#[from] io::Error),
    #[error("not a regular file")]
    NotAFile,
    #[error("more than {LONGEST} bytes")]
    TooLong,
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl FileError {
    /// Whether it has nothing to do with the file.
    fn is_passing(&self) -> bool {
        let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM].map(|errno| Some(errno as i32));
        matches!(self, Self::Read(error) if passing.contains(&error.raw_os_error()))
    }
}

impl Directory {
    /// One that has not been looked at. What is found goes to `pods`.
    pub(super) fn new(path: &Path, pods: Pods) -> Self {
        Self { path: path.to_owned(), files: BTreeMap::new(), unread: BTreeSet::new(), reads: 0, pods }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at every file that is there, or was.
    pub(super) fn scan(&mut self) -> io::Result<()> {
        let mut names: BTreeSet<OsString> = self.files.keys().cloned().collect();
        for entry in std::fs::read_dir(&self.path)? {
            names.insert(entry?.file_name());
        }
        names.iter().for_each(|name| self.look_at(name));
        Ok(())
    }

    /// Whether a file is worth another look, though nobody has changed it.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Looks at the files again that could not be read.
    pub(super) fn look_again(&mut self) {
        std::mem::take(&mut self.unread).iter().for_each(|name| self.look_at(name));
    }

    /// Looks at one file, there or not.
    pub(super) fn look_at(&mut self, name: &OsStr) {
        if !is_manifest(name) {
            return;
        }
        self.unread.remove(name);
        let before: Vec<PodKey> = self.files.get(name).into_iter().flat_map(|file| &file.pods).map(|(key, _)| key.clone()).collect();
        match read(&self.path.join(name)) {
            Ok(pods) => {
                self.reads += 1;
                self.files.insert(name.to_owned(), Manifest { pods, read: self.reads, problem: None });
            }
            Err(FileError::Read(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.files.remove(name);
            }
            Err(error) => {
                if error.is_passing() {
                    self.unread.insert(name.to_owned());
                }
                self.complain(name, chain(&error));
            }
        }
        let after = self.files.get(name).into_iter().flat_map(|file| &file.pods).map(|(key, _)| key.clone());
        let touched: BTreeSet<PodKey> = before.into_iter().chain(after).collect();
        touched.iter().for_each(|key| self.publish(key));
    }

    /// Says once what is wrong with a file. The pods that it had before stay: somebody is editing it.
    fn complain(&mut self, name: &OsStr, problem: String) {
        let file = self.files.entry(name.to_owned()).or_default();
        if file.problem.as_ref() != Some(&problem) {
            tracing::warn!(file = %self.path.join(name).display(), problem, "a pod manifest cannot be used");
            file.problem = Some(problem);
        }
    }

    /// Tells what is known of a pod after one of its files changed.
    fn publish(&self, key: &PodKey) {
        let mut claims: Vec<(u64, &OsString, &PodFacts)> = self
            .files
            .iter()
            .flat_map(|(name, file)| file.pods.iter().filter(|(pod, _)| pod == key).map(move |(_, facts)| (file.read, name, facts)))
            .collect();
        claims.sort_by_key(|(read, ..)| *read);
        match claims.last() {
            None => {
                tracing::info!(pod = %key, "pod is gone");
                self.pods.remove(key);
            }
            Some((_, name, facts)) => {
                if claims.len() > 1 {
                    tracing::warn!(pod = %key, file = %Path::new(name).display(), "several manifests have this pod; the last one counts");
                }
                tracing::debug!(pod = %key, file = %Path::new(name).display(), uid = facts.uid, "pod is there");
                self.pods.put(key, (*facts).clone());
            }
        }
    }
}

fn is_manifest(name: &OsStr) -> bool {
    let hidden = name.as_encoded_bytes().starts_with(b".");
    !hidden && Path::new(name).extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
}

fn read(path: &Path) -> Result<Vec<(PodKey, PodFacts)>, FileError> {
    // Not blocking, in case that it is a FIFO.
    let file: File = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileError::NotAFile);
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(FileError::TooLong);
    }
    Ok(manifest::parse(&text)?)
}
