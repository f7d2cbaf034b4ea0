//! The two processes of the demo: the outer one owns the terminal, the inner one the lab.
//!
//! Ctrl-C does not reach the inner process and its children: otherwise the programs of the lab would end in
//! any order. The standard input of the inner process is a pipe, over which the outer process tells it when
//! to go on and when to end.

use std::{
    env, fs,
    io::{self, BufRead as _, Read as _, Write as _},
    os::fd::AsFd as _,
    path::PathBuf,
    process::{self, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
};

use anyhow::{Context as _, Result};
use integration::{executable, inside};
use nix::{
    sys::signal::{SigSet, Signal},
    unistd::{Pid, dup2_stdin, setpgid},
};

/// The line that ends the wait in a lab that was kept: the user has seen enough.
const GO_ON: &str = "go on";
/// Exit status after a signal, by the convention of shells: this number plus the signal's.
const BY_SIGNAL: u8 = 128;
/// Exit status when the reader of standard output is gone: the same as after SIGPIPE (13).
pub(crate) const BROKEN_PIPE: u8 = BY_SIGNAL + 13;

/// The outer process: starts the inner one and waits for its end.
pub(crate) fn outside() -> Result<ExitCode> {
    let keyboard = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let (orders, mut order) = io::pipe()?;
    // The child inherits the pipe as its standard input; this process keeps the keyboard.
    dup2_stdin(&orders).context("replace standard input")?;
    drop(orders);

    let ending = ending_signals();
    // Blocked before any thread starts: threads inherit the mask, so that only `ending.wait` below takes the
    // signals.
    ending.thread_block()?;
    let signal = Arc::new(AtomicU8::new(0));
    let mut reminder = order.try_clone()?;
    let caught = Arc::clone(&signal);
    thread::spawn(move || {
        if let Ok(signal) = ending.wait() {
            caught.store(u8::try_from(signal as i32).unwrap_or(u8::MAX), Ordering::SeqCst);
            // Any line other than GO_ON ends the inner process.
            let _ = writeln!(reminder, "end");
        }
    });
    thread::spawn(move || {
        // Returns at the end of the keyboard's input (Ctrl-D).
        let _ = fs::File::from(keyboard).read_to_end(&mut Vec::new());
        let _ = writeln!(order, "{GO_ON}");
    });

    let name = format!("demo-{}", process::id());
    let status = inside::run_again(&name, env::args_os().skip(1))?;
    let logs = executable::target_dir()?.join("lab-logs").join(name);
    match signal.load(Ordering::SeqCst) {
        0 if status.success() => Ok(ExitCode::SUCCESS),
        0 if status.code() == Some(BROKEN_PIPE.into()) => remove(&logs).map(|()| ExitCode::from(BROKEN_PIPE)),
        0 => {
            eprintln!("\nThe demo failed ({status}). What each program said is in {}", logs.display());
            Ok(ExitCode::FAILURE)
        }
        signal => {
            remove(&logs)?;
            eprintln!("\nThe demo was interrupted. Nothing of it is left.");
            Ok(ExitCode::from(BY_SIGNAL.saturating_add(signal)))
        }
    }
}

fn remove(logs: &PathBuf) -> Result<()> {
    match fs::remove_dir_all(logs) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", logs.display()))
        }
        _ => Ok(()),
    }
}

/// The signals that end the demo: Ctrl-C, `kill`, a closed terminal.
fn ending_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// The inner process's end of the pipe.
#[derive(Debug)]
pub(crate) struct Orders(Receiver<()>);

impl Orders {
    /// Enters the lab's namespaces and starts to read from the pipe.
    pub(crate) fn enter() -> Result<Self> {
        // The outer process has blocked these signals, and the mask is inherited. The lab's programs must
        // react to them.
        ending_signals().thread_unblock()?;
        // Ctrl-C goes to the foreground process group of the terminal. This process leaves that group.
        setpgid(Pid::from_raw(0), Pid::from_raw(0)).context("leave the terminal's process group")?;
        inside::enter_again()?;
        let (go_on, orders) = mpsc::channel();
        thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if line != GO_ON {
                    break;
                }
                let _ = go_on.send(());
            }
            end();
        });
        Ok(Self(orders))
    }

    /// Waits until the outer process's standard input has ended.
    pub(crate) fn wait(&self) -> Result<()> {
        self.0.recv().context("wait for the end of standard input")
    }
}

/// Ends this process. It is process 1 of its namespaces, so that the kernel ends everything in them with it.
#[expect(
    clippy::exit,
    reason = "the main thread may be anywhere; the kernel removes everything with the namespaces"
)]
fn end() {
    process::exit(1)
}
