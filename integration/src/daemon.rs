//! One long-running program of the lab: start, stop, kill, pause.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{command, eventually};

/// How long a daemon may take to start or to stop. Generous for a busy machine; a daemon that hangs
/// fails the test before the runner ends it.
const PATIENCE: Duration = Duration::from_secs(45);

/// A program that runs until it is told to end. It can be started again, with the same command
/// line.
pub struct Daemon {
    name: String,
    log: PathBuf,
    arguments: Mutex<Vec<String>>,
    environment: Mutex<Vec<(String, String)>>,
    /// Builds the command without its arguments, in the namespaces of its node.
    program: Box<dyn Fn() -> Result<Command> + Send + Sync>,
    started: Mutex<Option<Started>>,
}

/// The latest process.
#[derive(Debug)]
struct Started {
    child: Child,
    /// The lab told it to end, or has seen its end.
    end_is_known: bool,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Daemon")
            .field("name", &self.name)
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

impl Daemon {
    /// A daemon that is not running yet; its standard output and error go to `log`.
    pub fn new(
        name: impl Into<String>,
        log: PathBuf,
        program: impl Fn() -> Result<Command> + Send + Sync + 'static,
        arguments: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let arguments = Mutex::new(arguments.into_iter().map(Into::into).collect());
        Self {
            name: name.into(),
            log,
            arguments,
            environment: Mutex::default(),
            program: Box::new(program),
            started: Mutex::new(None),
        }
    }

    /// Name, as messages show it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// File with its standard output and error. Open vSwitch and OVN also write a log of their own
    /// beside it.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The arguments of the next start.
    pub fn arguments(&self) -> Vec<String> {
        lock(&self.arguments).clone()
    }

    /// Replaces the arguments, from the next start on.
    pub fn set_arguments(&self, arguments: impl IntoIterator<Item = impl Into<String>>) {
        *lock(&self.arguments) = arguments.into_iter().map(Into::into).collect();
    }

    /// Replaces the variables that are added to its environment, from the next start on.
    pub fn set_environment(&self, variables: Vec<(String, String)>) {
        *lock(&self.environment) = variables;
    }

    /// Starts it without waiting until it is ready.
    ///
    /// # Errors
    /// If it runs already, or cannot be started.
    pub fn spawn(&self) -> Result<()> {
        let mut started = lock(&self.started);
        if let Some(Started { child, .. }) = started.as_mut() {
            ensure!(child.try_wait()?.is_some(), "{} is running already", self.name);
        }
        let parent = self.log.parent().context("a log file has a directory")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        // Appended: the output of earlier processes stays for the reader of a failed test.
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("open {}", self.log.display()))?;
        let mut command = (self.program)()?;
        command.args(lock(&self.arguments).iter()).envs(lock(&self.environment).iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child =
            command.spawn().with_context(|| format!("start `{}`", command::line(&command)))?;
        *started = Some(Started { child, end_is_known: false });
        Ok(())
    }

    /// Starts it and waits until `ready` succeeds.
    ///
    /// # Errors
    /// If `ready` does not succeed within 45 s, or, at once, if the process ends instead; with the
    /// end of its log.
    pub fn start(&self, ready: impl FnMut() -> Result<()>) -> Result<()> {
        self.start_within(PATIENCE, ready)
    }

    /// The same with another time limit.
    pub fn start_within(
        &self,
        patience: Duration,
        mut ready: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.spawn()?;
        let ended =
            eventually(&format!("{} is ready", self.name), patience, || match self.end()? {
                Some(end) => Ok(Some(end)),
                None => ready().map(|()| None),
            });
        match ended {
            Ok(None) => Ok(()),
            Ok(Some(end)) => {
                bail!("{} ended instead of getting ready: {end}\n{}", self.name, self.log_end())
            }
            Err(error) => Err(error.context(self.log_end())),
        }
    }

    /// Process id, if it runs (or is paused).
    pub fn pid(&self) -> Option<u32> {
        let mut started = lock(&self.started);
        let Started { child, .. } = started.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then(|| child.id())
    }

    /// Process id.
    ///
    /// # Errors
    /// If it does not run.
    pub fn running_pid(&self) -> Result<u32> {
        self.pid().with_context(|| format!("{} is not running", self.name))
    }

    /// Whether it runs (or is paused).
    pub fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        self.wait()
    }

    /// Kills it without a chance to clean up (SIGKILL), and waits until it has ended.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.wait()
    }

    /// Pauses it (SIGSTOP): its sockets stay open, and it answers nothing from now on.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let pid = self.running_pid()?;
        eventually(&format!("{} is stopped", self.name), PATIENCE, || {
            testkit::process::is_stopped(pid).map_err(|running| anyhow!(running))
        })
    }

    /// Resumes it after a pause (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Sends any signal.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.running_pid()?;
        // Before the signal: from then on the end is no surprise.
        if let Some(started) = lock(&self.started).as_mut() {
            started.end_is_known |=
                matches!(signal, Signal::SIGTERM | Signal::SIGKILL | Signal::SIGINT);
        }
        kill(Pid::from_raw(pid.try_into()?), signal)
            .with_context(|| format!("{signal} to {}", self.name))
    }

    fn wait(&self) -> Result<()> {
        eventually(&format!("{} has ended", self.name), PATIENCE, || match self.end()? {
            Some(_) => Ok(()),
            None => Err(anyhow!("it is running")),
        })
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If it was never started.
    pub fn end(&self) -> Result<Option<std::process::ExitStatus>> {
        match lock(&self.started).as_mut() {
            Some(started) => {
                let end = started.child.try_wait()?;
                started.end_is_known |= end.is_some();
                Ok(end)
            }
            None => bail!("{} was not started", self.name),
        }
    }

    /// The last 15 lines of its output, for messages.
    fn log_end(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(15).collect();
        let tail: String = lines.into_iter().rev().map(|line| format!("  {line}\n")).collect();
        format!("end of {}:\n{tail}", self.log.display())
    }
}

/// Reports a process that ended by itself and whose end no test has looked at: the reader of a
/// failed test looks for the cause here first.
impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(Started { child, end_is_known: false }) = lock(&self.started).as_mut()
            && let Ok(Some(end)) = child.try_wait()
        {
            eprintln!("{} ended by itself: {end}\n{}", self.name, self.log_end());
        }
    }
}

/// Ignores poisoning: a panic in one test thread must not hide what the others find.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
