//! The file that says which process is the server.
//!
//! A lock on it says whether the process lives: it goes with the process, whatever other process gets its number, and in whatever
//! container the number was given. Programs that take no lock (upstream's) are known by their name.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag},
};

/// What every server of this kind is called.
const PROGRAM: &str = "ovnkube";

/// A file that names this process, until [`remove`](Self::remove).
#[derive(Debug)]
pub(crate) struct Pidfile {
    path: PathBuf,
    file: Flock<File>,
}

/// Why there is no such file.
#[derive(Debug, thiserror::Error)]
pub enum PidfileError {
    #[error("{path:?} names process {pid}, which is a running {PROGRAM}: stop it first, or choose another file with --pidfile")]
    Running { path: PathBuf, pid: String },
    #[error("pidfile {path:?}")]
    Io { path: PathBuf, source: io::Error },
}

impl Pidfile {
    /// Writes the file, unless the process that it names is a running server.
    pub(crate) fn create(path: &Path) -> Result<Self, PidfileError> {
        let failed = |source| PidfileError::Io { path: path.to_owned(), source };
        let running = |pid: &str| PidfileError::Running { path: path.to_owned(), pid: if pid.is_empty() { "?" } else { pid }.to_owned() };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        loop {
            let mut open = OpenOptions::new();
            open.read(true).write(true).create(true).truncate(false).mode(0o644).custom_flags(OFlag::O_NOFOLLOW.bits());
            let file = open.open(path).map_err(failed)?;
            let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((file, Errno::EWOULDBLOCK)) => return Err(running(&pid_in(&file).map_err(failed)?)),
                Err((_, errno)) => return Err(failed(errno.into())),
            };
            // Whoever had it may have removed it meanwhile.
            if !is_at(&file, path) {
                continue;
            }
            let pid = pid_in(&file).map_err(failed)?;
            if is_other_server(&pid) {
                return Err(running(&pid));
            }
            let text = format!("{}\n", std::process::id());
            let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
            if let Err(error) = written {
                // Nobody is to read half of a number.
                let _ = std::fs::remove_file(path);
                return Err(failed(error));
            }
            return Ok(Self { path: path.to_owned(), file });
        }
    }

    /// Removes the file, if it is still this process'.
    pub(crate) fn remove(self) {
        if is_at(&self.file, &self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the pidfile stays");
        }
    }
}

/// Whether somebody holds the lock of a server on this file.
pub(crate) fn is_held(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path) else { return false };
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
}

/// The number in the file; what is none is no process, and neither is anything beyond a few bytes.
fn pid_in(file: &File) -> io::Result<String> {
    let mut text = [0; 16];
    let length = file.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..length]).trim().to_owned();
    Ok(if text.bytes().all(|byte| byte.is_ascii_digit()) { text } else { String::new() })
}

/// Whether that process is another server that took no lock. In a container that starts again, every process has the number that it
/// had before: one's own says nothing.
fn is_other_server(pid: &str) -> bool {
    if pid.is_empty() || pid == std::process::id().to_string() {
        return false;
    }
    let mut command = Vec::new();
    let read = File::open(format!("/proc/{pid}/cmdline")).and_then(|file| file.take(4096).read_to_end(&mut command));
    let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
    read.is_ok() && Path::new(&*String::from_utf8_lossy(program)).file_name().is_some_and(|name| name == PROGRAM)
}

fn is_at(file: &File, path: &Path) -> bool {
    let of = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata(), std::fs::symlink_metadata(path)), (Ok(open), Ok(there)) if of(&open) == of(&there))
}

#[cfg(test)]
mod tests;
