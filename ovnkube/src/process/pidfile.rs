//! The file with the process id of the server.
//!
//! A lock on the file shows whether the process lives: the kernel releases it when the process
//! ends. The number alone does not: another process may get it, and each container counts its own.
//! Programs that take no lock (upstream's) are found by name.

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

/// The name of every such server, upstream's, too.
const PROGRAM: &str = "ovnkube";

/// A file that names this process, until [`remove`](Self::remove).
#[derive(Debug)]
pub(crate) struct Pidfile {
    path: PathBuf,
    file: Flock<File>,
}

/// Why the pidfile could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PidfileError {
    #[error(
        "{path:?} names process {pid}, which is a running {PROGRAM}: stop it first, or choose another file \
         with --pidfile"
    )]
    Running { path: PathBuf, pid: String },
    #[error("pidfile {path:?}")]
    Io { path: PathBuf, source: io::Error },
}

impl Pidfile {
    /// Writes the file and keeps it locked, unless the process that it names is a running server.
    pub(crate) fn create(path: &Path) -> Result<Self, PidfileError> {
        let failed = |source| PidfileError::Io { path: path.to_owned(), source };
        let running = |pid: &str| PidfileError::Running {
            path: path.to_owned(),
            pid: if pid.is_empty() { "?" } else { pid }.to_owned(),
        };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        loop {
            // O_NOFOLLOW: a link in a directory of other users must not lead this process to
            // another file.
            let mut open = OpenOptions::new();
            open.read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                .custom_flags(OFlag::O_NOFOLLOW.bits());
            let file = open.open(path).map_err(failed)?;
            let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((file, Errno::EWOULDBLOCK)) => {
                    return Err(running(&pid_in(&file).map_err(failed)?));
                }
                Err((_, errno)) => return Err(failed(errno.into())),
            };
            // The former server removes its file before it releases the lock: this may be the lock
            // of a removed file.
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
                // A half-written number would name another process.
                let _ = std::fs::remove_file(path);
                return Err(failed(error));
            }
            return Ok(Self { path: path.to_owned(), file });
        }
    }

    /// Removes the file, if it is still that of this process.
    pub(crate) fn remove(self) {
        if is_at(&self.file, &self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the pidfile stays");
        }
    }
}

/// Whether a running server holds the lock on this file.
pub(crate) fn is_held(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
    else {
        return false;
    };
    // A shared lock: two such questions at once do not take each other for a server.
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
}

/// The number in the file, or an empty text if there is none. Reads 16 bytes, more than the longest
/// process id.
fn pid_in(file: &File) -> io::Result<String> {
    let mut text = [0; 16];
    let length = file.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..length]).trim().to_owned();
    Ok(if text.bytes().all(|byte| byte.is_ascii_digit()) { text } else { String::new() })
}

/// Whether that process is another server, one that took no lock. This process' own number does not
/// count: in a container that restarts, a process often gets the number that it had before.
fn is_other_server(pid: &str) -> bool {
    if pid.is_empty() || pid == std::process::id().to_string() {
        return false;
    }
    let mut command = Vec::new();
    let read = File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|file| file.take(4096).read_to_end(&mut command));
    let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
    read.is_ok()
        && Path::new(&*String::from_utf8_lossy(program))
            .file_name()
            .is_some_and(|name| name == PROGRAM)
}

/// Whether the open file is the one that the path names now.
fn is_at(file: &File, path: &Path) -> bool {
    let of = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, there) = (file.metadata(), std::fs::symlink_metadata(path));
    open.is_ok_and(|open| there.is_ok_and(|there| of(&open) == of(&there)))
}

#[cfg(test)]
mod tests;
