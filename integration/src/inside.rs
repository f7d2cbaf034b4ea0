//! Runs a test, or the command, again in namespaces of its own.
//!
//! The outer process starts its own executable under `unshare` and waits. The inner one is process
//! 1 of its PID namespace, so the kernel kills everything that it started, however it ends. It ends
//! when the outer process does: it reads a FIFO that the outer process holds open.

use std::{
    any::type_name,
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::{
        signal::{SigSet, Signal},
        signalfd::SignalFd,
        stat::Mode,
    },
    unistd::mkfifo,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::retry_on_intr,
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{Versions, cgroups, command, executable, mounts, prerequisites};

/// Environment variable that marks the inner process; its value is the directory of the logs on the
/// host.
const INSIDE: &str = "OVN_LAB_INSIDE";
/// FIFO in that directory, open for writing in the outer process as long as it lives.
const ALIVE: &str = "alive";
/// File in that directory: the body ran to its end. Without it, a filter that matches no test would
/// pass.
const PASSED: &str = "passed";
/// File in that directory: why the body failed. The outer process says it last, where whoever keeps
/// a part of the output keeps it.
const REASON: &str = "reason";
/// Of the reason, what the outer process says: its end, in bytes, has the first cause.
const REASON_TAIL: usize = 3000;
/// Environment variable with the name of a control group, unique on this machine. The kernel has no
/// namespace that ends control groups, so everything below it is removed at the end.
const CGROUP: &str = "OVN_LAB_CGROUP";

/// Runs `body` in private namespaces; call it from a test, with the closure written in that test.
///
/// The inner process finds the test by the name in the closure's type,
/// `crate::module::test::{{closure}}`.
///
/// # Panics
/// If the body fails, which fails the test, or if something that the lab needs is missing.
#[track_caller]
pub fn inside<F: FnOnce() -> Result<()>>(body: F) {
    in_namespaces(test_path::<F>(), body);
}

/// Path of the test in which the closure of type `F` is written: `crate::module::test`.
pub(crate) fn test_path<F>() -> &'static str {
    type_name::<F>().split("::{{closure}}").next().unwrap_or_default()
}

/// The same for a test with a known path.
#[track_caller]
pub(crate) fn in_namespaces(test: &str, body: impl FnOnce() -> Result<()>) {
    let logs = env::var_os(INSIDE);
    let result = match &logs {
        Some(logs) => enter(Path::new(logs))
            .and_then(|()| body())
            .and_then(|()| Ok(fs::write(Path::new(mounts::LOGS).join(PASSED), "")?)),
        None => run_test(test),
    };
    if let Err(error) = result {
        // Not `{error:?}`: with RUST_BACKTRACE it buries the reason under the frames of the test
        // harness.
        let reason = error.chain().map(ToString::to_string).collect::<Vec<_>>();
        let reason = reason.join("\n  because: ");
        if logs.is_some() {
            let _ = fs::write(Path::new(mounts::LOGS).join(REASON), &reason);
        }
        panic!("{reason}");
    }
}

/// Whether this is the inner process.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Control group under which this lab creates its own; it does not exist until `cgroups::create` is
/// called.
pub(crate) fn cgroup() -> Result<String> {
    env::var(CGROUP).context("not inside the lab's namespaces")
}

