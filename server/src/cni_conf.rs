//! The CNI configuration that makes runtimes use the plugin. It is written once the server answers
//! the plugin, and kept in place from then on. It stays when the server stops, so that no runtime
//! falls back to another network meanwhile.

use std::{
    ffi::OsStr,
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use contract::{
    net_conf::Places,
    paths::{CNI_CONF_FILE, NETWORK_NAME, OLD_PLUGIN, UPSTREAM_CNI_CONF_FILE},
};
use serde::{Deserialize, Serialize};

use self::chain::Chain;
use crate::atomic_file::{link, replace};

mod chain;
mod follow;

pub use chain::ChainError;
pub(crate) use follow::ConfReconciler;

/// Extensions of the files that runtimes load (the Go library's `libcni.ConfFiles`).
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];
/// CNI versions of the list form, if there is only our plugin; the best one last.
const VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];
/// Types of plugins that call the cluster's own network besides others: a configuration with one of
/// them leads to ours.
const LEADS_TO_OURS: [&str; 2] = ["\"multus\"", "\"multus-shim\""];

/// The configuration's content and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniConf {
    pub directory: PathBuf,
    pub file: ConfFile,
    /// File name of the plugin.
    pub plugin: String,
    /// Directory of the plugin, where runtimes look for it.
    pub plugin_directory: PathBuf,
    /// The plugin's log file.
    pub log_file: String,
    pub log_level: String,
    /// Place of the server's socket, unless it is the usual one.
    pub server_socket: Option<PathBuf>,
    /// Endpoint of Open vSwitch's database, unless it is the usual one.
    pub ovsdb_endpoint: Option<String>,
    /// Directory of ovn-controller's process id, unless it is the usual one.
    pub ovn_run_dir: Option<PathBuf>,
    /// Pods' namespaces get names for `ip netns`.
    pub netns_link: bool,
    /// A file or directory of plugins that runtimes call after ours; in the list form only.
    pub chain: Option<PathBuf>,
}

/// A file name, which decides the form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfFile {
    /// `….conflist`
    List(String),
    /// `….conf`: a single plugin, for runtimes of before 2018.
    Single(String),
}

/// A name that runtimes do not load, or of a file elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a file name that ends with .conflist or .conf")]
pub struct BadConfFile(String);

/// Why the configuration is not in place.
#[derive(Debug, thiserror::Error)]
pub enum CniConfError {
    #[error("CNI configuration {path:?}")]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error("{path:?}, the plugin's old name, which {conf} calls")]
    OldName { path: PathBuf, conf: String, source: io::Error },
}

/// A configuration that runtimes use instead of ours, because its name comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preferred {
    pub(crate) path: PathBuf,
    network: String,
    /// It leads to ours: Multus, or another form of the same network.
    pub(crate) is_ours: bool,
    /// It calls the plugin under the name of the Python programs.
    has_old_name: bool,
}

