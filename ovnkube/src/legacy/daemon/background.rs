//! Processes in the background: the command waits until the work has begun; a monitor starts it
//! again after a crash.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read, Write, stdout},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitCode, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    libc,
    unistd::{dup2_stderr, dup2_stdout, setsid},
};

use super::{DaemonError, DaemonOptions};

/// Says which of the processes this one is. Its value is one of the two below.
const STAGE: &str = "OVN_DAEMON_STAGE";
const MONITOR: &str = "monitor";
const WORKER: &str = "worker";
/// What the worker writes to the command's pipe.
const BEGUN: &[u8] = b"1";
/// A worker that crashes again sooner than this is waited for: Open vSwitch's interval.
const BETWEEN_CRASHES: Duration = Duration::from_secs(10);
/// The signals of a crash, as Open vSwitch's monitor has them.
const CRASHES: [i32; 9] = [
    libc::SIGABRT,
    libc::SIGALRM,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGPIPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Which of the processes this one is.
pub(super) enum Stage {
    /// Typed by an administrator; the work is another process'.
    Command,
    Monitor,
    Worker(Ready),
}

/// How the worker says that the work has begun.
#[derive(Debug)]
pub(super) enum Ready {
    /// Nobody waits: the process is in the foreground.
    Foreground,
    /// Standard output is the pipe of the command.
    Pipe,
    Told,
}

impl Stage {
    pub(super) fn of_process(options: &DaemonOptions) -> Self {
        match env::var(STAGE).as_deref() {
            Ok(MONITOR) => Self::Monitor,
            Ok(WORKER) if options.detach => Self::Worker(Ready::Pipe),
            Ok(WORKER) => Self::Worker(Ready::Foreground),
            _ if options.detach => Self::Command,
            _ if options.monitor => Self::Monitor,
            _ => Self::Worker(Ready::Foreground),
        }
    }
}

impl Ready {
    /// Tells it once. A process in the background has no terminal from here on.
    pub(super) fn tell(&mut self) {
        if matches!(self, Self::Pipe) {
            // The command may have been interrupted: then nobody reads.
            drop(stdout().write_all(BEGUN).and_then(|()| stdout().flush()));
            drop(leave_terminal());
            *self = Self::Told;
        }
    }
}

/// Starts the next process, and waits until its work has begun.
pub(super) fn start(options: &DaemonOptions) -> Result<ExitCode, DaemonError> {
    let stage = if options.monitor { MONITOR } else { WORKER };
    let mut child = again(stage, Stdio::piped()).map_err(DaemonError::Background)?;
    let mut begun = [0; 1];
    let read = child.stdout.take().map(|mut pipe| pipe.read_exact(&mut begun));
    if matches!(read, Some(Ok(()))) && begun == BEGUN {
        return Ok(ExitCode::SUCCESS);
    }
    // It has said why on standard error.
    let status = child.wait().map_err(DaemonError::Background)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts the worker, and again whenever it crashes. Ends when the worker ends by itself.
pub(super) fn monitor(options: &DaemonOptions) -> Result<ExitCode, DaemonError> {
    if options.detach {
        own_session();
    }
    let mut is_first = true;
    loop {
        let started = Instant::now();
        // Only the first one has a command that waits.
        let out = if is_first { Stdio::inherit() } else { Stdio::null() };
        let mut worker = again(WORKER, out).map_err(DaemonError::Background)?;
        if is_first && options.detach {
            // The pipe ends with the worker alone, and the command does not wait for ever.
            leave_terminal().map_err(DaemonError::Background)?;
        }
        is_first = false;
        let status = worker.wait().map_err(DaemonError::Background)?;
        match status.signal() {
            Some(signal) if CRASHES.contains(&signal) => {
                tracing::error!(pid = worker.id(), signal, "crashed; started again");
                pause(BETWEEN_CRASHES.saturating_sub(started.elapsed()));
            }
            _ if status.success() => return Ok(ExitCode::SUCCESS),
            _ => return Ok(ExitCode::FAILURE),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the monitor has one thread and nothing else to do")]
fn pause(time: Duration) {
    sleep(time);
}

/// This executable once more, under the same name and with the same arguments.
fn again(stage: &str, out: Stdio) -> io::Result<Child> {
    let mut arguments = env::args_os();
    let name: OsString = arguments.next().unwrap_or_default();
    Command::new(env::current_exe()?)
        .arg0(name)
        .args(arguments)
        .env(STAGE, stage)
        .stdin(Stdio::null())
        .stdout(out)
        .spawn()
}

/// Leaves the terminal's session. Fails only in a process that leads one already.
pub(super) fn own_session() {
    let _ = setsid();
}

/// Standard output and standard error lead nowhere from here on.
fn leave_terminal() -> io::Result<()> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    dup2_stdout(&nowhere)?;
    dup2_stderr(&nowhere)?;
    Ok(())
}
