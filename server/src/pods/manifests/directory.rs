//! The files of a directory, and the pods in them. Reads only when its caller asks for it, and
//! blocks meanwhile.

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

/// The most bytes of a manifest. More than an annotation may have (256 KiB), so that an annotation
/// that is too long is refused with that reason, and does not look like a pod without one; a file
/// of a gigabyte must not fill the memory.
const LONGEST: u64 = 2 * 1024 * 1024;
/// Endings of a manifest's name. An editor's temporary files have another ending, or start with a
/// dot.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The files as they were last read.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    files: BTreeMap<OsString, Manifest>,
    /// Files that could not be read for want of descriptors or memory.
    unread: BTreeSet<OsString>,
    /// Number of successful reads, for their order.
    reads: u64,
    pods: Pods,
}

/// One file that was read at least once.
#[derive(Debug, Default)]
struct Manifest {
    pods: Vec<(PodKey, PodFacts)>,
    /// Number of the last read. Of several files with the same pod, the one that was read last
    /// counts.
    read: u64,
    /// The problem that was logged last.
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
    /// Whether the cause is this process or the host, and not the file.
    fn is_passing(&self) -> bool {
        let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM].map(|errno| Some(errno as i32));
        matches!(self, Self::Read(error) if passing.contains(&error.raw_os_error()))
    }
}

impl Directory {
    /// A directory that has not been read yet. Its pods go to `pods`.
    pub(super) fn new(path: &Path, pods: Pods) -> Self {
        Self {
            path: path.to_owned(),
            files: BTreeMap::new(),
            unread: BTreeSet::new(),
            reads: 0,
            pods,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads every file, and forgets those that are gone.
    pub(super) fn scan(&mut self) -> io::Result<()> {
        let mut names: BTreeSet<OsString> = self.files.keys().cloned().collect();
        for entry in std::fs::read_dir(&self.path)? {
            names.insert(entry?.file_name());
        }
        names.iter().for_each(|name| self.look_at(name));
        Ok(())
    }

    /// Whether a file has to be read again although it has not changed.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Reads the files again that could not be read.
    pub(super) fn look_again(&mut self) {
        std::mem::take(&mut self.unread).iter().for_each(|name| self.look_at(name));
    }

    /// Reads one file, or forgets it if it is gone.
    pub(super) fn look_at(&mut self, name: &OsStr) {
        if !is_manifest(name) {
            return;
        }
        self.unread.remove(name);
        let before: Vec<PodKey> = self
            .files
            .get(name)
            .into_iter()
            .flat_map(|file| &file.pods)
            .map(|(key, _)| key.clone())
            .collect();
        match read(&self.path.join(name)) {
            Ok(pods) => {
                self.reads += 1;
                self.files
                    .insert(name.to_owned(), Manifest { pods, read: self.reads, problem: None });
            }
            Err(FileError::Read(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.files.remove(name);
            }
            Err(error) => {
                // No event follows when descriptors are free again.
                if error.is_passing() {
                    self.unread.insert(name.to_owned());
                }
                self.complain(name, chain(&error));
            }
        }
        let after = self
            .files
            .get(name)
            .into_iter()
            .flat_map(|file| &file.pods)
            .map(|(key, _)| key.clone());
        // The pods of before, too: one that the file no longer has may be gone, or be in another
        // file.
        let touched: BTreeSet<PodKey> = before.into_iter().chain(after).collect();
        touched.iter().for_each(|key| self.publish(key));
    }

    /// Logs once what is wrong with a file. Its pods of before stay: the file may be in the middle
    /// of an edit.
    fn complain(&mut self, name: &OsStr, problem: String) {
        let file = self.files.entry(name.to_owned()).or_default();
        if file.problem.as_ref() != Some(&problem) {
            tracing::warn!(file = %self.path.join(name).display(), problem, "a pod manifest cannot be used");
            file.problem = Some(problem);
        }
    }

    /// Publishes a pod after one of its files has changed.
    fn publish(&self, key: &PodKey) {
        let mut claims: Vec<(u64, &OsString, &PodFacts)> = self
            .files
            .iter()
            .flat_map(|(name, file)| {
                file.pods
                    .iter()
                    .filter(|(pod, _)| pod == key)
                    .map(move |(_, facts)| (file.read, name, facts))
            })
            .collect();
        claims.sort_by_key(|(read, ..)| *read);
        match claims.last() {
            None => {
                tracing::info!(pod = %key, "pod is gone");
                self.pods.remove(key);
            }
            Some((_, name, facts)) => {
                if claims.len() > 1 {
                    tracing::warn!(
                        pod = %key,
                        file = %Path::new(name).display(),
                        "several manifests have this pod; the last one counts"
                    );
                }
                tracing::debug!(
                    pod = %key,
                    file = %Path::new(name).display(),
                    uid = facts.uid,
                    "pod is there"
                );
                self.pods.put(key, (*facts).clone());
            }
        }
    }
}

fn is_manifest(name: &OsStr) -> bool {
    let hidden = name.as_encoded_bytes().starts_with(b".");
    !hidden
        && Path::new(name)
            .extension()
            .is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
}

fn read(path: &Path) -> Result<Vec<(PodKey, PodFacts)>, FileError> {
    // Non-blocking: to open a FIFO would block until another process writes to it.
    let file: File =
        OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileError::NotAFile);
    }
    let mut text = String::new();
    // One byte more than allowed shows that the file is too long.
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(FileError::TooLong);
    }
    Ok(manifest::parse(&text)?)
}
