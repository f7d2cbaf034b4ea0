//! The configuration of a node's server.

use std::{
    collections::BTreeMap,
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
    node::{NodeConfig, OpenVSwitch, PluginInstall, PodsFrom},
    requests::AddDefaults,
};

use super::{
    Looked, NodeOptions, Problems, chassis, check,
    environment::readable,
    kind, kubernetes, management_port, networks,
    problems::Gathered,
    sentence,
    settings::{Origin, Setting, Settings},
    spec::Spec,
    table::{self, cluster, cni, endpoints, logs, node, open_vswitch, roles},
    values,
};
use crate::endpoints::{Endpoints, Tls};

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
}

/// The state of `external_ids`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known<'a> {
    NotYet,
    Read(&'a BTreeMap<String, String>),
}

/// Parses settings into typed values, and gathers the errors.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) settings: Settings,
    pub(super) problems: Gathered,
    /// All sources have been read: a missing option is an error.
    pub(super) complete: bool,
    /// A server waits for files of credentials that do not exist yet; a command that ends does not.
    pub(super) waits: bool,
    /// Why `external_ids` could not be read, if they could not.
    pub(super) unread: Option<String>,
}

impl NodeOptions {
    /// The configuration of a node's server. `None` if an option is missing that may still come from
    /// `external_ids`.
    pub(super) fn resolve(&self, known: Known<'_>) -> Result<Option<NodeConfig>, Problems> {
        let mut reading = self.reading(known);
        let early = reading.early();
        let pods = kubernetes::pods(&mut reading);
        let add = reading.add_defaults();
        let chassis = chassis::chassis(&mut reading);
        let management_port = management_port::management_port(&mut reading);
        let zone = reading.read(&cluster::ZONE, networks::zone);
        let stale_after = reading
            .number(&node::STALE_AFTER)
            .map(|seconds| (seconds > 0).then(|| Duration::from_secs(seconds)));
        // Only checked: there is one mode.
        reading.read(&node::NODE_MODE_OPTION, values::node_mode);
        // All options are parsed before this: the errors are reported together.
        reading.problems.none_or()?;
        let (Some(early), Some(pods), Some(add)) = (early, pods, add) else { return Ok(None) };
        let (Some(chassis), Some(management_port), Some(Zone(zone))) = (chassis, management_port, zone)
        else {
            return Ok(None);
        };
        let Some(stale_after) = stale_after else { return Ok(None) };
        let Early {
            name,
            log: _,
            pidfile: _,
            ovsdb,
            ovn_run_dir,
            cni_conf,
            plugin,
            socket,
            endpoints: _,
            api_server: _,
        } = early;
        let open_vswitch = OpenVSwitch { endpoint: ovsdb, ovn_run_dir, chassis };
        Ok(Some(NodeConfig {
            name,
            pods,
            add,
            cni_conf,
            plugin,
            socket,
            open_vswitch,
            management_port,
            zone,
            stale_after,
        }))
    }

    pub(super) fn resolve_early(&self) -> Result<Early, Problems> {
        let mut reading = self.reading(Known::NotYet);
        let early = reading.early();
        reading.problems.none_or()?;
        let early = early.ok_or_else(|| Problems::from("the options are incomplete".to_owned()))?;
        Ok(Early { api_server: self.api_server(), ..early })
    }

    /// The API server, if it is known already. Its errors do not count here.
    fn api_server(&self) -> Option<ApiServer> {
        match kubernetes::pods(&mut self.reading(Known::NotYet)) {
            Some(PodsFrom::ApiServer(api_server)) => Some(api_server),
            Some(PodsFrom::Manifests(_)) | None => None,
        }
    }

    pub(super) fn reading(&self, known: Known<'_>) -> Reading {
        match known {
            Known::NotYet => Reading {
                settings: self.settings.clone(),
                problems: self.problems.clone(),
                complete: false,
                waits: true,
                unread: None,
            },
            Known::Read(external_ids) => self.reading_of(self.settings.with_external_ids(external_ids)),
        }
    }

    /// For settings that include `external_ids`, whose values are checked here.
    fn reading_of(&self, settings: Settings) -> Reading {
        let mut problems = self.problems.clone();
        // Only these: the other values were checked when they were read.
        for spec in table::all() {
            let from_there =
                settings.given(spec).filter(|setting| matches!(setting.origin, Origin::ExternalId(_)));
            problems.take(from_there.map_or(Ok(()), |setting| check(spec, setting)));
        }
        Reading { settings, problems, complete: true, waits: true, unread: None }
    }

    /// For a role that reads `external_ids` once: no further source will come.
    pub(super) fn reading_once(&self, looked: &Looked) -> Reading {
        match looked {
            Looked::Found(settings) => self.reading_of(settings.clone()),
            Looked::NotYet => Reading { complete: true, ..self.reading(Known::NotYet) },
            Looked::Failed(reason) => {
                Reading { complete: true, unread: Some(reason.clone()), ..self.reading(Known::NotYet) }
            }
        }
    }
}

impl Reading {
    /// The value that counts, parsed.
    pub(super) fn read<T>(
        &mut self,
        spec: &'static Spec,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let setting = self.settings.value(spec);
        self.problems.take(parse(&setting.value).map_err(|reason| sentence(spec, &setting, &reason)))
    }

