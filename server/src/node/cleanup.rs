//! Removes what the server made on a node, so that another network can be installed there.
//!
//! Ports and interfaces of pods stay, for their runtime removes them by DEL; so do bridges. Both go
//! with [`Extent::All`]. A step that fails does not stop the others.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{
    names::IfName,
    node_annotation::GATEWAY_CONFIG,
    ovn::OWN_KINDS,
    paths::{INTEGRATION_BRIDGE, OLD_PLUGIN},
};
use kubeapi::{ApiServer, Connection};
use ovsdb::Endpoint;
use podnet::{
    bridge::Bridge,
    detach::{Detacher, Unflushed},
    interface_lock,
    nftables::ingress,
    settings::Settings,
};
use tokio::time::timeout;

use super::{
    annotations,
    gateway::{self, MAPPINGS, Removed},
    management_port::{self, INTERFACE},
    open_vswitch::{settings::SYSTEM_ID, switch::Switch},
    plugin::PluginInstall,
};
use crate::{chain, cni_conf::CniConf};

/// How long Open vSwitch's database, or the API server, may take for each step. Both answer at once
/// if they work. An administrator waits for this command, and is told to try again.
const PATIENCE: Duration = Duration::from_secs(5);

/// The places of everything that a server made.
#[derive(Debug, Clone)]
pub struct CleanupConfig {
    /// Name of the node.
    pub name: String,
    /// Open vSwitch's database.
    pub ovsdb: Endpoint,
    pub cni_conf: CniConf,
    pub plugin: PluginInstall,
    /// The server's socket.
    pub socket: PathBuf,
    /// The API server with the node's annotations, if there is one.
    pub api_server: Option<ApiServer>,
    pub extent: Extent,
}

/// What is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// What the server made. Pods keep their network.
    #[default]
    Server,
    /// The interfaces of pods, the integration bridge and the bridges of NICs, too.
    All,
}

/// Whether the node had a gateway of this program, and so the annotation of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HadGateway {
    Yes,
    No,
}

/// The steps that were done, in their order. `Display` prints a line for each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// What was removed, left or not there.
    pub lines: Vec<String>,
    /// What could not be removed, and why.
    pub failures: Vec<String>,
}

/// Removes the CNI configuration, the plugin, the gateway, the management port with its rules, the
/// node's annotations unless the node may be another host's, the settings in Open vSwitch's
/// database and the socket, as far as they are this program's. It is no error if something is gone
/// already. No server may run: it would put back what is removed.
///
/// # Errors
///
/// The runtime cannot be made: nothing was done. Steps that failed are in [`Cleaned::failures`]
/// instead.
pub fn cleanup(config: &CleanupConfig) -> io::Result<Cleaned> {
    clean(config, management_port::remove_rules())
}

/// The same. `rules` removes the nftables rules of this network namespace; tests put another future
/// in its place.
fn clean(
    config: &CleanupConfig,
    rules: impl Future<Output = io::Result<Option<&'static str>>>,
) -> io::Result<Cleaned> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;

    let mut cleaned = Cleaned::default();
    // The configuration first: from then on no runtime starts the plugin for a new pod.
    cleaned.cni_conf(config);
    let attached = runtime.block_on(async {
        let had_gateway = cleaned.gateway(config).await;
        // Before the settings: with them goes the name of the chassis.
        cleaned.annotations(config, had_gateway).await;
        cleaned.management_port(config).await;
        cleaned.rules(rules.await);
        if config.extent == Extent::All {
            cleaned.pods(config).await;
        }
        let attached = cleaned.open_vswitch(config).await;
        if config.extent == Extent::All {
            // After the settings: ovn-controller would make it anew.
            cleaned.integration_bridge(config).await;
            cleaned.bridges_of_nics(config).await;
            cleaned.ingress().await;
        }
        attached
    });
    // After Open vSwitch was asked: attached pods need the plugin for DEL.
    cleaned.plugin(&config.plugin, attached);
    cleaned.file("socket", &config.socket);
    let calls = interface_lock::directory_beside(&config.socket);
    cleaned.calls(&calls);
    let settings = Settings { calls, ..Settings::with_ovsdb(&config.ovsdb, PATIENCE) };
    cleaned.unflushed(Unflushed::of(&settings).path());
    // Not reported: the stamp means nothing after a minute without a server.
    let _ = std::fs::remove_file(podnet::stamp::file(&config.socket));
    // Last, because only an empty directory can be removed.
    if let Some(directory) = config.socket.parent() {
        cleaned.directory(directory);
    }
    Ok(cleaned)
}

