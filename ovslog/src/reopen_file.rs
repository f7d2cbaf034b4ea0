//! A log file that may be renamed, removed, on a full disk, or in a missing directory. Does not
//! know the layout of lines.

use std::{
    fs::{DirBuilder, File, Metadata, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{fcntl::OFlag, unistd::geteuid};

/// How often the path is checked, while lines are written. A rename by logrotate is noticed this
/// late, and a file that cannot be opened is tried this often. Ten times less would cost more
/// system calls when many lines are written; ten times more would put more lines into the renamed
/// file, which logrotate may be compressing.
const RECHECK: Duration = Duration::from_secs(1);

/// The mode bits of a directory in which its group or all users can create files.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Appends to the file that has the path at that time. Errors do not reach the caller; lines that
/// cannot be written are counted.
///
/// Each call of `write` is one line and one system call. With `O_APPEND` the kernel does not mix
/// lines of several processes.
#[derive(Debug)]
pub struct ReopenFile {
    path: PathBuf,
    recheck: Duration,
    open: Option<OpenFile>,
    checked: Option<Instant>,
    /// Whether only a part of the last line was written (full disk).
    torn: bool,
    lost: Arc<AtomicU64>,
    /// Set to check the path before the next line, and not only after [`RECHECK`].
    asked: Arc<AtomicBool>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    device_and_inode: (u64, u64),
}

impl ReopenFile {
    /// A writer to the file at `path`, which is opened when the first line is written.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            recheck: RECHECK,
            open: None,
            checked: None,
            torn: false,
            lost: Arc::default(),
            asked: Arc::default(),
        }
    }

    /// As [`new`](Self::new), but the path is checked before every line.
    #[cfg(test)]
    pub(super) fn always_checking(path: impl Into<PathBuf>) -> Self {
        Self { recheck: Duration::ZERO, ..Self::new(path) }
    }

    /// The counter of lines that could not be written.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    /// The flag that, once set, makes the next line go to the file that has the path at that time.
    pub fn reopen_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Opens the file, unless that was tried within the last second.
    ///
    /// # Errors
    /// The file or its directory cannot be created or opened, or the file is not safe to write to.
    pub fn check(&mut self) -> io::Result<()> {
        self.refresh()
    }

    /// Opens the file, unless the open file still has the path.
    fn refresh(&mut self) -> io::Result<()> {
        let asked = self.asked.swap(false, Ordering::Relaxed);
        if !asked && self.checked.is_some_and(|checked| checked.elapsed() < self.recheck) {
            return Ok(());
        }
        self.checked = Some(Instant::now());
        let there = std::fs::metadata(&self.path).ok().map(|there| device_and_inode(&there));
        if there.is_some() && there == self.open.as_ref().map(|open| open.device_and_inode) {
            return Ok(());
        }
        match self.reopen() {
            Ok(open) => {
                self.open = Some(open);
                self.torn = false;
                Ok(())
            }
            // The renamed file is better than none: keep writing to it.
            Err(_) if self.open.is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn reopen(&self) -> io::Result<OpenFile> {
        let directory = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let owner = match std::fs::metadata(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
                std::fs::metadata(directory)
            }
            found => found,
        }?;
        // Only this user can have put the file there, so even a link is intended.
        let trusted = owner.uid() == geteuid().as_raw() && owner.mode() & WRITABLE_BY_OTHERS == 0;
        // Non-blocking: opening or writing a FIFO without a reader would block for ever.
        let mut flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        flags.set(OFlag::O_NOFOLLOW, !trusted);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .custom_flags(flags.bits())
            .open(&self.path)?;
        let metadata = file.metadata()?;
        if !trusted && !is_safe(&metadata, &owner) {
            let reason = format!(
                "{} may be another file of this user, linked there by another user",
                self.path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        Ok(OpenFile { device_and_inode: device_and_inode(&metadata), file })
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.refresh()?;
        let file = &mut self.open.as_mut().ok_or(io::ErrorKind::NotFound)?.file;
        // End the torn line first, still in one system call.
        let (wanted, written) = if self.torn {
            let repaired = [b"\n", line].concat();
            (repaired.len(), file.write(&repaired)?)
        } else {
            (line.len(), file.write(line)?)
        };
        self.torn = written < wanted;
        if self.torn { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }
}

/// Whether it is safe to write to a file in a directory in which other users can create files: it
/// belongs to this user or to the directory's owner, and has no other hard link. Such a directory
/// is `/var/log/openvswitch` if Open vSwitch runs as its own user.
fn is_safe(file: &Metadata, directory: &Metadata) -> bool {
    file.is_file()
        && file.nlink() == 1
        && (file.uid() == geteuid().as_raw() || file.uid() == directory.uid())
}

/// Never fails, because the caller could not log the error.
impl Write for ReopenFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.write_line(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn device_and_inode(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
