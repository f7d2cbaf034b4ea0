//! The log of a long-lived program. A background thread writes it, so that no request waits for a
//! disk.

use std::{
    fs,
    io::{IsTerminal, Write, stderr},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rotate::RotatedFile;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{Registry, layer::SubscriberExt};

use crate::{Level, ReopenFile, layer, log_panics};

mod rotate;

/// Where and how the program logs.
///
/// In the usual directory, Open vSwitch's logrotate stanza (`/var/log/openvswitch/*.log`, daily)
/// rotates the log, too. The two do not interfere: files renamed here do not end with `.log`, and
/// after a rename by logrotate the new log is small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub file: PathBuf,
    pub level: Level,
    pub rotation: Rotation,
}

/// When the program renames its own log, for machines without logrotate: `NAME` becomes
/// `NAME.TIME`. 0 disables each limit. If `max_size` is 0, no file is renamed or removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The maximum size of the log, in megabytes of 2^20 bytes.
    pub max_size: u64,
    /// The maximum number of renamed files.
    pub max_backups: usize,
    /// The maximum age of renamed files, in days.
    pub max_age: u64,
}

/// The number of lines that can wait for the disk; further lines are lost. Ten times fewer would
/// lose lines when many requests log while the disk is busy; ten times more would allocate that
/// many slots at start.
const WAITING_LINES: usize = 8192;

/// The running log. Dropping it writes the lines that wait.
#[derive(Debug)]
pub struct Log {
    _worker: WorkerGuard,
    reopen: Reopen,
    lost: LostLines,
    /// Whether the log also goes to standard error.
    pub on_stderr: bool,
    /// Whether standard error is the log's file (`--logfile /dev/stderr`).
    is_stderr: bool,
}

/// Lines that the log should have and has not. Also counts while the log goes to standard error,
/// too.
#[derive(Debug, Clone)]
pub struct LostLines {
    /// The file could not be written: a full disk, a missing directory.
    unwritten: Arc<AtomicU64>,
    /// More than [`WAITING_LINES`] waited for the disk.
    crowded_out: ErrorCounter,
}

impl LostLines {
    /// Their number since the start of the log.
    pub fn count(&self) -> u64 {
        let crowded_out = u64::try_from(self.crowded_out.dropped_lines()).unwrap_or(u64::MAX);
        self.unwritten.load(Ordering::Relaxed).saturating_add(crowded_out)
    }
}

/// A handle to reopen the log.
#[derive(Debug, Clone)]
pub struct Reopen(Arc<AtomicBool>);

impl Log {
    /// The handle to reopen the log, for the handler of SIGHUP.
    pub fn reopen(&self) -> Reopen {
        self.reopen.clone()
    }

    /// The lines that the log has lost, for a metric.
    pub fn lost(&self) -> LostLines {
        self.lost.clone()
    }

    /// Logs a line for each note about the options, and prints it on standard error, which is
    /// visible when the program is started by hand.
    pub fn tell_of_options(&self, notes: &[String]) {
        let is_shown =
            (self.on_stderr || self.is_stderr) && tracing::enabled!(tracing::Level::WARN);
        for note in notes {
            tracing::warn!(note, "options");
            if !is_shown {
                // Standard error may be closed, or a file on a full disk. Neither is a reason to
                // exit.
                let _ = writeln!(stderr(), "ovnkube: {note}");
            }
        }
    }
}

impl Reopen {
    /// The handle to what sets this flag.
    pub(crate) fn of(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Requests that the log is reopened: the next line goes to the file that has the log's path at
    /// that time.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts the log. Never fails: if the file cannot be opened, or if standard error is a terminal,
/// the log also goes to standard error.
pub fn start(config: &LogConfig) -> Log {
    let LogConfig { file, level, rotation } = config;
    let mut reopen = ReopenFile::new(file);
    let (asked, unwritten) = (Reopen(reopen.reopen_flag()), reopen.lost());
    // Before the writer moves to its thread, because the answer decides where else to log.
    let unwritable = reopen.check().err();
    let on_stderr = unwritable.is_some() || stderr().is_terminal();
    let (writer, worker) = NonBlockingBuilder::default()
        .buffered_lines_limit(WAITING_LINES)
        .finish(RotatedFile::new(reopen, file, *rotation));
    let lost = LostLines { unwritten, crowded_out: writer.error_counter() };
    let subscriber = Registry::default()
        .with(level.filter())
        .with(layer(writer))
        .with(on_stderr.then(|| layer(stderr)));
    // Fails if a subscriber is set already, such as a test's. That one gets the events then.
    let _ = tracing::subscriber::set_global_default(subscriber);
    log_panics();
    if let Some(error) = unwritable {
        tracing::warn!(
            %error,
            file = %file.display(),
            "the log file cannot be opened; retrying once a second"
        );
    }
    Log { _worker: worker, reopen: asked, lost, on_stderr, is_stderr: is_stderr(file) }
}

fn is_stderr(file: &Path) -> bool {
    let identity =
        |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    identity(file).is_some_and(|of_file| identity(Path::new("/dev/stderr")) == Some(of_file))
}
