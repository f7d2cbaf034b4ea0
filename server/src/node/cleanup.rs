//! `--cleanup-node`: takes away what the server made on a node, so that another network can be installed there.
//!
//! Pods' ports and interfaces are not touched: their runtime removes them, with the plugin of the next network or by DEL before. What
//! fails does not keep the rest from being done.

use std::{
    fmt, io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use kubeapi::Connection;
use podnet::fence;
use tokio::time::timeout;

use super::{
    annotations,
    management_port::{self, INTERFACE},
    open_vswitch::switch::Switch,
    plugin::PluginInstall,
};
use crate::{chain, options::Early, process::pidfile};

/// How long Open vSwitch's database may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was done, in the order of doing. `Display` is a line for each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleaned {
    pub lines: Vec<String>,
    /// What could not be done, and why.
    pub failures: Vec<String>,
}

/// Why nothing, or not everything, was done.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    #[error("a server answers on {0:?}: stop it first (systemctl stop ovnkube-node, or delete its pod)")]
    Running(PathBuf),
    #[error("a running server holds {0:?}: stop it first")]
    Pidfile(PathBuf),
    #[error("the runtime of this program")]
    Runtime(#[source] io::Error),
    #[error("not everything was cleaned up:\n{0}")]
    Incomplete(Cleaned),
}

/// Removes the CNI configuration, the plugin, the management port with its rules, the node's annotations, the settings in Open vSwitch's
/// database, the socket and the pidfile, as far as they are this program's. What is gone already is fine.
///
/// An error holds what was done, too.
pub fn cleanup(early: &Early) -> Result<Cleaned, CleanupError> {
    clean(early, management_port::remove_rules())
}

