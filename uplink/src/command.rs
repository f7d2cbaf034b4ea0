//! A command for bridges: what is moved, and where Open vSwitch's database is.

use ovsdb::Endpoint;

/// A command, with the interfaces or bridges in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    NicsToBridge { database: Endpoint, interfaces: Vec<String> },
    BridgesToNic { database: Endpoint, bridges: Vec<String> },
}

impl Command {
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Self::NicsToBridge { interfaces: names, .. }
            | Self::BridgesToNic { bridges: names, .. } => names,
        }
    }

    pub(crate) fn database(&self) -> &Endpoint {
        match self {
            Self::NicsToBridge { database, .. } | Self::BridgesToNic { database, .. } => database,
        }
    }
}
