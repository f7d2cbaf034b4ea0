//! The commands of 2016 to 2018, by their own names: `ovn-k8s-overlay`, the `gateway-init` of
//! `ovn-kube-util`, `ovn-k8s-gateway-helper`, `ovn-k8s-watcher`.
//!
//! ```text
//! master-init, minion-init, gateway-init
//!    external_ids ─▶ checks ─▶ northbound database: one transaction (controller::legacy)
//!                              ─▶ Open vSwitch: one transaction ─▶ links, addresses ─▶ files
//! ```
//!
//! Nothing is written before everything is known; a second run changes nothing, and one after a run
//! that was stopped completes it. `docs/how-to/older-commands.md` has each command with what it
//! makes.
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | `overlay` | [`Init`]: the three commands, in their order | all of these | all of these |
//! | `switch` | `Switch`: bridges and ports of Open vSwitch | its database | the same |
//! | `cni_files` | the plugin's older name, and its file | `PATH` | `/opt/cni`, `/etc/cni` |
//! | `gateway_helper` | flows of a bridge of node and pods | Services | OpenFlow, patch ports |
//! | `watcher` | the control plane under its former name | as it does | as it does |
//! | `daemon` | a process as Open vSwitch's daemons are | arguments | pidfile, log, socket |

use std::{net::Ipv4Addr, path::PathBuf, process::ExitCode, time::Duration};

use contract::mtu::Mtu;
use controller::legacy::LoadBalancers;
use ipnet::Ipv4Net;
use kubeapi::ApiServer;
use ovsdb::Endpoint;

use crate::control_plane::Database;

mod cni_files;
pub mod daemon;
mod gateway_helper;
mod overlay;
mod switch;
mod watcher;

pub use gateway_helper::{Helper, run as help_gateway};
pub use overlay::run as init;
pub use watcher::run as watch;

/// Limit for the northbound database, from the connection to the last answer. The older programs
/// gave each of their 20 questions 5 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// What options, file and `external_ids` say to these commands.
#[derive(Debug, Clone)]
pub struct LegacyConfig {
    /// Open vSwitch's database.
    pub ovsdb: Endpoint,
    /// The directory of its pidfiles and control sockets.
    pub run_dir: PathBuf,
    /// None if nothing says where it is.
    pub northbound: Option<Database>,
    pub mtu: Mtu,
    /// The zone of the flows that node and pods share.
    pub conntrack_zone: u16,
    pub cni_conf_dir: PathBuf,
    pub cni_bin_dir: PathBuf,
    /// The plugin's file name.
    pub plugin: String,
    /// Or why it cannot be reached.
    pub api_server: Result<ApiServer, String>,
}

/// A command that makes rows, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Init {
    Master(NodeNetwork),
    Minion(NodeNetwork),
    Gateway(Gateway),
}

/// `--cluster-ip-subnet`, `--master-switch-subnet` or `--minion-switch-subnet`, `--node-name`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNetwork {
    pub cluster: Ipv4Net,
    pub subnet: Ipv4Net,
    /// In lower case.
    pub node: String,
}

/// The arguments of `gateway-init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    pub cluster: Ipv4Net,
    /// None if not exactly one was given.
    pub uplink: Option<Uplink>,
    pub address: Ipv4Net,
    pub next_hop: Option<Ipv4Addr>,
    /// In lower case.
    pub node: String,
    /// `--rampout-ip-subnets`, and those of its values that are no networks.
    pub sources: Vec<Ipv4Net>,
    pub no_networks: Vec<String>,
    pub load_balancers: LoadBalancers,
}

/// How the gateway router reaches the physical network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uplink {
    /// `--bridge-interface`: over a bridge, which the node uses, too.
    Bridge(String),
    /// `--physical-interface`: over a NIC of its own.
    Nic(String),
}

/// Says that the command failed, as the older programs did.
fn failed(why: &str) -> ExitCode {
    eprintln!("Failed operation.\n({why})");
    ExitCode::FAILURE
}
