//! Versions of Open vSwitch and OVN: of the programs in `PATH`, or of the daemons on a node.
//!
//! These are the machine's own, unless `compat.sh` started the test with those of another Debian
//! release in front of `PATH`.

use std::{fmt, process::Command};

use anyhow::{Context as _, Result};

use crate::command;

/// Versions of the two, as they call themselves: `3.1.0`, `23.03.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// Of ovs-vswitchd.
    pub open_vswitch: String,
    /// Of ovn-controller.
    pub ovn: String,
}

impl Versions {
    /// Versions of the programs that a lab would start.
    pub fn installed() -> Result<Self> {
        let ask = |program: &str| command::output(Command::new(program).arg("--version"));
        Ok(Self {
            open_vswitch: last_word(&ask("ovs-vswitchd")?)?,
            ovn: last_word(&ask("ovn-controller")?)?,
        })
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Open vSwitch {}, OVN {}", self.open_vswitch, self.ovn)
    }
}

/// The last word of the first line: `ovs-vswitchd (Open vSwitch) 3.1.0`. In the further lines OVN's
/// programs name the libraries that they are built with.
pub(crate) fn last_word(text: &str) -> Result<String> {
    let word = text.lines().next().and_then(|line| line.split_whitespace().last());
    word.map(str::to_owned).with_context(|| format!("no version: {text:?}"))
}
