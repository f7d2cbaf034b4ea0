//! The plugin's way into the directory where runtimes look for it.

use std::path::PathBuf;

/// What to install, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginInstall {
    /// The executable; none: one in the places where packages and images put it, if there is one.
    pub source: Option<PathBuf>,
    /// The runtime's directory of plugins, usually `/opt/cni/bin`.
    pub directory: PathBuf,
    /// File name there.
    pub name: String,
}
