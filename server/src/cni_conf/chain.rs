//! Plugins that runtimes call after ours for each pod (`portmap`, `bandwidth`, `tuning`), in a file
//! or a directory of files that an administrator writes. Knows nothing of what they do.
//!
//! A file holds one plugin's configuration, a list of them, or an object with `plugins` and, if all
//! of them support more than CNI 1.0.0, `cniVersions`. Files of a directory are read in the order
//! of their names.

use std::{
    ffi::OsStr,
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
};

use contract::paths::PLUGIN;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Extensions of the files that are read from a directory.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];
/// CNI versions that chained plugins are assumed to support unless their file says more: the
/// releases that distributions use do not know 1.1.0.
pub(super) const COMMON_VERSIONS: [&str; 2] = ["0.4.0", "1.0.0"];
/// Upper limit of a file's size in bytes, more than any configuration needs: a wrong path may lead
/// to anything.
const MAX_BYTES: u64 = 256 * 1024;

/// The plugins, in order, and the CNI versions that all of them support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) plugins: Vec<Map<String, Value>>,
    pub(super) versions: Vec<String>,
}

/// Why plugins cannot be chained.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    #[error("chained plugins: {path:?}")]
    Read { path: PathBuf, source: io::Error },
    #[error("chained plugins: {path:?} is no JSON")]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("chained plugins: {path:?}: {reason}")]
    Content { path: PathBuf, reason: String },
    #[error("chained plugins: {0:?}: they have no CNI version in common")]
    NoVersion(PathBuf),
}

/// The largest form of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    plugins: Vec<Value>,
    #[serde(rename = "cniVersions")]
    versions: Option<Vec<String>>,
}

impl Chain {
    /// Reads a file, or every file of a directory.
    pub(super) fn read(path: &Path) -> Result<Self, ChainError> {
        let failed = |source| ChainError::Read { path: path.to_owned(), source };
        let files = if fs::metadata(path).map_err(failed)?.is_dir() {
            let mut files = Vec::new();
            for entry in fs::read_dir(path).map_err(failed)? {
                let file = entry.map_err(failed)?.path();
                if file
                    .extension()
                    .and_then(OsStr::to_str)
                    .is_some_and(|ending| ENDINGS.contains(&ending))
                {
                    files.push(file);
                }
            }
            // readdir(3) has no order.
            files.sort();
            files
        } else {
            vec![path.to_owned()]
        };
        let mut chain = Self { plugins: Vec::new(), versions: Vec::new() };
        for (index, file) in files.iter().enumerate() {
            let Self { plugins, versions } = read_file(file)?;
            chain.plugins.extend(plugins);
            if index == 0 {
                chain.versions = versions;
            } else {
                chain.versions.retain(|version| versions.contains(version));
            }
        }
        if chain.plugins.is_empty() {
            // An empty chain limits no version.
            chain.versions = super::VERSIONS.map(str::to_owned).into();
        }
        if !super::VERSIONS.iter().any(|ours| chain.versions.iter().any(|version| version == ours))
        {
            return Err(ChainError::NoVersion(path.to_owned()));
        }
        Ok(chain)
    }
}

fn read_file(path: &Path) -> Result<Chain, ChainError> {
    let failed = |source| ChainError::Read { path: path.to_owned(), source };
    let wrong = |reason: String| ChainError::Content { path: path.to_owned(), reason };
    // Checked first: opening a FIFO would wait for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(wrong("not a regular file".to_owned()));
    }
    // The size that a file system reports may be 0 for a file with content, as in procfs.
    let mut text = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text))
        .map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(wrong(format!("more than {MAX_BYTES} bytes")));
    }
    let json = |source| ChainError::Json { path: path.to_owned(), source };
    let File { plugins, versions } = match serde_json::from_slice(&text).map_err(json)? {
        Value::Array(plugins) => File { plugins, versions: None },
        Value::Object(one) if one.contains_key("type") => {
            File { plugins: vec![Value::Object(one)], versions: None }
        }
        other => serde_json::from_value(other)
            .map_err(|error| wrong(format!("neither a plugin, nor a list of them: {error}")))?,
    };
    let plugins = plugins.into_iter().enumerate().map(|(index, plugin)| {
        check(plugin).map_err(|reason| wrong(format!("plugin {}: {reason}", index + 1)))
    });
    let versions = versions.unwrap_or_else(|| COMMON_VERSIONS.map(str::to_owned).into());
    Ok(Chain { plugins: plugins.collect::<Result<_, _>>()?, versions })
}

fn check(plugin: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(plugin) = plugin else { return Err("no JSON object".to_owned()) };
    match plugin.get("type") {
        None => Err("it has no type".to_owned()),
        // Runtimes look for the name in their directories of plugins; libcni refuses a path.
        Some(Value::String(name)) if name.is_empty() || name.contains('/') => {
            Err(format!("type {name:?} is no file name of a plugin"))
        }
        // A second call for the same interface would find it attached already.
        Some(Value::String(name)) if name == PLUGIN => {
            Err(format!("{PLUGIN} is the first one already"))
        }
        Some(Value::String(_)) => Ok(plugin),
        Some(other) => Err(format!("type {other} is no text")),
    }
}

#[cfg(test)]
mod tests;