impl std::fmt::Display for Preferred {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, network, is_ours: _, has_old_name: _ } = self;
        write!(
            f,
            "runtimes prefer {} (network {network:?}) to ours: remove it if it is stale, \
             or give --cni-conf-file a name before it",
            path.display()
        )
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    cni_version: &'static str,
    cni_versions: Vec<&'static str>,
    name: &'static str,
    plugins: Vec<Chained<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Chained<'a> {
    Ours(Plugin<'a>),
    Others(serde_json::Map<String, serde_json::Value>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Single<'a> {
    cni_version: &'static str,
    name: &'static str,
    #[serde(flatten)]
    plugin: Plugin<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Plugin<'a> {
    r#type: &'a str,
    log_file: &'a str,
    log_level: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_socket: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ovsdb_endpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ovn_run_dir: Option<&'a Path>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    netns_link: bool,
}

impl CniConf {
    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.file.name())
    }

    /// Writes the file unless it is in place already, removes what earlier programs wrote for the
    /// same network, and warns if runtimes prefer another file.
    ///
    /// # Errors
    ///
    /// [`CniConfError::Chain`] if the chained plugins cannot be read or used, [`CniConfError::Io`]
    /// if the directory or the file cannot be written.
    pub fn install(&self) -> Result<(), CniConfError> {
        let path = self.path();
        if self.put()? {
            tracing::info!(path = %path.display(), "wrote the CNI configuration");
        } else {
            tracing::info!(path = %path.display(), "the CNI configuration is in place already");
        }
        // Only now: a runtime must never find the directory without a configuration of this
        // network.
        self.remove_predecessors();
        let preferred = self.preferred();
        self.answer_to_old_name(preferred.as_ref())?;
        if let Some(why) = preferred.filter(|other| !other.is_ours) {
            tracing::warn!(%why, "pods of this node get another network");
        }
        Ok(())
    }

    /// Where runtimes prefer a configuration of the Python programs, they find the plugin under the
    /// name that it has there. The file stays: it has the name of the network under which runtimes
    /// remember pods that run, and GC with another name would take those for stale.
    fn answer_to_old_name(&self, preferred: Option<&Preferred>) -> Result<(), CniConfError> {
        let Some(preferred) = preferred.filter(|preferred| preferred.has_old_name) else {
            return Ok(());
        };
        let path = self.plugin_directory.join(OLD_PLUGIN);
        if std::fs::read_link(&path).is_ok_and(|target| target.as_os_str() == self.plugin.as_str())
        {
            return Ok(());
        }
        let conf = preferred.path.display().to_string();
        link(&self.plugin, &path).map_err(|source| CniConfError::OldName {
            path: path.clone(),
            conf: conf.clone(),
            source,
        })?;
        tracing::info!(path = %path.display(), conf, "linked the plugin under its old name, which this file calls");
        Ok(())
    }

    /// Writes the file atomically, unless it has the right content already. Returns whether it was
    /// written.
    fn put(&self) -> Result<bool, CniConfError> {
        let path = self.path();
        let failed = |source| CniConfError::Io { path: path.clone(), source };
        let text = self.text()?;
        DirBuilder::new().recursive(true).mode(0o755).create(&self.directory).map_err(failed)?;
        // Runtimes watch the directory, and load it again after each write.
        if std::fs::read(&path).is_ok_and(|there| there == text) {
            return Ok(false);
        }
        replace(&path, text.as_slice(), 0o644).map_err(failed)?;
        Ok(true)
    }

    /// Whether the file exists with the right content.
    fn is_in_place(&self) -> Result<bool, CniConfError> {
        let text = self.text()?;
        Ok(std::fs::read(self.path()).is_ok_and(|there| there == text))
    }

    /// Removes the file if it is of our network. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// [`CniConfError::Io`] if the file belongs to another network (it is not ours to remove), or
    /// cannot be removed.
    pub fn uninstall(&self) -> Result<bool, CniConfError> {
        let path = self.path();
        let failed = |source| CniConfError::Io { path: path.clone(), source };
        if !path.exists() {
            return Ok(false);
        }
        match network_of(&path) {
            Some(name) if name == NETWORK_NAME => {
                std::fs::remove_file(&path).map(|()| true).map_err(failed)
            }
            other => {
                let network = other.unwrap_or_else(|| "none".to_owned());
                Err(failed(io::Error::other(format!(
                    "its network is {network:?}, not {NETWORK_NAME:?}: it is not ours"
                ))))
            }
        }
    }

    /// Where the plugin finds the server and the daemons.
    pub fn places(&self) -> Places {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Places {
            server_socket: self.server_socket.as_deref().map(text),
            ovsdb_endpoint: self.ovsdb_endpoint.clone(),
            ovn_run_dir: self.ovn_run_dir.as_deref().map(text),
        }
    }

    /// The file's content.
    ///
    /// In the list form the newest runtimes choose the newest version out of `cniVersions`; the
    /// others read `cniVersion` alone, and containerd 1.6 and 1.7 reject results of 1.1.0. The
    /// single form is upstream's, in the version that every runtime knows.
    ///
    /// Runtimes call all plugins of a list with the same version, so only versions that every
    /// chained plugin supports are named.
    fn text(&self) -> Result<Vec<u8>, CniConfError> {
        let plugin = Plugin {
            r#type: &self.plugin,
            log_file: &self.log_file,
            log_level: &self.log_level,
            server_socket: self.server_socket.as_deref(),
            ovsdb_endpoint: self.ovsdb_endpoint.as_deref(),
            ovn_run_dir: self.ovn_run_dir.as_deref(),
            netns_link: self.netns_link,
        };
        let written = match self.file {
            ConfFile::List(_) => {
                let chain = self.chain.as_deref().map(Chain::read).transpose()?;
                let all_speak = |version: &&str| {
                    chain
                        .as_ref()
                        .is_none_or(|chain| chain.versions.iter().any(|spoken| spoken == version))
                };
                let cni_versions: Vec<_> = VERSIONS.into_iter().filter(all_speak).collect();
                let others = chain.into_iter().flat_map(|chain| chain.plugins).map(Chained::Others);
                serde_json::to_vec(&List {
                    cni_version: "1.0.0",
                    cni_versions,
                    name: NETWORK_NAME,
                    // Ours comes first: the others work on the interface that it has made.
                    plugins: [Chained::Ours(plugin)].into_iter().chain(others).collect(),
                })
            }
            ConfFile::Single(_) => {
                serde_json::to_vec(&Single { cni_version: "0.4.0", name: NETWORK_NAME, plugin })
            }
        };
        let mut text = written
            .map_err(|error| CniConfError::Io { path: self.path(), source: error.into() })?;
        text.push(b'\n');
        Ok(text)
    }

    /// Removes upstream's file, and ours in the other form, if they are of this network.
    fn remove_predecessors(&self) {
        for name in [UPSTREAM_CNI_CONF_FILE, CNI_CONF_FILE]
            .into_iter()
            .filter(|name| *name != self.file.name())
        {
            let path = self.directory.join(name);
            // A file of that name may be of another network, which is not ours to remove.
            if network_of(&path).as_deref() != Some(NETWORK_NAME) {
                continue;
            }
            match std::fs::remove_file(&path) {
                Ok(()) => {
                    tracing::info!(
                        path = %path.display(),
                        "removed an earlier CNI configuration of the same network"
                    )
                }
                Err(error) => {
                    tracing::warn!(
                        path = %path.display(),
                        %error,
                        "an earlier CNI configuration of the same network stays"
                    )
                }
            }
        }
    }

    /// The configuration that runtimes use, if it is not ours. They take the first file in the
    /// order of names: with one before ours (such as `10-net.conf` of 2016) the plugin is never
    /// called.
    fn preferred(&self) -> Option<Preferred> {
        let names = std::fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        let before =
            names.filter(|name| is_loaded(name) && name.as_os_str() < OsStr::new(self.file.name()));
        let path = self.directory.join(before.min()?);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let is_ours = LEADS_TO_OURS.iter().any(|word| text.contains(word))
            || text.contains(&format!("\"{}\"", self.plugin));
        let network = network_of(&path).unwrap_or_default();
        let has_old_name = type_of(&text).as_deref() == Some(OLD_PLUGIN);
        let is_ours = is_ours || has_old_name || network == NETWORK_NAME;
        Some(Preferred { path, is_ours, has_old_name, network })
    }
}

impl ConfFile {
    pub fn name(&self) -> &str {
        match self {
            Self::List(name) | Self::Single(name) => name,
        }
    }
}

impl std::str::FromStr for ConfFile {
    type Err = BadConfFile;

    fn from_str(name: &str) -> Result<Self, BadConfFile> {
        let bad = || BadConfFile(name.chars().take(64).collect());
        match Path::new(name).extension().and_then(OsStr::to_str) {
            _ if name.contains('/') || name.starts_with('.') => Err(bad()),
            Some("conflist") => Ok(Self::List(name.to_owned())),
            Some("conf") => Ok(Self::Single(name.to_owned())),
            _ => Err(bad()),
        }
    }
}

fn is_loaded(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|ending| ENDINGS.iter().any(|loaded| ending == *loaded))
}

/// The network name in a configuration.
fn network_of(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let text = std::fs::read(path).ok()?;
    serde_json::from_slice::<Named>(&text).ok().map(|named| named.name)
}

/// The plugin in a configuration of a single one.
fn type_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Typed {
        r#type: String,
    }
    serde_json::from_str::<Typed>(text).ok().map(|typed| typed.r#type)
}

#[cfg(test)]
pub(crate) mod tests;
