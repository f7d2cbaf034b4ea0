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

/// How long a daemon may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program that runs until it is told to end; it may be started again, with the same command line.
pub struct Daemon {
    name: String,
    log: PathBuf,
    arguments: Mutex<Vec<String>>,
    environment: Mutex<Vec<(String, String)>>,
    /// Makes the command without its arguments, in the namespaces of its node.
    program: Box<dyn Fn() -> Result<Command> + Send + Sync>,
    child: Mutex<Option<Child>>,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Daemon").field("name", &self.name).field("pid", &self.pid()).finish_non_exhaustive()
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
        Self { name: name.into(), log, arguments, environment: Mutex::default(), program: Box::new(program), child: Mutex::new(None) }
    }

    /// Name, as in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// File with what it wrote to standard output and error. Open vSwitch and OVN also keep their own log beside it.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What it is started with.
    pub fn arguments(&self) -> Vec<String> {
        lock(&self.arguments).clone()
    }

    /// Replaces the arguments; counts from the next start.
    pub fn set_arguments(&self, arguments: impl IntoIterator<Item = impl Into<String>>) {
        *lock(&self.arguments) = arguments.into_iter().map(Into::into).collect();
    }

    /// Replaces what is added to its environment; counts from the next start.
    pub fn set_environment(&self, variables: Vec<(String, String)>) {
        *lock(&self.environment) = variables;
    }

    /// Starts it, and does not wait until it is ready.
    pub fn spawn(&self) -> Result<()> {
        let mut child = lock(&self.child);
        if let Some(running) = child.as_mut() {
            ensure!(running.try_wait()?.is_some(), "{} is running already", self.name);
        }
        let parent = self.log.parent().context("a log file has a directory")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        let log = File::options().create(true).append(true).open(&self.log).with_context(|| format!("open {}", self.log.display()))?;
        let mut command = (self.program)()?;
        command.args(lock(&self.arguments).iter()).envs(lock(&self.environment).iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *child = Some(command.spawn().with_context(|| format!("start `{}`", command::line(&command)))?);
        Ok(())
    }

    /// Starts it and waits until `ready` succeeds; fails at once when it ends instead.
    pub fn start(&self, ready: impl FnMut() -> Result<()>) -> Result<()> {
        self.start_within(PATIENCE, ready)
    }

    /// The same for a program that may take longer.
    pub fn start_within(&self, patience: Duration, mut ready: impl FnMut() -> Result<()>) -> Result<()> {
        self.spawn()?;
        let ended = eventually(&format!("{} is ready", self.name), patience, || match self.end()? {
            Some(end) => Ok(Some(end)),
            None => ready().map(|()| None),
        });
        match ended {
            Ok(None) => Ok(()),
            Ok(Some(end)) => bail!("{} ended instead of getting ready: {end}\n{}", self.name, self.log_end()),
            Err(error) => Err(error.context(self.log_end())),
        }
    }

    /// Process id, if it was started and has not ended.
    pub fn pid(&self) -> Option<u32> {
        let mut child = lock(&self.child);
        let running = child.as_mut()?;
        matches!(running.try_wait(), Ok(None)).then(|| running.id())
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

    /// Ends it without giving it a chance (SIGKILL).
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.wait()
    }

    /// Stops it in its tracks (SIGSTOP); it keeps its sockets and answers nothing.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets a paused one go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Sends any signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} is not running", self.name))?;
        kill(Pid::from_raw(pid.try_into()?), signal).with_context(|| format!("{signal} to {}", self.name))
    }

    fn wait(&self) -> Result<()> {
        eventually(&format!("{} has ended", self.name), PATIENCE, || match self.end()? {
            Some(_) => Ok(()),
            None => Err(anyhow!("it is running")),
        })
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Result<Option<std::process::ExitStatus>> {
        match lock(&self.child).as_mut() {
            Some(child) => Ok(child.try_wait()?),
            None => bail!("{} was not started", self.name),
        }
    }

    /// The last lines it wrote, for messages.
    fn log_end(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(15).collect();
        let tail: String = lines.into_iter().rev().map(|line| format!("  {line}\n")).collect();
        format!("end of {}:\n{tail}", self.log.display())
    }
}

/// A panic in one test thread must not hide what the others find.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