/// For the command: runs this executable again in namespaces, with `arguments` and the terminal of
/// the caller. SIGINT, SIGTERM and SIGHUP do not end this process: they end the inner process and
/// everything it started. Returns the signal, too.
pub fn run_again(
    name: &str,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(ExitStatus, Option<Signal>)> {
    let signals = ending_signals();
    // Only the descriptor takes them.
    signals.thread_block()?;
    let signals = SignalFd::new(&signals).context("signals as a descriptor")?;
    let mut outside = Outside::prepare(name)?;
    let mut inner = outside.command()?.args(arguments).spawn().context("start unshare")?;
    let end = pidfd_open(Pid::from_child(&inner), PidfdFlags::empty())
        .context("wait for the inner process")?;
    let mut events = [PollFd::new(&signals, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
    retry_on_intr(|| poll(&mut events, None))?;
    let caught = if events[0].revents().is_empty() { None } else { signals.read_signal()? };
    let signal =
        caught.map(|caught| Signal::try_from(caught.ssi_signo.cast_signed())).transpose()?;
    if signal.is_some() {
        // Closes the FIFO, which ends the inner process.
        outside.alive = None;
    }
    let status = inner.wait().context("wait for the inner process")?;
    outside.finish(status.success() || signal.is_some());
    Ok((status, signal))
}

/// The signals of Ctrl-C, of `kill` and of a closed terminal.
fn ending_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// For the command: the inner side of [`run_again`], to be called first.
pub fn enter_again() -> Result<()> {
    // An outer process that waits for the signals has blocked them, and children inherit that: what
    // the lab starts has to end on SIGTERM.
    ending_signals().thread_unblock()?;
    enter(Path::new(&env::var_os(INSIDE).context("not inside the lab's namespaces")?))
}

fn run_test(path: &str) -> Result<()> {
    let outside = Outside::prepare(path)?;
    // `--exact` wants the path without the crate.
    let test = path.split_once("::").map_or(path, |(_crate, test)| test);
    // One pipe keeps the order of both streams. `println!` passes them on, so that the test harness
    // shows them with a failed test only.
    let (reader, writer) = io::pipe()?;
    let mut command = outside.command()?;
    command.args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command.stdin(std::process::Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child =
        command.spawn().with_context(|| format!("start `{}`", command::line(&command)))?;
    // Closes this process' ends for writing; otherwise the reader would never see the end.
    drop(command);
    pass_on(reader);
    let status = child.wait()?;
    let ran = outside.logs.join(PASSED).exists();
    let logs = outside.logs.clone();
    let reason = fs::read(logs.join(REASON)).unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason[reason.len().saturating_sub(REASON_TAIL)..]);
    outside.finish(status.success() && ran);
    ensure!(
        status.success(),
        "{test}: {status} inside the lab (see above), with {}; logs: {}\n  because: {reason}",
        versions(),
        logs.display()
    );
    ensure!(
        ran,
        "there is no test `{test}`: write the closure in the test itself, because its type names the test"
    );
    Ok(())
}

/// For the message of a failure, which an error here must not hide.
fn versions() -> String {
    Versions::installed().map_or_else(
        |error| format!("an unknown Open vSwitch and OVN ({error:#})"),
        |versions| versions.to_string(),
    )
}

#[expect(clippy::print_stdout, reason = "what a test prints belongs to the harness")]
fn pass_on(reader: impl io::Read) {
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        println!("{}", String::from_utf8_lossy(&line));
    }
}

/// What the outer process holds while the inner one runs.
struct Outside {
    logs: PathBuf,
    cgroup: String,
    alive: Option<File>,
}

impl Outside {
    fn prepare(name: &str) -> Result<Self> {
        prerequisites::verify()?;
        let mut logs = executable::target_dir()?.join("lab-logs").join(name.replace("::", "."));
        if is_used(&logs)? {
            logs.as_mut_os_string().push(format!("-{}", std::process::id()));
        }
        if logs.exists() {
            fs::remove_dir_all(&logs).with_context(|| format!("remove {}", logs.display()))?;
        }
        fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
        let alive = logs.join(ALIVE);
        mkfifo(&alive, Mode::S_IRUSR | Mode::S_IWUSR)
            .with_context(|| format!("create {}", alive.display()))?;
        // For reading, too: an open for writing alone waits for a reader (fifo(7)).
        let alive = OpenOptions::new().read(true).write(true).open(&alive)?;
        alive.lock().context("lock the FIFO")?;
        Ok(Self { logs, cgroup: format!("ovn-lab-{}", std::process::id()), alive: Some(alive) })
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
            "--",
        ]);
        command
            .arg(env::current_exe()?)
            .env(INSIDE, &self.logs)
            .env(CGROUP, &self.cgroup)
            .env("PATH", prerequisites::search_path());
        Ok(command)
    }

    /// Removes the FIFO and the control groups, and the logs unless something failed.
    fn finish(self, passed: bool) {
        let _ = fs::remove_file(self.logs.join(ALIVE));
        if let Err(error) = cgroups::remove(&self.cgroup) {
            eprintln!("control groups are left: {error:#}");
        }
        if passed {
            let _ = fs::remove_dir_all(&self.logs);
        }
    }
}

/// Whether the same test runs in this checkout already: its outer process holds a lock of its FIFO.
fn is_used(logs: &Path) -> Result<bool> {
    match OpenOptions::new().read(true).write(true).open(logs.join(ALIVE)) {
        Ok(alive) => Ok(matches!(alive.try_lock(), Err(TryLockError::WouldBlock))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("open the FIFO in {}", logs.display())),
    }
}

fn enter(logs: &Path) -> Result<()> {
    let alive = File::open(logs.join(ALIVE)).context("open the FIFO of the outer process")?;
    std::thread::spawn(move || end_with(alive));
    mounts::prepare_root(logs)?;
    command::output(Command::new(OsStr::new("ip")).args(["link", "set", "lo", "up"]))?;
    Ok(())
}

/// Ends this process, and with it the namespaces, when the outer process has gone.
#[expect(clippy::exit, reason = "the outer process is gone: there is no caller to return to")]
fn end_with(mut alive: File) {
    let _ = alive.read_to_end(&mut Vec::new());
    std::process::exit(1);
}
