//! `integration demo`: shows to a newcomer how three pods on two nodes get their network and lose it again.
//!
//! Everything shown is measured or read from the programs; only the pods' names are known in advance.
//!
//! | file | what it is |
//! |---|---|
//! | `story` | the sections in their order |
//! | `screen` | sections, steps and colours on standard output |
//! | `pods` | the pods, the plugin's calls for them, and packets between them |
//! | `timeline` | where the time of an ADD went |
//! | `view` | what OVN's and Open vSwitch's databases contain, as trees |

mod pods;
mod screen;
mod story;
mod timeline;
mod view;

use std::{env, fs, io, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use integration::{executable, inside};
use screen::Screen;

/// Exit status after a signal, by the convention of shells: this number plus the signal's.
const BY_SIGNAL: u8 = 128;
/// The same as after SIGPIPE (13): the reader of standard output is gone.
const BROKEN_PIPE: u8 = BY_SIGNAL + 13;

/// See it work: three pods on two nodes get their network, use it and lose it again.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Keep the pods until Ctrl-D, and say how to look around.
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if inside::is_inside() {
            inside::enter_again()?;
            return self.tell();
        }
        let name = format!("demo-{}", std::process::id());
        let (status, signal) = inside::run_again_until_signal(&name, env::args_os().skip(1))?;
        if let Some(signal) = signal {
            eprintln!("\nThe demo was interrupted. Nothing of it is left.");
            return Ok(ExitCode::from(BY_SIGNAL.saturating_add(u8::try_from(signal as i32)?)));
        }
        if status.success() {
            return Ok(ExitCode::SUCCESS);
        }
        let logs = executable::target_dir()?.join("lab-logs").join(name);
        if status.code() == Some(BROKEN_PIPE.into()) {
            fs::remove_dir_all(&logs).with_context(|| format!("remove {}", logs.display()))?;
            return Ok(ExitCode::from(BROKEN_PIPE));
        }
        eprintln!("\nThe demo failed ({status}). What each program said is in {}", logs.display());
        Ok(ExitCode::FAILURE)
    }

    fn tell(&self) -> Result<ExitCode> {
        let mut screen = Screen::open();
        let Err(error) = story::tell(&mut screen, self.keep) else { return Ok(ExitCode::SUCCESS) };
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return Ok(ExitCode::from(BROKEN_PIPE));
        }
        screen.line("")?;
        screen.failure(&format!("Failed: {error:#}"))?;
        Ok(ExitCode::FAILURE)
    }
}
