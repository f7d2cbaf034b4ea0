//! The configuration of a node's server.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use contract::paths::{OVN_RUN_DIR, OVSDB_ENDPOINT, SERVER_SOCKET};
use controller::config::Zone;
use kubeapi::ApiServer;
use ovsdb::Endpoint;
use ovslog::{
    Level,
    background::{LogConfig, Rotation},
};
use server::{
    cni_conf::{CniConf, ConfFile},
    node::{
        Chassis, Extent, GatewayConfig, ManagementPort, NodeConfig, OpenVSwitch, OtherZone,
        PluginInstall, PodsFrom,
    },
    requests::AddDefaults,
};

use super::{
    Collected, Problems, chassis,
    external_ids::{self, ExternalIds},
    gateway,
    kubernetes::{self, Source},
    management_port,
    reading::Reading,
    roles::Role,
    spec::Spec,
    table::{cni, databases, endpoints, logs, node, open_vswitch, roles},
    values,
};
use crate::{
    endpoints::{DaemonEndpoint, Endpoints, Tls},
    exporter::{Exported, ExporterPlaces},
};

/// The configuration that a node's server needs before it reads Open vSwitch's database; all that
/// `--cleanup-node` needs.
#[derive(Debug, Clone)]
pub struct Early {
    /// Name of the node.
    pub name: String,
    pub log: LogConfig,
    pub pidfile: Option<PathBuf>,
    /// Open vSwitch's database.
    pub ovsdb: Endpoint,
    /// Directory of ovn-controller's pidfile.
    pub ovn_run_dir: PathBuf,
    pub cni_conf: CniConf,
    pub plugin: PluginInstall,
    /// The server's socket.
    pub socket: PathBuf,
    pub endpoints: Endpoints,
    /// If the options give it without Open vSwitch's database.
    pub api_server: Option<ApiServer>,
    /// What `--cleanup-node` removes.
    pub extent: Extent,
}

/// The options of a node's server, for which an option that was not given may still come from Open
/// vSwitch's database; the database need not run yet when the options are read.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    early: Box<Early>,
    pub(super) collected: Collected,
}

/// The rest of the configuration, which waits for `external_ids`.
struct Late {
    source: Source,
    add: AddDefaults,
    chassis: Chassis,
    management_port: ManagementPort,
    gateway: Option<GatewayConfig>,
    zone: Zone,
    other_zone: Option<OtherZone>,
    stale_after: Option<Duration>,
}

impl NodeOptions {
    /// Checks all options, except those that are missing and may still come from `external_ids`.
    pub(super) fn of(collected: Collected) -> Result<Self, Problems> {
        let mut reading = collected.reading(Role::Node, &ExternalIds::Awaited);
        let early = reading.early();
        let pods = reading.late().map(|late| late.source.pods);
        // Both parts are parsed before this: the errors are reported together.
        reading.problems.none_or()?;
        let early = early.ok_or_else(Problems::incomplete)?;
        let early = Early { api_server: pods.and_then(PodsFrom::api_server), ..early };
        Ok(Self { early: Box::new(early), collected })
    }

    /// The part of the configuration that does not depend on Open vSwitch's database.
    pub fn early(&self) -> &Early {
        &self.early
    }

    /// Remarks on given options that have no effect.
    pub fn notes(&self) -> Vec<String> {
        self.collected.notes()
    }

