//! Versions of Open vSwitch and OVN: of the programs in `PATH`, or of the daemons on a node.
//!
//! These are the machine's own, unless `compat.sh` started the test with those of another Debian release in
//! front of `PATH`.

use std::{fmt, process::Command};

use anyhow::{Context as _, Result, anyhow};

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
    /// Versions of the programs that a lab would start.
    pub fn installed() -> Result<Self> {
        let ask = |program: &str| command::output(Command::new(program).arg("--version"));
        Ok(Self { open_vswitch: last_word(&ask("ovs-vswitchd")?)?, ovn: last_word(&ask("ovn-controller")?)? })
    }

    /// The version of the ovs-vswitchd that runs on `node`, in numbers.
    pub fn switch_of(node: &Node) -> Result<[u32; 3]> {
        let text = switch(node)?;
        let numbers: Vec<u32> = text.split('.').map_while(|number| number.parse().ok()).collect();
        numbers.try_into().map_err(|_| anyhow!("not a version of Open vSwitch: {text}"))
    }

    /// Versions of the daemons that run on `node`, as they report them.
    pub fn running(node: &Node) -> Result<Self> {
        let controller = node.run(["ovn-appctl", "--target=ovn-controller", "version"])?;
        Ok(Self { open_vswitch: switch(node)?, ovn: last_word(&controller)? })
    }
}

fn switch(node: &Node) -> Result<String> {
    last_word(&node.run(["ovs-appctl", "--target=ovs-vswitchd", "version"])?)
}

impl fmt::Display for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Open vSwitch {}, OVN {}", self.open_vswitch, self.ovn)
    }
}

/// The last word of the first line: `ovs-vswitchd (Open vSwitch) 3.1.0`. In the further lines OVN's programs
/// name the libraries that they are built with.
fn last_word(text: &str) -> Result<String> {
    let word = text.lines().next().and_then(|line| line.split_whitespace().last());
    word.map(str::to_owned).with_context(|| format!("no version: {text:?}"))
}
