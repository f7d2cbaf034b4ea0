//! The daemons of a node by what they are, for runs that kill or measure any of them.

use std::fmt;

use anyhow::Result;
use serde::Serialize;

use crate::{Daemon, Node};

/// A daemon of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// `ovnkube --init-node`: the only one of them that is part of this project.
    Server,
    /// Open vSwitch's database.
    OvsdbServer,
    /// The switch.
    Vswitchd,
    /// OVN's agent.
    OvnController,
}

impl Program {
    /// In start order: each needs those before it.
    pub const ALL: [Self; 4] =
        [Self::OvsdbServer, Self::Vswitchd, Self::OvnController, Self::Server];
}

impl Node {
    /// The daemon of this program.
    pub fn daemon(&self, program: Program) -> &Daemon {
        match program {
            Program::Server => &self.server,
            Program::OvsdbServer => &self.ovsdb_server,
            Program::Vswitchd => &self.vswitchd,
            Program::OvnController => &self.ovn_controller,
        }
    }

    /// Starts it (again), and waits for what its own function waits for.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_program(&self, program: Program) -> Result<()> {
        match program {
            Program::Server => self.start_server(),
            Program::OvsdbServer => self.start_ovsdb_server(),
            Program::Vswitchd => self.start_vswitchd(),
            Program::OvnController => self.start_ovn_controller(),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::OvsdbServer => "ovsdb-server",
            Self::Vswitchd => "ovs-vswitchd",
            Self::OvnController => "ovn-controller",
        })
    }
}
