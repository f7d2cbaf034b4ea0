//! The pidfile of a daemon, locked as Open vSwitch locks it: ovs-appctl(8) takes a file without
//! such a lock for that of a process that has ended.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    libc,
};

use super::DaemonError;

/// A pidfile, until [`remove`](Self::remove).
#[derive(Debug)]
pub(super) struct DaemonPidfile {
    path: PathBuf,
    /// Its lock ends with any descriptor of the file that this process closes.
    _locked: File,
}

impl DaemonPidfile {
    /// Writes the file, unless a process that lives holds it. `overwrites`: even then.
    pub(super) fn create(path: &Path, overwrites: bool) -> Result<Self, DaemonError> {
        let failed = |source| DaemonError::File { path: path.to_owned(), source };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        if overwrites {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        // O_NOFOLLOW: a link in a directory of other users must not lead this process to another
        // file.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(path)
            .map_err(failed)?;
        let mut lock = libc::flock {
            l_type: i16::try_from(libc::F_WRLCK).unwrap_or_default(),
            l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        if fcntl(&file, FcntlArg::F_SETLK(&lock)).is_err() {
            // Who holds it; a text in the file may be anything.
            let asked = fcntl(&file, FcntlArg::F_GETLK(&mut lock));
            let mut text = String::new();
            let _ = (&mut file).take(16).read_to_string(&mut text);
            let pid = if asked.is_ok() { lock.l_pid.to_string() } else { text.trim().to_owned() };
            return Err(DaemonError::Running { path: path.to_owned(), pid });
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(failed)?;
        Ok(Self { path: path.to_owned(), _locked: file })
    }

    /// Removes the file.
    pub(super) fn remove(self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the pidfile stays");
        }
    }
}
