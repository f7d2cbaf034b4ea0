//! The plugin under its older name, and the older configuration that calls it so.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use contract::paths::OLD_PLUGIN;
use ipnet::Ipv4Net;
use serde_json::json;

/// The configuration's name: runtimes take the first of all by name.
const FILE: &str = "10-net.conf";
/// Where packages have the plugin.
const PACKAGED: &str = "/usr/libexec/cni";

/// Why the plugin is not installed under its older name.
#[derive(Debug, thiserror::Error)]
pub(super) enum CniFileError {
    #[error("No CNI plugin {name} found in PATH, {directory:?} or {PACKAGED}")]
    NoPlugin { name: String, directory: PathBuf },
    #[error("{path:?} is not a link to {plugin:?}; move it away first")]
    Taken { path: PathBuf, plugin: PathBuf },
    #[error("{path:?}")]
    Io { path: PathBuf, source: io::Error },
}

/// The plugin's file: in `PATH`, where runtimes look, or where packages have it.
pub(super) fn find(name: &str, directory: &Path) -> Result<PathBuf, CniFileError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories = env::split_paths(&path).chain([directory.to_owned(), PACKAGED.into()]);
    directories
        .find_map(|directory| Some(directory.join(name)).filter(|file| file.is_file()))
        .ok_or_else(|| CniFileError::NoPlugin {
            name: name.to_owned(),
            directory: directory.to_owned(),
        })
}

/// Makes the link and the configuration, where they are missing.
pub(super) fn install(
    plugin: &Path,
    directory: &Path,
    configurations: &Path,
    subnet: Ipv4Net,
) -> Result<(), CniFileError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| CniFileError::Io { path, source }
    };
    for directory in [directory, configurations] {
        fs::create_dir_all(directory).map_err(io(directory))?;
    }
    let link = directory.join(OLD_PLUGIN);
    // Beside the plugin itself, the link stays true wherever the directory is mounted.
    let to = match plugin.file_name() {
        Some(name) if plugin.parent() == Some(directory) => Path::new(name),
        _ => plugin,
    };
    match symlink(to, &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::canonicalize(&link).ok() != fs::canonicalize(plugin).ok() {
                return Err(CniFileError::Taken { path: link, plugin: plugin.to_owned() });
            }
        }
        made => made.map_err(io(&link))?,
    }
    let file = configurations.join(FILE);
    if file.exists() {
        return Ok(());
    }
    let text = json!({
        "name": "net", "type": OLD_PLUGIN, "bridge": "br-int",
        "isGateway": "true", "ipMasq": "false",
        "ipam": {"type": "host-local", "subnet": subnet.trunc().to_string()},
    });
    // A runtime reads every file whose name ends with `.conf`: never half of one.
    let temporary = configurations.join(format!(".{FILE}.new"));
    fs::write(&temporary, format!("{text}\n")).map_err(io(&temporary))?;
    fs::rename(&temporary, &file).map_err(io(&file))
}