/// The same; `rules` removes those of the namespace that the process is in.
fn clean(early: &Early, rules: impl Future<Output = io::Result<Option<&'static str>>>) -> Result<Cleaned, CleanupError> {
    if UnixStream::connect(&early.socket).is_ok() {
        return Err(CleanupError::Running(early.socket.clone()));
    }
    if let Some(path) = early.pidfile.as_deref().filter(|path| pidfile::is_held(path)) {
        return Err(CleanupError::Pidfile(path.to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CleanupError::Runtime)?;

    let mut cleaned = Cleaned::default();
    // The configuration goes first: from then on no runtime starts the plugin for a new pod.
    cleaned.cni_conf(early);
    let attached = runtime.block_on(async {
        cleaned.annotations(early).await;
        cleaned.management_port(early).await;
        cleaned.rules(rules.await);
        cleaned.open_vswitch(early).await
    });
    cleaned.plugin(&early.plugin, attached);
    cleaned.file("socket", &early.socket);
    cleaned.calls(&fence::directory_beside(&early.socket));
    // Not worth a word: without a server it counts for a minute.
    let _ = std::fs::remove_file(podnet::stamp::file(&early.socket));
    if let Some(directory) = early.socket.parent() {
        cleaned.directory(directory);
    }
    if let Some(path) = &early.pidfile {
        cleaned.file("pidfile", path);
    }
    if cleaned.failures.is_empty() { Ok(cleaned) } else { Err(CleanupError::Incomplete(cleaned)) }
}

impl Cleaned {
    fn cni_conf(&mut self, early: &Early) {
        let path = early.cni_conf.directory.join(early.cni_conf.file.name());
        match early.cni_conf.uninstall() {
            Ok(true) => self.say(format!("removed the CNI configuration {}", path.display())),
            Ok(false) => self.say(format!("there is no CNI configuration {}", path.display())),
            Err(error) => self.fail(chain(&error)),
        }
    }

    /// Ours is the one that would be installed; another may be another program's.
    ///
    /// Nothing but this plugin detaches pods that are attached: without it their sandboxes cannot be removed.
    fn plugin(&mut self, plugin: &PluginInstall, attached: Option<usize>) {
        let target = plugin.target();
        let content = match std::fs::read(&target) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.say(format!("there is no plugin {}", target.display())),
            Err(error) => return self.fail(format!("plugin {}: {error}", target.display())),
        };
        let same = |path: &PathBuf| *path != target && std::fs::read(path).is_ok_and(|source| source == content);
        if !plugin.sources().iter().any(same) {
            let why = "it is not the same as the one that is installed from here; remove it by hand if nobody needs it";
            return self.say(format!("left the plugin {}: {why}", target.display()));
        }
        match attached {
            Some(0) => self.file("plugin", &target),
            Some(count) => {
                let why = format!(
                    "{count} interfaces of pods are attached, and their runtime needs it to detach them; delete the pods and try again"
                );
                self.say(format!("left the plugin {}: {why}", target.display()));
            }
            None => self.say(format!("left the plugin {}: nobody knows whether pods are attached", target.display())),
        }
    }

    /// Without an API server, or without one that answers, they stay: the next network's are others.
    async fn annotations(&mut self, early: &Early) {
        let (Some(api_server), name) = (&early.api_server, &early.name) else { return };
        let connection = Connection::open(api_server.clone());
        let why = match timeout(PATIENCE, annotations::remove(&connection, name)).await {
            Ok(Ok(keys)) if keys.is_empty() => return self.say(format!("there are no annotations of ours on node {name}")),
            Ok(Ok(keys)) => return self.say(format!("removed annotations of node {name}: {}", keys.join(" "))),
            Ok(Err(problem)) => problem,
            Err(_) => format!("the API server {} did not answer within {} s", connection.url(), PATIENCE.as_secs()),
        };
        self.say(format!("warning: annotations of node {name} stay: {why}"));
    }

    async fn management_port(&mut self, early: &Early) {
        let (endpoint, what) = (&early.ovsdb, format!("management port {INTERFACE}"));
        match timeout(PATIENCE, management_port::remove(endpoint, &early.name)).await {
            Ok(Ok(true)) => self.say(format!("removed the {what}, with its addresses and routes, from {endpoint}")),
            Ok(Ok(false)) => self.say(format!("there is no {what} in {endpoint}")),
            Ok(Err(error)) => self.fail(format!("{what} in {endpoint}: {}", chain(&error))),
            // The settings' failure says the same.
            Err(_) => {}
        }
    }

    fn rules(&mut self, outcome: io::Result<Option<&'static str>>) {
        match outcome {
            Ok(Some(table)) => self.say(format!("removed the nftables table inet {table}")),
            Ok(None) => self.say("there is no nftables table of ours".to_owned()),
            Err(error) => self.fail(format!("the nftables table: {error}")),
        }
    }

    /// How many interfaces of pods are attached; none if that cannot be said.
    async fn open_vswitch(&mut self, early: &Early) -> Option<usize> {
        let endpoint = &early.ovsdb;
        let mut switch = Switch::connect_with_interfaces(endpoint);
        match timeout(PATIENCE, switch.clean()).await {
            Ok(Ok(keys)) if keys.is_empty() => self.say(format!("there are no settings of ours in {endpoint}")),
            Ok(Ok(keys)) => self.say(format!("removed from {endpoint}: {}", keys.join(" "))),
            Ok(Err(error)) => {
                self.fail(format!("settings in {endpoint}: {}", chain(&error)));
                return None;
            }
            Err(_) => {
                let why = format!("no answer within {} s; start Open vSwitch and try again", PATIENCE.as_secs());
                self.fail(format!("settings in {endpoint}: {why}"));
                return None;
            }
        }
        let pods = switch.pods_interfaces();
        let count = pods.len();
        if count > 0 {
            let names = pods.into_iter().take(10).collect::<Vec<_>>().join(" ");
            self.say(format!("warning: {count} interfaces of pods are still attached and stay: {names}; delete the pods"));
        }
        Some(count)
    }

    fn file(&mut self, what: &str, path: &Path) {
        match std::fs::remove_file(path) {
            Ok(()) => self.say(format!("removed the {what} {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.say(format!("there is no {what} {}", path.display())),
            Err(error) => self.fail(format!("{what} {}: {error}", path.display())),
        }
    }

    /// Where calls of the plugin are kept apart; one that is under way keeps its file.
    fn calls(&mut self, path: &Path) {
        if let Err(error) = fence::remove_stale(path, Duration::ZERO) {
            self.say(format!("warning: directory {}: {error}", path.display()));
        }
        if path.exists() {
            self.directory(path);
        }
    }

    /// Only if nothing is in it.
    fn directory(&mut self, path: &Path) {
        match std::fs::remove_dir(path) {
            Ok(()) => self.say(format!("removed the directory {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.say(format!("there is no directory {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                self.say(format!("left the directory {}: there are other files in it", path.display()));
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
