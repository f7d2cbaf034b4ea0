//! The command line of `ovnkube`, under the names that it has in OVN-Kubernetes.
//!
//! [`Options`] is the line as it is spelled; [`Options::program`] is what it asks for, with everything checked that can be checked
//! without touching anything.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

use clap::{CommandFactory, FromArgMatches, Parser, error::ErrorKind};
use cni::log::Level;
use contract::{
    mtu::{BadMtu, Mtu},
    paths::{CNI_CONF_DIR, CNI_CONF_FILE, PLUGIN, PLUGIN_LOG, SERVER_LOG, SERVER_SOCKET},
};

use crate::{
    cni_conf::{CniConf, ConfFile},
    endpoints::Endpoints,
    log::{LogConfig, Rotation},
    node::{Chassis, NodeConfig, OpenVSwitch, PluginInstall, PodsFrom},
    requests::AddDefaults,
};

mod go_style;

/// Connects the pods of Kubernetes through OVN.
#[derive(Debug, Clone, Parser)]
#[command(name = "ovnkube", version, args_override_self = true, max_term_width = 100)]
pub struct Options {
    /// Serve the pods of this node: answer the CNI plugin and write its configuration
    #[arg(long, value_name = "NODE", help_heading = "What to be")]
    pub init_node: Option<String>,

    /// Know the pods from the Pod manifests (*.yaml, *.yml, *.json) in this directory
    #[arg(long, value_name = "DIR", help_heading = "Where pods are known from")]
    pub pod_manifests: Option<PathBuf>,

    /// MTU of pods
    #[arg(long, value_name = "BYTES", default_value_t = 1400, help_heading = "Pods")]
    pub mtu: u64,

    /// MTU of pods' default routes, where it is less than the link's; 0 for the same
    #[arg(long, value_name = "BYTES", default_value_t = 0, help_heading = "Pods")]
    pub routable_mtu: u64,

    /// Directory where the container runtime looks for CNI configurations
    #[arg(long, value_name = "DIR", default_value = CNI_CONF_DIR, help_heading = "CNI")]
    pub cni_conf_dir: PathBuf,

    /// File to write there; a name that ends with .conf gives the older form, of a single plugin
    #[arg(long, value_name = "NAME", default_value = CNI_CONF_FILE, help_heading = "CNI")]
    pub cni_conf_file: ConfFile,

    /// File name of the CNI plugin
    #[arg(long, value_name = "NAME", default_value = PLUGIN, help_heading = "CNI")]
    pub cni_plugin: String,

    /// Where the CNI plugin finds this server
    #[arg(long, value_name = "PATH", default_value = SERVER_SOCKET, help_heading = "CNI")]
    pub cni_socket: PathBuf,

    /// Directory where the container runtime looks for CNI plugins; the plugin is installed there
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin", help_heading = "CNI")]
    pub cni_bin_dir: PathBuf,

    /// The CNI plugin to install; without one: /usr/libexec/cni/ovn-k8s-cni-overlay, or one beside this program
    #[arg(long, value_name = "PATH", help_heading = "CNI")]
    pub cni_plugin_source: Option<PathBuf>,

    /// Open vSwitch's database
    #[arg(long, value_name = "ENDPOINT", default_value = contract::paths::OVSDB_ENDPOINT, help_heading = "Open vSwitch")]
    pub ovsdb_endpoint: ovsdb::Endpoint,

    /// Address that the tunnels of other nodes lead to; without one: that of the interface with the default route
    #[arg(long, value_name = "ADDRESS", help_heading = "Open vSwitch")]
    pub encap_ip: Option<String>,

    /// File that names this process while it runs
    #[arg(long, value_name = "PATH", help_heading = "What to be")]
    pub pidfile: Option<PathBuf>,

    /// Level of both logs: err, warn, info, dbg, or klog's number (5 and more: dbg)
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = "Logs")]
    pub loglevel: Level,

    /// This server's log
    #[arg(long, value_name = "PATH", default_value = SERVER_LOG, help_heading = "Logs")]
    pub logfile: PathBuf,

    /// The CNI plugin's log
    #[arg(long, value_name = "PATH", default_value = PLUGIN_LOG, help_heading = "Logs")]
    pub cnilogfile: String,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Program {
    /// `--init-node`
    Node(NodeOptions),
}

/// The options of a node's server. What nobody gave may be in Open vSwitch's database, which is not there yet when they are read.
#[derive(Debug, Clone)]
pub struct NodeOptions(Options);

impl Options {
    /// Reads the command line: `--name value`, `--name=value`, and both with one dash. An error's text is for the user, and so are
    /// help and version, which are errors here, too.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let command = Self::command();
        let arguments = go_style::with_two_dashes(&command, arguments);
        Self::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

    /// What the options ask for, or what is missing or contradictory and how to say it.
    pub fn program(self) -> Result<Program, clap::Error> {
        let node = NodeOptions(self);
        node.config(&BTreeMap::new())?;
        Ok(Program::Node(node))
    }
}

