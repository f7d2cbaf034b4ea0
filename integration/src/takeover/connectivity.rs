//! `integration connectivity`: `ovnkube connectivity test` on a node whose network is upstream's:
//! the command must not know whose it is.

use std::{fs, net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use integration::{
    cluster::{GatewayMode, ovnkube::IMAGE},
    executable,
    traffic::End,
    world::Machine,
};

use super::programs;
use crate::{exit_code, report::progress};

/// Port of the world's server.
const WORLD: u16 = 7000;

/// Run `ovnkube connectivity test` on a node of upstream, and print its table. Exit status 1 if a
/// test fails.
#[derive(Debug, Args)]
pub(crate) struct Connectivity {
    /// Directory with upstream's two executables, built statically.
    #[arg(long, value_name = "DIR")]
    upstream: PathBuf,
    /// The node's gateway.
    #[arg(long, value_name = "MODE", default_value_t = GatewayMode::Shared)]
    gateway_mode: GatewayMode,
    /// Further options of the command: --keep, for one.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

impl Connectivity {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let say = progress();
        let cluster = programs::bare_node(self.gateway_mode, &say)?;
        // Their kinds exist before the programs start, which may look once.
        cluster.define_cluster_policies()?;
        say("starting upstream's programs");
        let zone =
            programs::upstream(&cluster, &self.upstream, &["--enable-admin-network-policy"])?;
        zone.start()?;
        cluster.wait_until_ready()?;
        programs::send_checksums(&cluster.lab.nodes[0])?;
        say("starting CoreDNS, load balancers and a server of the world");
        cluster.start_dns()?;
        cluster.assign_load_balancers()?;
        let web = SocketAddr::new(cluster.lab.world().addresses(Machine::Web)[0], WORLD);
        let _web = cluster.lab.tcp_echo(&End::World(Machine::Web), web)?;
        cluster.import_ovnkube()?;
        say("running ovnkube connectivity test");
        let directory = executable::target_dir()?.join("takeover");
        fs::create_dir_all(&directory)?;
        let junit = directory.join("connectivity.xml");
        let mut test = cluster.ovnkube(&["connectivity", "test", "--image", IMAGE])?;
        test.args(["--world", &web.to_string()]).arg("--junit").arg(&junit).args(&self.options);
        let status = test.status().context("run ovnkube connectivity test")?;
        say(&format!("it ended; also in {}", junit.display()));
        Ok(exit_code(status))
    }
}
