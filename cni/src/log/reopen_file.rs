//! A log file that others may rename, remove, fill up or never have created. Knows nothing of lines' layout.

use std::{
    fs::{DirBuilder, File, Metadata, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nix::fcntl::OFlag;

/// How often the path is looked at: logrotate's rename is noticed this late, and a missing directory is tried this often.
const RECHECK: Duration = Duration::from_secs(1);

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
        // Not blocking, in case that the path is a FIFO which nobody reads.
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let open = || OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(&self.path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.path.parent().ok_or(error)?;
                DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
                open()?
            }
            opened => opened?,
        };
        let device_and_inode = device_and_inode(&file.metadata()?);
        Ok(OpenFile { file, device_and_inode })
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