impl NodeOptions {
    /// What the server is told, where `external_ids` (of the `Open_vSwitch` table) are the last source before the defaults.
    pub fn config(&self, external_ids: &BTreeMap<String, String>) -> Result<NodeConfig, clap::Error> {
        let Self(options) = self.clone();
        let Options {
            init_node,
            pod_manifests,
            mtu,
            routable_mtu,
            cni_conf_dir,
            cni_conf_file,
            cni_plugin,
            cni_socket,
            cni_bin_dir,
            cni_plugin_source,
            ovsdb_endpoint,
            encap_ip,
            pidfile,
            loglevel,
            logfile,
            cnilogfile,
        } = options;
        let missing = |text| usage(ErrorKind::MissingRequiredArgument, text);
        let wrong = |text| usage(ErrorKind::ValueValidation, text);

        let name = init_node.ok_or_else(|| missing("say what to be: --init-node NODE, with the name of this node".to_owned()))?;
        check_node_name(&name).map_err(wrong)?;
        let manifests = pod_manifests
            .ok_or_else(|| missing("say where pods are known from: --pod-manifests DIR, a directory of Pod manifests".to_owned()))?;
        let mtu = option_mtu("--mtu", mtu).map_err(wrong)?;
        let routable_mtu = match routable_mtu {
            0 => None,
            bytes => Some(option_mtu("--routable-mtu", bytes).map_err(wrong)?),
        };
        if routable_mtu.is_some_and(|routable| routable > mtu) {
            return Err(wrong(format!("--routable-mtu {} is more than --mtu {mtu}: lower it", routable_mtu.unwrap_or(mtu))));
        }
        if !cni_socket.is_absolute() {
            return Err(wrong(format!("--cni-socket {cni_socket:?}: give the whole path, from / on")));
        }
        if cni_plugin.is_empty() || cni_plugin.contains('/') {
            return Err(wrong(format!("--cni-plugin {cni_plugin:?}: give a file name; runtimes know the directory")));
        }
        Ok(NodeConfig {
            name,
            pods: PodsFrom::Manifests(manifests),
            add: AddDefaults { mtu, routable_mtu },
            plugin: PluginInstall { source: cni_plugin_source, directory: cni_bin_dir, name: cni_plugin.clone() },
            cni_conf: CniConf {
                directory: cni_conf_dir,
                file: cni_conf_file,
                plugin: cni_plugin,
                log_file: cnilogfile,
                log_level: conf_log_level(loglevel).to_owned(),
                server_socket: Some(cni_socket.clone()).filter(|socket| socket.as_os_str() != SERVER_SOCKET),
            },
            socket: cni_socket,
            log: LogConfig { rotation: Rotation::default_of(&logfile), file: logfile, level: loglevel },
            pidfile,
            open_vswitch: OpenVSwitch { endpoint: ovsdb_endpoint, chassis: chassis(external_ids, encap_ip) },
            endpoints: Endpoints::default(),
        })
    }
}

/// What is there already stays.
fn chassis(external_ids: &BTreeMap<String, String>, encap_ip: Option<String>) -> Chassis {
    let there = |key: &str| external_ids.get(key).cloned();
    let number = |key: &str| external_ids.get(key).and_then(|value| value.parse().ok());
    let boolean = |key: &str| external_ids.get(key).and_then(|value| value.parse().ok());
    Chassis {
        southbound: there("ovn-remote").unwrap_or_else(|| "unix:/var/run/ovn/ovnsb_db.sock".to_owned()),
        tls: None,
        encap_type: there("ovn-encap-type").unwrap_or_else(|| "geneve".to_owned()),
        encap_ip: encap_ip.or_else(|| there("ovn-encap-ip")),
        encap_port: None,
        inactivity_probe: Duration::from_millis(number("ovn-remote-probe-interval").unwrap_or(100_000)),
        openflow_probe: Duration::from_secs(number("ovn-openflow-probe-interval").unwrap_or(180)),
        ofctrl_wait_before_clear: number("ovn-ofctrl-wait-before-clear").map(Duration::from_millis),
        monitor_all: boolean("ovn-monitor-all").unwrap_or(true),
        lflow_cache: boolean("ovn-enable-lflow-cache").unwrap_or(true),
        lflow_cache_limit: number("ovn-limit-lflow-cache"),
        lflow_cache_limit_kb: number("ovn-memlimit-lflow-cache-kb"),
    }
}

fn usage(kind: ErrorKind, text: String) -> clap::Error {
    Options::command().error(kind, text)
}

fn option_mtu(option: &str, bytes: u64) -> Result<Mtu, String> {
    Mtu::try_from(bytes).map_err(|error: BadMtu| format!("{option}: {error}"))
}

/// The name is that of a Node object (DNS-1123 subdomain).
fn check_node_name(name: &str) -> Result<(), String> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    if (1..=253).contains(&name.len()) && name.bytes().all(good) {
        return Ok(());
    }
    Err(format!("--init-node {name:?} is no node's name: lower-case letters, digits, '-' and '.' (is it the value of another option?)"))
}

/// The level in the plugin's configuration: klog's number where there is one, which upstream's plugin understands, too.
fn conf_log_level(level: Level) -> &'static str {
    match level {
        Level::Error => "err",
        Level::Warn => "warn",
        Level::Info => "4",
        Level::Debug => "5",
    }
}

impl FromStr for Options {
    type Err = clap::Error;

    /// A command line as one text, without quoting: for tests and examples.
    fn from_str(line: &str) -> Result<Self, clap::Error> {
        Self::read(std::iter::once("ovnkube").chain(line.split_whitespace()).map(OsString::from))
    }
}

#[cfg(test)]
mod tests;
