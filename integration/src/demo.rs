//! `integration demo`: shows to a newcomer how three pods on two nodes get their network and lose it again.
//!
//! Everything shown is measured or read from the programs; only the pods' names are known in advance.
//!
//! | file | what it is |
//! |---|---|
//! | `control` | the process with the terminal, the process with the lab, and the pipe between them |
//! | `story` | the sections in their order |
//! | `screen` | sections, steps and colours on standard output |
//! | `pods` | the pods, and the plugin's calls for them |
//! | `timeline` | where the time of an ADD went |
//! | `view` | what OVN's and Open vSwitch's databases contain, as pictures |

mod control;
mod pods;
mod screen;
mod story;
mod timeline;
mod view;

use std::{io, process::ExitCode};

use anyhow::Result;
use clap::Args;
use integration::inside;

use control::Orders;
use screen::Screen;

/// See it work: three pods on two nodes get their network, use it and lose it again.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Keep the pods until Ctrl-D, and say how to look around.
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if !inside::is_inside() {
            return control::outside();
        }
        let orders = Orders::enter()?;
        let mut screen = Screen::open();
        let Err(error) = story::tell(&mut screen, self.keep.then_some(&orders)) else {
            return Ok(ExitCode::SUCCESS);
        };
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return Ok(ExitCode::from(control::BROKEN_PIPE));
        }
        screen.line("")?;
        screen.failure(&format!("Failed: {error:#}"))?;
        Ok(ExitCode::FAILURE)
    }
}
