//! The two processes of the demo: the outer one has the terminal, the inner one the lab.
//!
//! The inner one is out of reach of Ctrl-C, and so is everything it started: otherwise each program of the lab would end by itself, in
//! any order. Its standard input is a pipe, over which the outer one tells it when to go on and when to end.

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

/// The person has seen enough of a lab that was kept.
const GO_ON: &str = "go on";
/// Exit status after a signal, as shells have it: this and the signal's number.
const BY_SIGNAL: u8 = 128;
/// Exit status when the reader of standard output went away: as if by SIGPIPE.
pub(crate) const NOBODY_READS: u8 = BY_SIGNAL + 13;

/// The outer side: starts the inner one and stays until it has ended.
pub(crate) fn outside() -> Result<ExitCode> {
    let keyboard = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let (orders, mut order) = io::pipe()?;
    dup2_stdin(&orders).context("replace standard input")?;
    drop(orders);

    let ending = ending_signals();
    ending.thread_block()?;
    let signal = Arc::new(AtomicU8::new(0));
    let mut reminder = order.try_clone()?;
    let caught = Arc::clone(&signal);
    thread::spawn(move || {
        if let Ok(signal) = ending.wait() {
            caught.store(u8::try_from(signal as i32).unwrap_or(u8::MAX), Ordering::SeqCst);
            // Any other word than GO_ON.
            let _ = writeln!(reminder, "end");
        }
    });
    thread::spawn(move || {
        let _ = fs::File::from(keyboard).read_to_end(&mut Vec::new());
        let _ = writeln!(order, "{GO_ON}");
    });

    let name = format!("demo-{}", process::id());
    let status = inside::run_again(&name, env::args_os().skip(1))?;
    let logs = executable::target_dir()?.join("lab-logs").join(name);
    match signal.load(Ordering::SeqCst) {
        0 if status.success() => Ok(ExitCode::SUCCESS),
        0 if status.code() == Some(NOBODY_READS.into()) => remove(&logs).map(|()| ExitCode::from(NOBODY_READS)),
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
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| format!("remove {}", logs.display())),
        _ => Ok(()),
    }
}

/// What a person, a closed terminal and `kill` send.
fn ending_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// The inner side's ear.
#[derive(Debug)]
pub(crate) struct Orders(Receiver<()>);

impl Orders {
    /// Enters the lab's namespaces and begins to listen.
    pub(crate) fn enter() -> Result<Self> {
        // Inherited from the outer side; what the lab starts should end when it is told to.
        ending_signals().thread_unblock()?;
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

    /// Waits until the outer side's standard input has ended.
    pub(crate) fn wait(&self) -> Result<()> {
        self.0.recv().context("wait for the end of standard input")
    }
}

/// Ends this process, and with it the namespaces and all that runs in them.
#[expect(clippy::exit, reason = "the main thread may be anywhere; nothing is left to be undone after the namespaces")]
fn end() {
    process::exit(1)
}
