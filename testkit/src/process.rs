//! A child process that ends with the test.

use std::{
    fs,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{command, eventually};

/// Limit for a process to become ready or to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process that is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    line: String,
}

impl Process {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// The same for tests that return their failure.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let line = command::line(command);
        let child = command.spawn().with_context(|| format!("start `{line}`"))?;
        Ok(Self { child, line })
    }

    /// Starts a command whose standard input is a pipe.
    #[track_caller]
    pub fn start_with_stdin(command: &mut Command) -> (Self, ChildStdin) {
        let mut process = Self::start(command);
        let stdin = process.stdin();
        (process, stdin)
    }

    /// The other end of the process' standard input, once, if the command has a pipe there.
    #[track_caller]
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("the command has a pipe as its standard input")
    }

    /// The other end of its standard output.
    #[track_caller]
    pub fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("the command has a pipe as its standard output")
    }

    /// The other end of its standard error.
    #[track_caller]
    pub fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("the command has a pipe as its standard error")
    }

    /// The command line.
    pub fn line(&self) -> &str {
        &self.line
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `probe` succeeds; panics if the process ends instead.
    #[track_caller]
    pub fn ready<T>(&mut self, what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
        let line = &self.line;
        let child = &mut self.child;
        eventually(what, PATIENCE, || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("{what}: it ended instead, {status}: {line}");
            }
            probe()
        })
    }

    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        signal_to(self.pid(), signal);
    }

    /// Stops it (SIGSTOP), and waits until it does nothing any more.
    #[track_caller]
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        eventually("the process is stopped", PATIENCE, || is_stopped(self.pid()));
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        self.end_within(PATIENCE)
    }

    /// The same with another time limit.
    #[track_caller]
    pub fn end_within(&mut self, limit: Duration) -> ExitStatus {
        let (child, line) = (&mut self.child, &self.line);
        eventually(&format!("the end of {line}"), limit, || match child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err("it runs".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Sends SIGTERM and waits for the end of the process.
    #[track_caller]
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.end()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // These fail only for a process that has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a child that has not been waited for.
#[track_caller]
pub(crate) fn signal_to(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().expect("a process id is a positive number of 31 bits"));
    kill(pid, signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

/// Whether each thread of a process is stopped. One thread takes the signal and stops the others:
/// until it runs, which takes a while on a busy machine, they go on (signal(7), `do_signal_stop` of
/// the kernel).
///
/// # Errors
/// The threads that are not stopped, or that there is no such process.
pub fn is_stopped(pid: u32) -> Result<(), String> {
    let directory = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&directory).map_err(|error| format!("{directory}: {error}"))?;
    let is_running = |stat: &String| {
        // The state follows the name, which may contain anything but ends with the last
        // parenthesis.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['T', 'X', 'Z']))
    };
    let stats =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let running: Vec<String> = stats.filter(is_running).collect();
    if running.is_empty() { Ok(()) } else { Err(running.concat()) }
}