    /// The same; `None` if only the default counts.
    pub(super) fn read_given<T>(
        &mut self,
        spec: &'static Spec,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if self.settings.given(spec).is_some() { self.read(spec, parse) } else { None }
    }

    pub(super) fn path(&self, spec: &'static Spec) -> PathBuf {
        self.settings.value(spec).value.into()
    }

    pub(super) fn switch(&mut self, spec: &'static Spec) -> Option<bool> {
        self.read(spec, kind::switch)
    }

    pub(super) fn number(&mut self, spec: &'static Spec) -> Option<u64> {
        self.read(spec, |text| kind::number(text, 0, u64::MAX))
    }

    /// The file that was given, if it can be read.
    pub(super) fn file(&mut self, spec: &'static Spec) -> Option<PathBuf> {
        let setting = self.settings.given(spec)?.clone();
        self.file_of(spec, &setting)
    }

    pub(super) fn file_of(&mut self, spec: &'static Spec, setting: &Setting) -> Option<PathBuf> {
        let path = PathBuf::from(&setting.value);
        let wrong = |reason: String| format!("{}: {reason}", setting.names(spec));
        self.problems.take(readable(&path).map_err(wrong)).map(|()| path)
    }

    /// A file with credentials. On a node that boots, or joins its cluster later, it need not exist yet.
    pub(super) fn awaited_file(&mut self, spec: &'static Spec) -> Option<PathBuf> {
        let setting = self.settings.given(spec)?.clone();
        self.awaited_file_of(spec, &setting)
    }

    pub(super) fn awaited_file_of(&mut self, spec: &'static Spec, setting: &Setting) -> Option<PathBuf> {
        let path = PathBuf::from(&setting.value);
        // Only if it surely does not exist: a directory, or one without permission, is an error now.
        if self.waits && matches!(path.try_exists(), Ok(false)) {
            Some(path)
        } else {
            self.file_of(spec, setting)
        }
    }

    fn early(&mut self) -> Option<Early> {
        let name_of = if self.settings.given(&roles::INIT_NODE).is_some() {
            &roles::INIT_NODE
        } else {
            &roles::CLEANUP_NODE
        };
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
        let source = self.settings.given(&cni::PLUGIN_SOURCE).map(|setting| setting.value.clone().into());
        let log = self.log();
        let ovsdb = self.ovsdb();
        let ovn_run_dir = self.read(&open_vswitch::OVN_RUN_DIR, values::whole_path);
        let host_ovs_run_dir = self.read_given(&open_vswitch::HOST_OVS_RUN_DIR, values::whole_path);
        let host_ovn_run_dir = self.read_given(&open_vswitch::HOST_OVN_RUN_DIR, values::whole_path);
        let endpoints = self.endpoints();
        let (name, socket, plugin, file, log, ovsdb, ovn_run_dir) =
            (name?, socket?, plugin?, file?, log?, ovsdb?, ovn_run_dir?);
        // The plugin runs on the host: its configuration has the host's paths, not those of this container.
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
                log_file: self.settings.value(&logs::CNILOGFILE).value,
                log_level: conf_log_level(log.level).to_owned(),
                // The plugin has the same defaults: only other paths are written.
                server_socket: Some(socket.clone()).filter(|socket| socket.as_os_str() != SERVER_SOCKET),
                ovsdb_endpoint: Some(endpoint_on_host).filter(|endpoint| endpoint != OVSDB_ENDPOINT),
                ovn_run_dir: Some(ovn_run_dir_on_host)
                    .filter(|directory| directory.as_os_str() != OVN_RUN_DIR),
                chain,
            },
            plugin: PluginInstall { source, directory: self.path(&cni::BIN_DIR), name: plugin },
            pidfile: self.settings.given(&roles::PIDFILE).map(|setting| setting.value.clone().into()),
            ovsdb,
            ovn_run_dir,
            endpoints: endpoints?,
            api_server: None,
            socket,
            log,
        })
    }

    pub(super) fn log(&mut self) -> Option<LogConfig> {
        let level = self.read(&logs::LOGLEVEL, values::level);
        let (size, backups, age) =
            (self.number(&logs::MAX_SIZE), self.number(&logs::MAX_BACKUPS), self.number(&logs::MAX_AGE));
        let rotation = Rotation {
            max_size: size?,
            max_backups: usize::try_from(backups?).unwrap_or(usize::MAX),
            max_age: age?,
        };
        Some(LogConfig { file: self.path(&logs::LOGFILE), level: level?, rotation })
    }

    /// `--ovsdb-endpoint`, else the socket in `--ovs-run-dir`.
    pub(super) fn ovsdb(&mut self) -> Option<Endpoint> {
        match self.settings.given(&open_vswitch::OVS_RUN_DIR).map(|setting| PathBuf::from(&setting.value)) {
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
            self.problems
                .add("--node-server-privkey and --node-server-cert: one is of no use without the other");
        }
        let tls = key.zip(certificate).map(|(key, certificate)| Tls { key, certificate });
        Some(Endpoints { metrics, healthz, tls })
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

/// Whether a switch is on. A wrong value is off here; [`check`] reports it.
pub(super) fn switch(settings: &Settings, spec: &'static Spec) -> bool {
    kind::switch(&settings.value(spec).value).unwrap_or(false)
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
