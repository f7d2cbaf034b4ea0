//! A log that is renamed when it grows too large, for machines without logrotate.
//!
//! `ovnkube.log` becomes `ovnkube.log.2026-11-21T22-40-00.123` (UTC). Renamed files beyond a number
//! or an age are removed; files of other names are left alone. The name does not end with `.log`,
//! unlike upstream's `ovnkube-TIME.log`: a logrotate stanza for all logs of a directory, such as
//! Open vSwitch's, would take it for another log, and rotate it again and again.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use time::{
    OffsetDateTime, PrimitiveDateTime, format_description::BorrowedFormatItem,
    macros::format_description,
};

use super::Rotation;
use crate::ReopenFile;

const MEGABYTE: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause after a failed rename, in which the log grows beyond its limit. Ten times less would
/// retry more often while the directory is broken; ten times more would let the log grow longer
/// after it is repaired.
const RETRY: Duration = Duration::from_secs(60);
const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]-[minute]-[second].[subsecond digits:3]");

/// A writer of lines to a file, which is renamed before a line would make it too large.
#[derive(Debug)]
pub(super) struct RotatedFile {
    file: ReopenFile,
    path: PathBuf,
    limits: Limits,
    /// The size of the file in bytes; `None` if it has to be read from the file system.
    size: Option<u64>,
    /// When the size was last reset. Other programs may rename the file, too.
    looked: Instant,
    /// After a failed rename: the time of the next attempt.
    not_before: Option<Instant>,
}

/// The limits in bytes, files and time; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    size: Option<u64>,
    backups: Option<usize>,
    age: Option<Duration>,
}

impl From<Rotation> for Limits {
    fn from(Rotation { max_size, max_backups, max_age }: Rotation) -> Self {
        Self {
            size: Some(max_size.saturating_mul(MEGABYTE)).filter(|size| *size > 0),
            backups: Some(max_backups).filter(|backups| *backups > 0),
            age: u32::try_from(max_age)
                .ok()
                .filter(|days| *days > 0)
                .map(|days| DAY.saturating_mul(days)),
        }
    }
}

impl RotatedFile {
    /// A writer to the file at `path`. Removes renamed files beyond the limits at once.
    pub(super) fn new(file: ReopenFile, path: &Path, rotation: Rotation) -> Self {
        let limits = Limits::from(rotation);
        let rotated = Self {
            file,
            path: path.to_owned(),
            limits,
            size: None,
            looked: Instant::now(),
            not_before: None,
        };
        if limits.size.is_some() {
            rotated.prune(SystemTime::now());
        }
        rotated
    }

    fn make_room(&mut self, line: u64) {
        let Some(limit) = self.limits.size else { return };
        // As often as `ReopenFile` checks the path: after a rename by another program the log is
        // small again.
        if self.looked.elapsed() >= Duration::from_secs(1) {
            self.size = None;
            self.looked = Instant::now();
        }
        let size =
            self.size.unwrap_or_else(|| fs::metadata(&self.path).map_or(0, |file| file.len()));
        self.size = Some(size.saturating_add(line));
        // An empty file is never renamed, even for a line larger than the limit: it would only
        // leave empty files.
        let wait = self.not_before.is_some_and(|time| Instant::now() < time);
        if size == 0 || size.saturating_add(line) <= limit || wait {
            return;
        }
        match self.rotate(SystemTime::now()) {
            Ok(()) => self.size = Some(line),
            // Not logged: this is the log's own writer.
            Err(_) => self.not_before = Some(Instant::now() + RETRY),
        }
    }

    fn rotate(&self, now: SystemTime) -> io::Result<()> {
        // A FIFO, a terminal or a link cannot be kept as a backup.
        if !fs::symlink_metadata(&self.path)?.is_file() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let backup = self.backup(now).ok_or(io::ErrorKind::InvalidInput)?;
        // A second rename in the same millisecond would replace the first backup.
        if backup.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(&self.path, backup)?;
        // Without the flag, lines would go to the renamed file for up to a second.
        self.file.reopen_flag().store(true, std::sync::atomic::Ordering::Relaxed);
        self.prune(now);
        Ok(())
    }

    /// The name that the file gets if it is renamed at `now`.
    fn backup(&self, now: SystemTime) -> Option<PathBuf> {
        let time = OffsetDateTime::from(now).format(TIME).ok()?;
        Some(self.path.with_file_name(prefix(&self.path)? + &time))
    }

    /// Removes renamed files that are too old or too many. A file that cannot be removed is tried
    /// again at the next rename.
    fn prune(&self, now: SystemTime) {
        let Some(directory) = self.path.parent() else { return };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let regular = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let mut backups: Vec<(PrimitiveDateTime, PathBuf)> = regular
            .filter_map(|entry| Some((time_of(&entry.file_name(), &self.path)?, entry.path())))
            .collect();
        backups.sort();
        backups.reverse();
        let keep = self.limits.backups.unwrap_or(usize::MAX);
        let oldest = self
            .limits
            .age
            .and_then(|age| OffsetDateTime::from(now).checked_sub(age.try_into().ok()?));
        for (index, (time, path)) in backups.iter().enumerate() {
            if index >= keep || oldest.is_some_and(|oldest| time.assume_utc() < oldest) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The prefix of the names of renamed logs.
fn prefix(log: &Path) -> Option<String> {
    Some(format!("{}.", log.file_name()?.to_str()?))
}

/// The time in the name of a renamed log; `None` for other files.
fn time_of(name: &OsStr, log: &Path) -> Option<PrimitiveDateTime> {
    PrimitiveDateTime::parse(name.to_str()?.strip_prefix(&prefix(log)?)?, TIME).ok()
}

impl Write for RotatedFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.make_room(u64::try_from(line.len()).unwrap_or(u64::MAX));
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests;
