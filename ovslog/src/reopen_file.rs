//! A log file that others may rename, remove, fill up or never have created. Knows nothing of lines' layout.

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

/// How often the path is looked at: logrotate's rename is noticed this late, and a missing directory is tried this often.
const RECHECK: Duration = Duration::from_secs(1);

/// Of a directory: its group or everybody may put files there.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Appends to whatever file has a path at the time. Nothing that goes wrong reaches the caller; lines that could not be written are
/// counted.
///
/// Every call of `write` is one line and one system call, which the kernel does not mix with those of other processes (`O_APPEND`).
#[derive(Debug)]
pub struct ReopenFile {
    path: PathBuf,
    recheck: Duration,
    open: Option<OpenFile>,
    checked: Option<Instant>,
    /// The disk took only a part of the line before.
    torn: bool,
    lost: Arc<AtomicU64>,
    /// Somebody wants the path to be looked at before the next line, and the file to be opened anew.
    asked: Arc<AtomicBool>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    device_and_inode: (u64, u64),
}

impl ReopenFile {
    /// Of the file at `path`, opened with the first line.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), recheck: RECHECK, open: None, checked: None, torn: false, lost: Arc::default(), asked: Arc::default() }
    }

    /// The same, but the path is looked at before every line.
    #[cfg(test)]
    pub(super) fn always_checking(path: impl Into<PathBuf>) -> Self {
        Self { recheck: Duration::ZERO, ..Self::new(path) }
    }

    /// The number of lines that could not be written, as it grows.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    /// Set, it makes the next line go to whatever file has the path then.
    pub fn reopen_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Whether the file can be opened now.
    pub fn check(&mut self) -> io::Result<()> {
        self.refresh()
    }

    /// Opens the file unless the one that is open still has the path.
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
            // A renamed file is better than none.
            Err(_) if self.open.is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn reopen(&self) -> io::Result<OpenFile> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let owner = match std::fs::metadata(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
                std::fs::metadata(directory)
            }
            found => found,
        }?;
        // What only this user can have put there is wanted, links too.
        let trusted = owner.uid() == geteuid().as_raw() && owner.mode() & WRITABLE_BY_OTHERS == 0;
        // Not blocking, in case that the path is a FIFO which nobody reads.
        let mut flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        flags.set(OFlag::O_NOFOLLOW, !trusted);
        let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags.bits()).open(&self.path)?;
        let metadata = file.metadata()?;
        if !trusted && !is_safe(&metadata, &owner) {
            let reason = format!("{} may be another file of this user's, put there by somebody else", self.path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        Ok(OpenFile { device_and_inode: device_and_inode(&metadata), file })
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.refresh()?;
        let file = &mut self.open.as_mut().ok_or(io::ErrorKind::NotFound)?.file;
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

/// Whether a file in a directory where others may put files can be written to without harm: it is of this user or of the directory's owner,
/// and has no name elsewhere. Such a directory is `/var/log/openvswitch` where Open vSwitch runs as a user of its own.
fn is_safe(file: &Metadata, directory: &Metadata) -> bool {
    file.is_file() && file.nlink() == 1 && (file.uid() == geteuid().as_raw() || file.uid() == directory.uid())
}

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
