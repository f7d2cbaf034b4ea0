//! The roles of the control plane, and their readiness conditions.

use server::conditions::Part;

/// The leader is known: this process, or another one.
pub const ELECTION: Part = Part::new(16, "election");
/// All nodes and pods of the cluster are known.
pub const CLUSTER: Part = Part::new(17, "cluster");
/// OVN's northbound database answers.
pub const NORTHBOUND: Part = Part::new(18, "northbound-database");
/// The northbound database has been fully reconciled once since start. Always met on a standby.
pub const ROWS: Part = Part::new(19, "rows");

/// The conditions of all roles together.
pub const NEEDS: [Part; 4] = [ELECTION, CLUSTER, NORTHBOUND, ROWS];

/// The parts of the control plane in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    /// Gives subnets to nodes.
    ClusterManager,
    /// Writes OVN's northbound database.
    Controller,
    Both,
}

impl Roles {
    pub fn has_controller(self) -> bool {
        matches!(self, Self::Controller | Self::Both)
    }

    pub fn has_cluster_manager(self) -> bool {
        matches!(self, Self::ClusterManager | Self::Both)
    }
}
