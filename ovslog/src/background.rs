//! The log of a program that lives long, written by a thread of its own so that no request waits for a disk.

use std::{
    fs,
    io::{IsTerminal, Write, stderr},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rotate::RotatedFile;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{Registry, layer::SubscriberExt};

use crate::{Level, ReopenFile, layer, log_panics};

mod rotate;

/// The server's log.
///
/// In its usual directory Open vSwitch's logrotate stanza (`/var/log/openvswitch/*.log`, daily) takes the log away, too. The two do not
/// disturb each other: what is renamed here ends with no `.log`, and a log that somebody else renamed is a small one here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub file: PathBuf,
    pub level: Level,
    pub rotation: Rotation,
}

/// When the server itself renames its log, for machines without logrotate: `NAME` becomes `NAME.TIME`. 0: never, for no reason of
/// that kind; without a size nothing is renamed or removed at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Megabytes that a file may have.
    pub max_size: u64,
    /// Renamed files that are kept.
    pub max_backups: usize,
    /// Days that they are kept.
    pub max_age: u64,
}

/// Lines that may wait for the disk; more are lost. The memory for them is taken at the start.
const WAITING_LINES: usize = 8192;

/// Keeps the log going; what is not written yet is written when it is dropped.
#[derive(Debug)]
pub struct Log {
    _worker: WorkerGuard,
    reopen: Reopen,
    /// Whether standard error shows the log, too.
    pub on_stderr: bool,
    /// Whether standard error is the log's file (`--logfile /dev/stderr`).
    is_stderr: bool,
}

/// A way to ask for the log to be opened anew.
#[derive(Debug, Clone)]
pub struct Reopen(Arc<AtomicBool>);

impl Log {
    pub fn reopen(&self) -> Reopen {
        self.reopen.clone()
    }

    /// What is to be said of the options: a line each in the log, and on standard error, where whoever starts the server looks.
    pub fn tell_of_options(&self, notes: &[String]) {
        let is_shown = (self.on_stderr || self.is_stderr) && tracing::enabled!(tracing::Level::WARN);
        for note in notes {
            tracing::warn!(note, "options");
            if !is_shown {
                // It may be closed, or a full disk: no reason to end.
                let _ = writeln!(stderr(), "ovnkube: {note}");
            }
        }
    }
}

impl Reopen {
    /// The next line goes to whatever file has the log's path then.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts the log in `file`. Never fails: where the file cannot be written (and for a person at a terminal) the log goes to
/// standard error as well.
pub fn start(config: &LogConfig) -> Log {
    let LogConfig { file, level, rotation } = config;
    let mut reopen = ReopenFile::new(file);
    let asked = Reopen(reopen.reopen_flag());
    let unwritable = reopen.check().err();
    let on_stderr = unwritable.is_some() || stderr().is_terminal();
    let (writer, worker) =
        NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES).finish(RotatedFile::new(reopen, file, *rotation));
    let subscriber = Registry::default().with(level.filter()).with(layer(writer)).with(on_stderr.then(|| layer(stderr)));
    // Somebody's subscriber may be there already (a test's): then it gets the events.
    let _ = tracing::subscriber::set_global_default(subscriber);
    log_panics();
    if let Some(error) = unwritable {
        tracing::warn!(%error, file = %file.display(), "the log file cannot be written now; it is tried again with every line");
    }
    Log { _worker: worker, reopen: asked, on_stderr, is_stderr: is_stderr(file) }
}

fn is_stderr(file: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    identity(file).is_some_and(|of_file| identity(Path::new("/dev/stderr")) == Some(of_file))
}
