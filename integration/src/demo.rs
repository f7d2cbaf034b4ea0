//! `integration demo`: shows to a newcomer how three pods on two nodes get their network and lose
//! it again.
//!
//! Everything shown is measured or read from the programs; only names are known in advance.
//!
//! | file | what it is |
//! |---|---|
//! | `story` | the sections in their order |
//! | `screen` | sections, steps and colours on standard output |
//! | `pods` | the pods, the plugin's calls for them, and their packets |
//! | `timeline` | where the time of an ADD went |
//! | `view` | what OVN's and Open vSwitch's databases contain, as trees |

mod pods;
mod screen;
mod story;
mod timeline;
mod view;

use std::{io, process::ExitCode};

use anyhow::Result;
use clap::Args;
use screen::Screen;

/// See it work: three pods on two nodes get their network, use it and lose it again.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Keep the pods until Ctrl-D, and say how to look around.
    #[arg(long)]
    keep: bool,
}

impl Demo {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let mut screen = Screen::open();
        let Err(error) = story::tell(&mut screen, self.keep) else { return Ok(ExitCode::SUCCESS) };
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        {
            // The reader of standard output has seen enough.
            return Ok(ExitCode::SUCCESS);
        }
        screen.line("")?;
        screen.failure(&format!("Failed: {error:#}"))?;
        Ok(ExitCode::FAILURE)
    }
}