    /// The configuration, with `external_ids` (of the `Open_vSwitch` table) as the last source
    /// before the defaults.
    ///
    /// # Errors
    ///
    /// All problems together.
    pub fn config(&self, external_ids: &BTreeMap<String, String>) -> Result<NodeConfig, Problems> {
        let mut reading =
            self.collected.reading(Role::Node, &ExternalIds::Read(external_ids.clone()));
        let late = reading.late();
        reading.problems.none_or()?;
        let Late {
            source,
            add,
            chassis,
            management_port,
            gateway,
            zone: Zone(zone),
            other_zone,
            stale_after,
        } = late.ok_or_else(Problems::incomplete)?;
        let Early {
            name,
            log: _,
            pidfile: _,
            ovsdb,
            ovn_run_dir,
            cni_conf,
            plugin,
            socket,
            extent: _,
            endpoints: _,
            api_server: _,
        } = (*self.early).clone();
        let open_vswitch = OpenVSwitch { endpoint: ovsdb, ovn_run_dir, chassis };
        let Source { pods, certificate } = source;
        Ok(NodeConfig {
            name,
            pods,
            certificate,
            add,
            cni_conf,
            plugin,
            socket,
            open_vswitch,
            management_port,
            gateway,
            zone,
            other_zone,
            stale_after,
        })
    }

    /// Checks that the source of pods is known. If only `external_ids` can have it, reads them now:
    /// otherwise the server would wait for the database, only to report a missing option.
    ///
    /// # Errors
    ///
    /// If `external_ids` lack it, too, or cannot be read: all problems together.
    pub fn confirm(&self) -> Result<(), Problems> {
        if kubernetes::is_source_known(&self.collected.settings) {
            return Ok(());
        }
        let external_ids = external_ids::read_now(&self.early.ovsdb);
        let mut reading = self.collected.reading(Role::Node, &external_ids);
        reading.late();
        reading.problems.none_or()
    }
}

impl Collected {
    /// What `--cleanup-node` and `--hand-back-node` need. Errors of the way to the API server do
    /// not count: the rest is cleaned up without it.
    pub(super) fn early(&self, external_ids: &ExternalIds) -> Result<Early, Problems> {
        let mut reading = self.reading(Role::CleanupNode, external_ids);
        let early = reading.early();
        reading.problems.clone().none_or()?;
        let api_server = kubernetes::pods(&mut reading).and_then(|source| source.pods.api_server());
        Ok(Early { api_server, ..early.ok_or_else(Problems::incomplete)? })
    }

    /// Open vSwitch's database, if the options name it in a usable form.
    pub(super) fn ovsdb(&self) -> Option<Endpoint> {
        self.reading(Role::Node, &ExternalIds::Awaited).ovsdb()
    }

    /// The errors of a node's server with these `external_ids`.
    pub(super) fn check_node(&self, external_ids: &ExternalIds) -> Result<(), Problems> {
        let mut reading = self.reading(Role::Node, external_ids);
        reading.early();
        reading.late();
        reading.problems.none_or()
    }
}

