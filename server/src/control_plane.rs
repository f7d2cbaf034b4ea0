//! The control plane's roles in `ovnkube`: what they are told, and their life. What they do is the package `controller`.
//!
//! | role | connects to | elected |
//! |---|---|---|
//! | cluster manager | API server | yes |
//! | controller | API server, northbound database | yes, unless it is beside a node's server |
//! | both (`--init-master`) | both | yes, once |

use std::{path::PathBuf, time::Duration};

use controller::{config::ClusterConfig, selector::LabelSelector};

use crate::{api_server::ApiServer, endpoints::Endpoints, log::LogConfig};

/// What the control plane is told.
#[derive(Debug, Clone)]
pub struct ControlPlaneConfig {
    /// Who this process is to others of the same roles: the name of its machine.
    pub identity: String,
    pub roles: Roles,
    /// None: nobody else may act at the same time, so nobody is asked.
    pub election: Option<Election>,
    pub api_server: ApiServer,
    pub cluster: ClusterConfig,
    /// Nodes that another network plugin serves.
    pub foreign_nodes: Option<LabelSelector>,
    /// The controller's database. A cluster manager connects to none.
    pub northbound: Option<Northbound>,
    pub log: LogConfig,
    pub pidfile: Option<PathBuf>,
    pub endpoints: Endpoints,
}

/// Which parts of the control plane a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    ClusterManager,
    Controller,
    Both,
}

/// How one of several processes is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    pub duration: Duration,
    /// Less than `duration`.
    pub renew_deadline: Duration,
    /// Less than `renew_deadline`.
    pub retry_period: Duration,
}

/// The northbound database, and how patient its writer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Northbound {
    pub database: Database,
    pub transaction_timeout: Duration,
}

/// One of OVN's databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub endpoints: ovsdb::Endpoints,
    /// Where the endpoints are `ssl:`.
    pub tls: Option<DatabaseTls>,
}

/// PEM files, read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseTls {
    pub private_key: PathBuf,
    pub certificate: PathBuf,
    pub authority: PathBuf,
    /// The name that the database's certificate has to have; without one its chain alone counts.
    pub common_name: Option<String>,
    /// Where there is no `authority` yet, the one that the database shows is written there.
    pub bootstrap: bool,
}

/// A node whose rows are to leave OVN's databases.
#[derive(Debug, Clone)]
pub struct RemoveNodeConfig {
    pub node: String,
    pub northbound: Northbound,
    pub southbound: Database,
    pub cluster: ClusterConfig,
    /// Where one is given, it is asked whether the node still exists.
    pub api_server: Option<ApiServer>,
}

impl Roles {
    pub fn has_controller(self) -> bool {
        matches!(self, Self::Controller | Self::Both)
    }

    pub fn has_cluster_manager(self) -> bool {
        matches!(self, Self::ClusterManager | Self::Both)
    }
}