/// Removes from a node that upstream's programs run the rules that only this program has:
/// upstream's follow no Service in them, and do not remove them. What both have stays, and so does
/// the pods' network. It is no error if something is gone already. A server of this program that
/// runs puts them back.
///
/// # Errors
///
/// The runtime cannot be made: nothing was done. Steps that failed are in [`Cleaned::failures`]
/// instead.
pub fn hand_back() -> io::Result<Cleaned> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut cleaned = Cleaned::default();
    runtime.block_on(async {
        match management_port::remove_own_rules().await {
            Ok(chains) if chains.is_empty() => {
                cleaned.say("there are no nftables chains of this program alone".to_owned());
            }
            Ok(chains) => cleaned
                .say(format!("removed nftables chains with their sets: {}", chains.join(" "))),
            Err(error) => cleaned.fail(format!("the nftables chains: {error}")),
        }
        cleaned.ingress().await;
    });
    cleaned.rows_without_an_owner();
    Ok(cleaned)
}

impl Cleaned {
    /// Names what this program's control plane may have left in the northbound database, which
    /// belongs to no node: denials that no object explains, where upstream's control plane has
    /// taken over.
    fn rows_without_an_owner(&mut self) {
        self.say(format!(
            "upstream's control plane does not know rows of the northbound database of the kinds {}: ovnkube \
             hand-back removes them",
            OWN_KINDS.join(", ")
        ));
    }

    /// Has the host's own stack handle again what NICs and ports of userspace bridges receive.
    async fn ingress(&mut self) {
        for kind in ingress::Devices::ALL {
            let devices = match kind.ignored().await {
                Ok(devices) if devices.is_empty() => continue,
                Ok(devices) => devices,
                Err(error) => return self.fail(format!("nftables' table of devices: {error}")),
            };
            let names = devices.iter().map(IfName::as_str).collect::<Vec<_>>().join(" ");
            match kind.heed(&devices).await {
                Ok(()) => {
                    self.say(format!("the host's own stack handles again what {names} receives"))
                }
                Err(error) => self.fail(format!("nftables' chains of {names}: {error}")),
            }
        }
    }

    fn cni_conf(&mut self, config: &CleanupConfig) {
        let path = config.cni_conf.directory.join(config.cni_conf.file.name());
        match config.cni_conf.uninstall() {
            Ok(true) => self.say(format!("removed the CNI configuration {}", path.display())),
            Ok(false) => self.say(format!("there is no CNI configuration {}", path.display())),
            Err(error) => self.fail(chain(&error)),
        }
    }

