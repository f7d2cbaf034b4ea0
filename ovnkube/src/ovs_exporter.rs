//! `ovnkube ovs-exporter`: serves the metrics of Open vSwitch until a signal.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use ovslog::{
    Level,
    background::{self, LogConfig, Rotation},
};
use tokio::runtime::Builder;

use crate::{
    chain,
    endpoints::{DaemonEndpoint, start_of_daemons},
    exporter::{Exported, ExporterPlaces},
    findings,
};

/// Serves at `address`. The log goes to standard error.
pub fn run(places: ExporterPlaces, address: SocketAddr) -> ExitCode {
    let file = PathBuf::from("/dev/stderr");
    let _log =
        background::start(&LogConfig { file, level: Level::Info, rotation: Rotation::default() });
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ovnkube: the runtime of this program: {}", chain(&error));
            return ExitCode::FAILURE;
        }
    };
    let endpoint = DaemonEndpoint { address, places, exported: Exported::OpenVSwitch };
    runtime.block_on(async {
        let _serving = start_of_daemons(endpoint);
        findings::until_interrupted(std::future::pending::<()>()).await
    });
    ExitCode::SUCCESS
}
