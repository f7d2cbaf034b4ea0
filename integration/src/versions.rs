//! Which Open vSwitch and OVN: those that `PATH` finds, or those that run on a node.
//!
//! They are this machine's, unless `compat.sh` started the test: with another Debian release's in front of `PATH`.

use std::{fmt, process::Command};

use anyhow::{Context as _, Result};

use crate::{Node, command};

/// Versions of the two, as they call themselves: `3.1.0`, `23.03.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// Of ovs-vswitchd.
    pub open_vswitch: String,
    /// Of ovn-controller.
    pub ovn: String,
}

impl Versions {
    /// Of the programs that a lab would start.
    pub fn installed() -> Result<Self> {
        let ask = |program: &str| command::output(Command::new(program).arg("--version"));
        Ok(Self { open_vswitch: last_word(&ask("ovs-vswitchd")?)?, ovn: last_word(&ask("ovn-controller")?)? })
    }

    /// Of the daemons that run on `node`, from themselves.
    pub fn running(node: &Node) -> Result<Self> {
        let switch = node.run(["ovs-appctl", "--target=ovs-vswitchd", "version"])?;
        let controller = node.run(["ovn-appctl", "--target=ovn-controller", "version"])?;
        Ok(Self { open_vswitch: last_word(&switch)?, ovn: last_word(&controller)? })
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Open vSwitch {}, OVN {}", self.open_vswitch, self.ovn)
    }
}

/// `ovs-vswitchd (Open vSwitch) 3.1.0`; OVN's programs go on with the versions of what they are made of.
fn last_word(text: &str) -> Result<String> {
    let word = text.lines().next().and_then(|line| line.split_whitespace().last());
    word.map(str::to_owned).with_context(|| format!("no version: {text:?}"))
}