    /// Removes the plugin if its content is that of the one to install: otherwise it may be another
    /// program's. It stays while pods are attached: their sandboxes cannot be removed without a
    /// plugin that detaches them.
    fn plugin(&mut self, plugin: &PluginInstall, attached: Option<usize>) {
        let target = plugin.target();
        let content = match std::fs::read(&target) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.say(format!("there is no plugin {}", target.display()));
            }
            Err(error) => return self.fail(format!("plugin {}: {error}", target.display())),
        };
        // The plugin in place may be one of the sources, if the program runs from that directory.
        let same = |path: &PathBuf| {
            *path != target && std::fs::read(path).is_ok_and(|source| source == content)
        };
        if !plugin.sources().iter().any(same) {
            let why = "it differs from the one that is installed from here; remove it by hand if it is not needed";
            return self.say(format!("left the plugin {}: {why}", target.display()));
        }
        match attached {
            Some(0) => {
                self.file("plugin", &target);
                let old_name = plugin.directory.join(OLD_PLUGIN);
                if std::fs::read_link(&old_name)
                    .is_ok_and(|named| named.as_os_str() == plugin.name.as_str())
                {
                    self.file("plugin's old name", &old_name);
                }
            }
            Some(count) => {
                let why = format!(
                    "{count} interfaces of pods are attached, and their runtime needs it to detach them; \
                     delete the pods and try again"
                );
                self.say(format!("left the plugin {}: {why}", target.display()));
            }
            None => self.say(format!(
                "left the plugin {}: whether pods are attached is unknown",
                target.display()
            )),
        }
    }

    /// Removes the gateway. Its rows in the northbound database go with the node (`--remove-node`).
    async fn gateway(&mut self, config: &CleanupConfig) -> HadGateway {
        let endpoint = &config.ovsdb;
        let run_dir = Settings::with_ovsdb(endpoint, PATIENCE).ovs_run_dir;
        match timeout(PATIENCE, gateway::remove(endpoint, &run_dir)).await {
            Ok(Ok(Removed { lines })) if lines.is_empty() => {
                self.say(format!("there is no gateway in {endpoint}"));
                HadGateway::No
            }
            Ok(Ok(Removed { lines })) => {
                lines.into_iter().for_each(|line| self.say(line));
                HadGateway::Yes
            }
            Ok(Err(error)) => {
                self.fail(format!("gateway in {endpoint}: {}", chain(&error)));
                HadGateway::Yes
            }
            Err(_) => {
                self.fail(format!(
                    "gateway in {endpoint}: no answer within {} s",
                    PATIENCE.as_secs()
                ));
                HadGateway::No
            }
        }
    }

    /// Removes the annotations. An API server that does not answer, or a node that may be another
    /// host's, is a warning only: annotations that stay do not disturb the next network, which has
    /// its own.
    async fn annotations(&mut self, config: &CleanupConfig, had_gateway: HadGateway) {
        let name = &config.name;
        let Some(api_server) = &config.api_server else {
            return self
                .say(format!("warning: annotations of node {name} stay: no API server is known"));
        };
        let record =
            timeout(PATIENCE, Switch::connect_with_interfaces(&config.ovsdb).seen()).await.ok();
        let chassis = record.as_ref().and_then(|record| record.external_ids.get(SYSTEM_ID));
        let connection = Connection::open(api_server.clone());
        // Without a gateway of this program it is that of another one, whose bridge OVN is told of.
        // Or an earlier run, which did not reach the API server, has removed the gateway.
        let maps_bridges =
            record.as_ref().is_none_or(|record| record.external_ids.contains_key(MAPPINGS));
        let is_nobodys = had_gateway == HadGateway::Yes || !maps_bridges;
        let of_gateway = is_nobodys.then_some(GATEWAY_CONFIG);
        let removing =
            annotations::remove(&connection, name, of_gateway, chassis.map(String::as_str));
        let why = match timeout(PATIENCE, removing).await {
            Ok(Ok(keys)) if keys.is_empty() => {
                return self.say(format!("there are no annotations of ours on node {name}"));
            }
            Ok(Ok(keys)) => {
                return self.say(format!("removed annotations of node {name}: {}", keys.join(" ")));
            }
            Ok(Err(problem)) => problem,
            Err(_) => {
                format!(
                    "the API server {} did not answer within {} s",
                    connection.url(),
                    PATIENCE.as_secs()
                )
            }
        };
        self.say(format!("warning: annotations of node {name} stay: {why}"));
    }

    /// Removes the management port.
    async fn management_port(&mut self, config: &CleanupConfig) {
        let (endpoint, what) = (&config.ovsdb, format!("management port {INTERFACE}"));
        match timeout(PATIENCE, management_port::remove(endpoint, &config.name)).await {
            Ok(Ok(true)) => self
                .say(format!("removed the {what}, with its addresses and routes, from {endpoint}")),
            Ok(Ok(false)) => self.say(format!("there is no {what} in {endpoint}")),
            Ok(Err(error)) => self.fail(format!("{what} in {endpoint}: {}", chain(&error))),
            Err(_) => {
                self.fail(format!(
                    "{what} in {endpoint}: no answer within {} s",
                    PATIENCE.as_secs()
                ));
            }
        }
    }

    /// Removes the interfaces of all pods.
    async fn pods(&mut self, config: &CleanupConfig) {
        let settings = Settings::with_ovsdb(&config.ovsdb, PATIENCE);
        match Detacher::open(&settings, PATIENCE).await.detach_everything().await {
            Ok(removed) if removed.is_empty() => {
                self.say("there are no interfaces of pods".to_owned())
            }
            Ok(removed) => {
                let (ports, links): (usize, usize) =
                    removed.iter().fold((0, 0), |(ports, links), one| {
                        (ports + one.ports.len(), links + one.links.len())
                    });
                self.say(format!(
                    "removed the interfaces of pods: {ports} ports and {links} links"
                ));
            }
            Err(error) => self.fail(format!("interfaces of pods: {}", chain(&error))),
        }
    }

    async fn integration_bridge(&mut self, config: &CleanupConfig) {
        let settings = Settings::with_ovsdb(&config.ovsdb, PATIENCE);
        let removed = async { Bridge::connect(&settings.ovsdb, PATIENCE).await?.remove().await };
        match removed.await {
            Ok(true) => self.say(format!("removed the bridge {INTEGRATION_BRIDGE}")),
            Ok(false) => self.say(format!("there is no bridge {INTEGRATION_BRIDGE}")),
            Err(error) => self.fail(format!("bridge {INTEGRATION_BRIDGE}: {}", chain(&error))),
        }
    }

    /// Gives NICs back what their bridges took over.
    async fn bridges_of_nics(&mut self, config: &CleanupConfig) {
        let bridges = match uplink::made_bridges(&config.ovsdb).await {
            Ok(bridges) => bridges,
            Err(error) => return self.fail(format!("bridges of NICs: {}", chain(&error))),
        };
        for bridge in bridges {
            match uplink::bridge_to_nic(&config.ovsdb, &bridge).await {
                Ok(report) => {
                    report.into_iter().for_each(|line| self.say(format!("bridge {bridge}: {line}")))
                }
                Err(error) => self.fail(format!("bridge {bridge}: {}", chain(&error))),
            }
        }
    }

    fn rules(&mut self, outcome: io::Result<Option<&'static str>>) {
        match outcome {
            Ok(Some(table)) => self.say(format!("removed the nftables table inet {table}")),
            Ok(None) => self.say("there is no nftables table of ours".to_owned()),
            Err(error) => self.fail(format!("the nftables table: {error}")),
        }
    }

    /// Removes the settings. Returns the number of attached interfaces of pods; `None` if it is
    /// unknown.
    async fn open_vswitch(&mut self, config: &CleanupConfig) -> Option<usize> {
        let endpoint = &config.ovsdb;
        let mut switch = Switch::connect_with_interfaces(endpoint);
        match timeout(PATIENCE, switch.clean()).await {
            Ok(Ok(keys)) if keys.is_empty() => {
                self.say(format!("there are no settings of ours in {endpoint}"))
            }
            Ok(Ok(keys)) => self.say(format!("removed from {endpoint}: {}", keys.join(" "))),
            Ok(Err(error)) => {
                self.fail(format!("settings in {endpoint}: {}", chain(&error)));
                return None;
            }
            Err(_) => {
                let why = format!(
                    "no answer within {} s; start Open vSwitch and try again",
                    PATIENCE.as_secs()
                );
                self.fail(format!("settings in {endpoint}: {why}"));
                return None;
            }
        }
        let pods = switch.pods_interfaces();
        let count = pods.len();
        if count > 0 {
            // Some names are enough to find the pods; a node may have hundreds.
            let names = pods.into_iter().take(10).collect::<Vec<_>>().join(" ");
            self.say(format!(
                "warning: {count} interfaces of pods are still attached and stay: {names}; delete the pods"
            ));
        }
        Some(count)
    }

    /// Removes a file, and records the outcome. `what` names its kind in the line.
    pub fn file(&mut self, what: &str, path: &Path) {
        match std::fs::remove_file(path) {
            Ok(()) => self.say(format!("removed the {what} {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.say(format!("there is no {what} {}", path.display()))
            }
            Err(error) => self.fail(format!("{what} {}: {error}", path.display())),
        }
    }

    /// Removes the locks of the plugin's calls. A call in flight keeps its file.
    fn calls(&mut self, path: &Path) {
        if let Err(error) = interface_lock::remove_stale(path, Duration::ZERO) {
            self.say(format!("warning: directory {}: {error}", path.display()));
        }
        if path.exists() {
            self.directory(path);
        }
    }

    /// Removes the list of addresses whose tracked connections were left to the server. Those of
    /// pods that are gone end by themselves.
    fn unflushed(&mut self, path: &Path) {
        match std::fs::remove_dir_all(path) {
            Ok(()) => self.say(format!("removed the directory {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.fail(format!("directory {}: {error}", path.display())),
        }
    }

    /// Removes a directory if it is empty.
    fn directory(&mut self, path: &Path) {
        match std::fs::remove_dir(path) {
            Ok(()) => self.say(format!("removed the directory {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.say(format!("there is no directory {}", path.display()))
            }
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                self.say(format!(
                    "left the directory {}: there are other files in it",
                    path.display()
                ));
            }
            Err(error) => self.fail(format!("directory {}: {error}", path.display())),
        }
    }

    fn say(&mut self, line: String) {
        self.lines.push(line);
    }

    fn fail(&mut self, line: String) {
        self.failures.push(line);
    }
}

impl fmt::Display for Cleaned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.failures.iter().try_for_each(|line| writeln!(f, "failed: {line}"))
    }
}

#[cfg(test)]
mod tests;
