//! `integration demo`: shows to a newcomer how three pods on two nodes get their network and lose it again.
//!
//! Everything shown is measured or read from the programs; only the pods' names are known in advance.
//!
//! | file | what it is |
//! |---|---|
//! | `control` | the process with the terminal, the process with the lab, and the pipe between them |
//! | `story` | the sections in their order |
//! | `screen`, `line`, `canvas` | sections and steps on standard output; a line in colours; boxes |
//! | `cast` | the pods, as they are before the runtime calls the plugin |
//! | `calls` | the plugin's calls and results |
//! | `timeline` | where the time of an ADD went |
//! | `rows` | OVSDB's JSON, for the two views |
//! | `logical` | the logical view, a tree |
//! | `switch`, `picture` | the Open vSwitch view: reading it, and drawing it |
//! | `traffic` | ping and TCP between the pods |
//! | `leftovers` | the node's links, namespaces and rows before and after |
//! | `keep` | commands to look around with |

mod calls;
mod canvas;
mod cast;
mod control;
mod keep;
mod leftovers;
mod line;
mod logical;
mod picture;
mod rows;
mod screen;
mod story;
mod switch;
mod timeline;
mod traffic;

use std::{io, process::ExitCode};

use anyhow::Result;
use clap::Args;
use integration::inside;

use control::Orders;
use line::{Line, Paint};
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
            return Ok(ExitCode::from(control::NOBODY_READS));
        }
        screen.line(Line::default())?;
        screen.failure(&format!("Failed: {error:#}"))?;
        Ok(ExitCode::FAILURE)
    }
}

/// The mark of a step that worked.
fn tick() -> Line {
    Line::default().to(2).add(Paint::Good, "✓ ")
}