impl Reading {
    /// The options that do not wait for Open vSwitch's database. None of them can be in
    /// `external_ids`.
    fn early(&mut self) -> Option<Early> {
        let named = [&roles::INIT_NODE, &roles::HAND_BACK_NODE];
        let given = named.into_iter().find(|spec| self.settings.given(spec).is_some());
        let name_of = given.unwrap_or(&roles::CLEANUP_NODE);
        let name = self.read_given(name_of, values::node_name);
        let socket = self.read(&cni::SOCKET, values::whole_path);
        let plugin = self.read(&cni::PLUGIN_NAME, values::file_name);
        let file = self.read(&cni::CONF_FILE, values::conf_file);
        let chain = self.read_given(&cni::CHAIN, values::whole_path);
        if let (Some(_), Some(ConfFile::Single(name))) = (&chain, &file) {
            self.problems.add(format!(
                "--cni-chain needs a list of plugins, and --cni-conf-file {name:?} is of the form of a \
                 single one"
            ));
        }
        // Not checked: the server waits until the plugin is there.
        let source =
            self.settings.given(&cni::PLUGIN_SOURCE).map(|setting| setting.value.clone().into());
        let log = self.log();
        let ovsdb = self.ovsdb();
        let ovn_run_dir = self.read(&open_vswitch::OVN_RUN_DIR, values::whole_path);
        let netns_link = self.switch(&cni::NETNS_LINK);
        let host_ovs_run_dir = self.read_given(&open_vswitch::HOST_OVS_RUN_DIR, values::whole_path);
        let host_ovn_run_dir = self.read_given(&open_vswitch::HOST_OVN_RUN_DIR, values::whole_path);
        let endpoints = self.endpoints();
        let (name, socket, plugin, file, log, ovsdb, ovn_run_dir) =
            (name?, socket?, plugin?, file?, log?, ovsdb?, ovn_run_dir?);
        // The plugin runs on the host: its configuration has the host's paths, not those of this
        // container.
        let endpoint_on_host = host_ovs_run_dir
            .map_or_else(|| ovsdb.clone(), |directory| in_directory(&ovsdb, &directory))
            .to_string();
        let ovn_run_dir_on_host = host_ovn_run_dir.unwrap_or_else(|| ovn_run_dir.clone());
        Some(Early {
            name,
            cni_conf: CniConf {
                directory: self.path(&cni::CONF_DIR),
                file,
                plugin: plugin.clone(),
                plugin_directory: self.path(&cni::BIN_DIR),
                log_file: self.settings.value(&logs::CNILOGFILE).value,
                log_level: conf_log_level(log.level).to_owned(),
                // The plugin has the same defaults: only other paths are written.
                server_socket: Some(socket.clone())
                    .filter(|socket| socket.as_os_str() != SERVER_SOCKET),
                ovsdb_endpoint: Some(endpoint_on_host)
                    .filter(|endpoint| endpoint != OVSDB_ENDPOINT),
                ovn_run_dir: Some(ovn_run_dir_on_host)
                    .filter(|directory| directory.as_os_str() != OVN_RUN_DIR),
                netns_link: netns_link?,
                chain,
            },
            plugin: PluginInstall { source, directory: self.path(&cni::BIN_DIR), name: plugin },
            pidfile: self
                .settings
                .given(&roles::PIDFILE)
                .map(|setting| setting.value.clone().into()),
            ovsdb,
            ovn_run_dir,
            endpoints: endpoints?,
            api_server: None,
            extent: if self.switch(&roles::EVERYTHING)? { Extent::All } else { Extent::Server },
            socket,
            log,
        })
    }

    /// The options that may also be in `external_ids`, and those that are only needed with them.
    fn late(&mut self) -> Option<Late> {
        let source = kubernetes::pods(self);
        let add = self.add_defaults();
        let chassis = chassis::chassis(self);
        let management_port = management_port::management_port(self);
        let gateway = gateway::gateway(self);
        let zone = super::cluster::zone(self);
        let other_zone = chassis::other_zone(self);
        let stale_after = self
            .number(&node::STALE_AFTER)
            .map(|seconds| (seconds > 0).then(|| Duration::from_secs(seconds)));
        // Only checked: there is one mode.
        self.read(&node::NODE_MODE_OPTION, values::node_mode);
        Some(Late {
            source: source?,
            add: add?,
            chassis: chassis?,
            management_port: management_port?,
            gateway: gateway?,
            zone: zone?,
            other_zone: other_zone?,
            stale_after: stale_after?,
        })
    }

    pub(super) fn log(&mut self) -> Option<LogConfig> {
        let level = self.read(&logs::LOGLEVEL, values::level);
        let (size, backups, age) = (
            self.number(&logs::MAX_SIZE),
            self.number(&logs::MAX_BACKUPS),
            self.number(&logs::MAX_AGE),
        );
        let rotation = Rotation {
            max_size: size?,
            max_backups: usize::try_from(backups?).unwrap_or(usize::MAX),
            max_age: age?,
        };
        Some(LogConfig { file: self.path(&logs::LOGFILE), level: level?, rotation })
    }

