//! A process as Open vSwitch's daemons are (ovs-vswitchd(8)): in the background or not, with a
//! pidfile, a log with levels, and a control socket for ovs-appctl(8).
//!
//! ```text
//! command ─ --detach ─▶ [monitor, with --monitor] ─▶ worker
//!    ▲                                                 │ pidfile, control socket, log, then ready
//!    └────────────── one byte: the work has begun ─────┘
//! ```
//!
//! Each of the three is this executable with the same arguments; a variable says which it is. Knows
//! nothing of the work.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use ovslog::vlog::{self, BadSpec, Levels};

mod background;
mod control;
mod pidfile;

use self::{
    background::{Ready, Stage},
    control::Control,
    pidfile::DaemonPidfile,
};
use crate::chain;

/// The directory of logs of Open vSwitch's daemons.
const LOGS: &str = "/var/log/openvswitch";

/// The options of Open vSwitch's daemons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaemonOptions {
    pub detach: bool,
    /// The working directory stays.
    pub no_chdir: bool,
    pub monitor: bool,
    /// `--pidfile[=FILE]`, in the run directory unless it is a path.
    pub pidfile: Option<Option<PathBuf>>,
    pub overwrite_pidfile: bool,
    /// `--log-file[=FILE]`, in the directory of logs unless it is a path.
    pub log_file: Option<Option<PathBuf>>,
    /// `-v[SPEC]`, in this order.
    pub levels: Vec<String>,
}

/// Why a daemon did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("-v")]
    Levels(#[from] BadSpec),
    #[error("{path:?}: process {pid} is running already; --overwrite-pidfile starts another one")]
    Running { path: PathBuf, pid: String },
    #[error("{path:?}")]
    File { path: PathBuf, source: io::Error },
    #[error("start in the background")]
    Background(#[source] io::Error),
    #[error("the runtime of this program")]
    Runtime(#[source] io::Error),
    #[error("{0}")]
    Work(String),
}

/// What the work gets of its process.
#[derive(Debug)]
pub struct Started(Ready);

impl Started {
    /// The work has begun: the command that started a process in the background ends now.
    pub fn ready(&mut self) {
        self.0.tell();
    }
}

/// Runs `work` as a daemon of this name, until it ends, a signal comes, or `exit` over the control
/// socket. `modules`: what `vlog/list` shows. An error goes to standard error.
pub fn run<W: Future<Output = Result<(), String>>>(
    name: &str,
    modules: &[&str],
    options: &DaemonOptions,
    run_dir: &Path,
    work: impl FnOnce(Started) -> W,
) -> ExitCode {
    let done = match Stage::of_process(options) {
        Stage::Command => background::start(options),
        Stage::Monitor => background::monitor(options),
        Stage::Worker(ready) => {
            worker(name, modules, options, run_dir, ready, work).map(|()| ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        let text = chain(&error);
        tracing::error!(error = text, "ended");
        eprintln!("{name}: {text}");
        ExitCode::FAILURE
    })
}

fn worker<W: Future<Output = Result<(), String>>>(
    name: &str,
    modules: &[&str],
    options: &DaemonOptions,
    run_dir: &Path,
    ready: Ready,
    work: impl FnOnce(Started) -> W,
) -> Result<(), DaemonError> {
    let levels = Levels::new(modules);
    options.levels.iter().try_for_each(|spec| levels.set(spec))?;
    let log =
        options.log_file.as_ref().map(|file| in_directory(file.as_deref(), LOGS, name, "log"));
    let reopen = vlog::start(log.as_deref(), &levels);
    if options.detach {
        background::own_session();
    }
    if options.detach && !options.no_chdir {
        std::env::set_current_dir("/").map_err(DaemonError::Background)?;
    }
    let path =
        options.pidfile.as_ref().map(|file| in_directory(file.as_deref(), run_dir, name, "pid"));
    let pidfile =
        path.map(|path| DaemonPidfile::create(&path, options.overwrite_pidfile)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(DaemonError::Runtime)?.block_on(async {
        let control = Control::bind(run_dir, name, levels, reopen)?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
        let ended = tokio::select! {
            done = work(Started(ready)) => done.map_err(DaemonError::Work),
            why = control.serve() => {
                tracing::info!(why, "stopping");
                Ok(())
            }
        };
        drop(fs::remove_file(control.path()));
        ended
    });
    if let Some(pidfile) = pidfile {
        pidfile.remove();
    }
    outcome
}

/// A file that is given: as a path, or as a name in the directory; otherwise `NAME.ENDING` there.
fn in_directory(
    given: Option<&Path>,
    directory: impl AsRef<Path>,
    name: &str,
    ending: &str,
) -> PathBuf {
    let directory = directory.as_ref();
    // `join` takes an absolute path as it is.
    given.map_or_else(|| directory.join(format!("{name}.{ending}")), |file| directory.join(file))
}
