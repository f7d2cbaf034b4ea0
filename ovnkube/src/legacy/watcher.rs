//! `ovn-k8s-watcher --overlay`: the control plane under its name of 2016 to 2018, as a daemon of
//! Open vSwitch's kind. Pods get the annotation `ovn` beside today's.

use std::{path::Path, process::ExitCode};

use controller::{
    config::{ClusterConfig, ClusterSubnet},
    engine::northbound::DATABASE,
    legacy::adopt,
};
use ovsdb::{Client, Monitor};
use tokio::time::timeout;

use super::{
    PATIENCE,
    daemon::{self, DaemonOptions, Started},
};
use crate::{
    chain,
    control_plane::{self, ControlPlaneConfig, Database},
};

const NAME: &str = "ovn-k8s-watcher";
/// The modules that log, for `vlog/list`.
const MODULES: [&str; 6] = ["adoption", "control", "daemon", "reconcile", "report", "work"];

/// Runs the command: `config` is that of `--init-master`. An error goes to standard error.
pub fn run(daemon: &DaemonOptions, run_dir: &Path, config: ControlPlaneConfig) -> ExitCode {
    // One process of this name runs: it has a pidfile, and the database's lock.
    let config = ControlPlaneConfig { election: None, bootstrap_users: None, ..config };
    daemon::run(NAME, &MODULES, daemon, run_dir, |started| follow(config, started))
}

async fn follow(mut config: ControlPlaneConfig, mut started: Started) -> Result<(), String> {
    let northbound =
        config.northbound.as_ref().ok_or("OVN central database's ip address not set")?;
    let (nodes, pods) = timeout(PATIENCE, rows(northbound))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
        .map_err(|why| format!("northbound database {}: {why}", northbound.endpoints))?;
    if config.cluster.cluster_subnets == ClusterConfig::default().cluster_subnets {
        let subnet = ClusterSubnet { cidr: pods, host_length: nodes };
        tracing::info!(cluster = %pods, "the cluster's subnet, by the rows of nodes and gateways");
        config.cluster.cluster_subnets = vec![subnet];
    }
    started.ready();
    Err(chain(&control_plane::work(&config).await))
}

/// The prefix length of nodes' subnets, and the network of all of them.
async fn rows(northbound: &Database) -> Result<(u8, ipnet::IpNet), String> {
    let (client, _updates) =
        Client::start(northbound.endpoints.clone(), DATABASE, Monitor::new(), northbound.options());
    client.connected().await;
    adopt::cluster_subnet(&client).await.map_err(|error| chain(&error))
}