    /// `--ovsdb-endpoint`, else the socket in `--ovs-run-dir`.
    pub(super) fn ovsdb(&mut self) -> Option<Endpoint> {
        match self
            .settings
            .given(&open_vswitch::OVS_RUN_DIR)
            .map(|setting| PathBuf::from(&setting.value))
        {
            Some(directory) if self.settings.given(&open_vswitch::OVSDB_ENDPOINT).is_none() => {
                Some(Endpoint::Unix(directory.join("db.sock")))
            }
            _ => self.read(&open_vswitch::OVSDB_ENDPOINT, values::endpoint),
        }
    }

    fn add_defaults(&mut self) -> Option<AddDefaults> {
        let mtu = self.read(&node::MTU, values::mtu);
        let routable_mtu = self.read(&node::ROUTABLE_MTU, values::mtu_or_none);
        let (mtu, routable_mtu) = (mtu?, routable_mtu?);
        if let Some(routable) = routable_mtu.filter(|routable| *routable > mtu) {
            let how = self.settings.value(&node::ROUTABLE_MTU).origin.names(&node::ROUTABLE_MTU);
            self.problems.add(format!("{how} {routable} is more than --mtu {mtu}: lower it"));
        }
        Some(AddDefaults { mtu, routable_mtu })
    }

    pub(super) fn endpoints(&mut self) -> Option<Endpoints> {
        let metrics = self.read_given(&endpoints::METRICS, values::bind_address);
        let healthz = self.read_given(&endpoints::HEALTHZ, values::bind_address);
        let (key, certificate) =
            (self.file(&endpoints::NODE_SERVER_PRIVKEY), self.file(&endpoints::NODE_SERVER_CERT));
        let given = |spec: &Spec| self.settings.given(spec).is_some();
        if given(&endpoints::NODE_SERVER_PRIVKEY) != given(&endpoints::NODE_SERVER_CERT) {
            self.problems.add(
                "--node-server-privkey and --node-server-cert: one is of no use without the other",
            );
        }
        let tls = key.zip(certificate).map(|(key, certificate)| Tls { key, certificate });
        let daemons = self.read_given(&endpoints::OVN_METRICS, values::bind_address);
        let daemons = match daemons {
            Some(address) => Some(self.daemons(address)?),
            None => None,
        };
        Some(Endpoints { metrics, healthz, daemons, tls })
    }

    /// The metrics of OVN, and with `--export-ovs-metrics` those of Open vSwitch.
    fn daemons(&mut self, address: SocketAddr) -> Option<DaemonEndpoint> {
        let exported = match self.switch(&endpoints::EXPORT_OVS_METRICS)? {
            true => Exported::Both,
            false => Exported::Ovn,
        };
        Some(DaemonEndpoint { address, places: self.exporter_places()?, exported })
    }

    /// Where the daemons of this machine are asked for metrics.
    pub(super) fn exporter_places(&mut self) -> Option<ExporterPlaces> {
        Some(ExporterPlaces {
            ovsdb: self.ovsdb()?,
            ovs_run_dir: self.path(&open_vswitch::OVS_RUN_DIR),
            ovn_run_dir: self.path(&open_vswitch::OVN_RUN_DIR),
            northbound_file: self.path(&databases::NB_DB_LOCATION),
            southbound_file: self.path(&databases::SB_DB_LOCATION),
        })
    }
}

/// The same socket in another directory. An address over TCP stays: it is the same on the host.
fn in_directory(endpoint: &Endpoint, directory: &Path) -> Endpoint {
    match endpoint {
        Endpoint::Unix(socket) => {
            Endpoint::Unix(directory.join(socket.file_name().unwrap_or_else(|| "db.sock".as_ref())))
        }
        Endpoint::Tcp { .. } | Endpoint::Ssl { .. } => endpoint.clone(),
    }
}

/// The level in the plugin's configuration: a number where there is one, because upstream's plugin
/// understands it, too.
fn conf_log_level(level: Level) -> &'static str {
    match level {
        Level::Error => "err",
        Level::Warn => "warn",
        Level::Info => "4",
        Level::Debug => "5",
    }
}
