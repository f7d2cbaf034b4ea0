//! The plugin's way into the directory where runtimes look for it, and whether it is there.

use std::{
    fs::{DirBuilder, File},
    io::{self, BufRead, BufReader, Seek},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use contract::paths::PLUGIN;
use futures_util::StreamExt;
use inotify::{Inotify, WatchMask};
use tokio::time::sleep;

use crate::{
    atomic_file::replace,
    chain,
    conditions::{Conditions, Part},
};

/// Where packages and images put the plugin.
const PACKAGED: &str = "/usr/libexec/cni";
/// The safety net below the directory's events: it may be mounted over, or not be there yet.
const RESYNC: Duration = Duration::from_secs(30);

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

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// A copy of this file was put in place.
    From(PathBuf),
    /// It is the same as this file already.
    SameAs(PathBuf),
    /// There is nothing to copy, and something that can be executed is in place.
    AsItWas,
}

/// Why the plugin is not in place.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error(
        "plugin {target:?} is missing, and there is none to copy ({}): install it, or say where it is with --cni-plugin-source",
        .tried.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(", ")
    )]
    NoSource { target: PathBuf, tried: Vec<PathBuf> },
    #[error("plugin {path:?}, to be copied to {target:?}")]
    NotCopied { path: PathBuf, target: PathBuf, source: io::Error },
    #[error("plugin {target:?}")]
    Target { target: PathBuf, source: io::Error },
    #[error("plugin {0:?} cannot be executed: it is no file, or has no mode for that (chmod 0755)")]
    NotExecutable(PathBuf),
}

/// Installs the plugin and says what came of it. Whatever that is, the server goes on: an administrator may put the plugin there later.
pub(super) async fn install(plugin: &PluginInstall, conditions: &Conditions) {
    let owned = plugin.clone();
    let outcome = match tokio::task::spawn_blocking(move || owned.install()).await {
        Ok(outcome) => outcome,
        Err(panic) => Err(PluginError::Target { target: plugin.target(), source: io::Error::other(panic) }),
    };
    let target = plugin.target();
    match &outcome {
        Ok(Installed::From(source)) => {
            tracing::info!(plugin = %target.display(), source = %source.display(), "installed the plugin");
        }
        Ok(Installed::SameAs(source)) => {
            tracing::info!(plugin = %target.display(), source = %source.display(), "the plugin is in place already");
        }
        Ok(Installed::AsItWas) => {
            tracing::info!(plugin = %target.display(), "the plugin stays as it is: there is none to install");
        }
        Err(error) => tracing::error!(error = chain(error), "the plugin was not installed"),
    }
    // An older one that could not be replaced is a plugin, too.
    report(plugin, outcome.err(), conditions);
}

/// Follows the plugin's directory, for as long as the server lives.
pub(super) async fn follow(plugin: PluginInstall, conditions: Conditions) {
    loop {
        let mut resync = pin!(sleep(RESYNC));
        let mut events = match listen(&plugin.directory) {
            Ok(events) => Some(events),
            Err(error) => {
                tracing::debug!(directory = %plugin.directory.display(), %error, "cannot be followed now");
                None
            }
        };
        report(&plugin, None, &conditions);
        loop {
            let event = async {
                match &mut events {
                    Some(events) => events.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = event => match event {
                    Some(Ok(event)) if !event.mask.contains(inotify::EventMask::IGNORED) => report(&plugin, None, &conditions),
                    // The directory went away.
                    Some(_) | None => events = None,
                },
                () = &mut resync => break,
            }
        }
    }
}

fn listen(directory: &Path) -> io::Result<inotify::EventStream<[u8; 1024]>> {
    let inotify = Inotify::init()?;
    let changes =
        WatchMask::CREATE | WatchMask::CLOSE_WRITE | WatchMask::MOVE | WatchMask::DELETE | WatchMask::ATTRIB | WatchMask::DELETE_SELF;
    inotify.watches().add(directory, changes | WatchMask::ONLYDIR)?;
    inotify.into_event_stream([0; 1024])
}

fn report(plugin: &PluginInstall, error: Option<PluginError>, conditions: &Conditions) {
    match plugin.check() {
        Ok(()) => conditions.met(Part::Plugin),
        Err(missing) => conditions.missing(Part::Plugin, chain(&error.unwrap_or(missing))),
    }
}

impl PluginInstall {
    /// Where runtimes find it.
    pub fn target(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Puts the plugin in place, unless it is the same already. Processes that run the old one go on with it.
    pub fn install(&self) -> Result<Installed, PluginError> {
        let target = self.target();
        // Also where there is nothing to put into it: then it can be followed. Why it cannot be made is said below.
        let directory = DirBuilder::new().recursive(true).mode(0o755).create(&self.directory);
        let sources = self.sources();
        let found = sources.iter().find_map(|path| File::open(path).ok().filter(is_file).map(|file| (path, file)));
        let Some((path, mut source)) = found else {
            return match (&self.source, self.check()) {
                // What was asked for cannot be had: this is said, whatever is there.
                (Some(path), _) => {
                    let source = File::open(path).err().unwrap_or_else(|| io::ErrorKind::InvalidInput.into());
                    Err(PluginError::NotCopied { path: path.clone(), target, source })
                }
                (None, Ok(())) => Ok(Installed::AsItWas),
                (None, Err(_)) if target.exists() => Err(PluginError::NotExecutable(target)),
                (None, Err(_)) => Err(PluginError::NoSource { target, tried: sources }),
            };
        };
        if self.check().is_ok() && File::open(&target).and_then(|there| have_same_content(&source, &there)).unwrap_or_default() {
            return Ok(Installed::SameAs(path.clone()));
        }
        directory.map_err(|source| PluginError::Target { target: target.clone(), source })?;
        source.rewind().and_then(|()| replace(&target, source, 0o755)).map_err(|source| PluginError::NotCopied {
            path: path.clone(),
            target,
            source,
        })?;
        Ok(Installed::From(path.clone()))
    }

    /// Whether an executable is in place.
    pub fn check(&self) -> Result<(), PluginError> {
        let target = self.target();
        match std::fs::metadata(&target) {
            Ok(there) if there.is_file() && there.permissions().mode() & 0o111 != 0 => Ok(()),
            Ok(_) => Err(PluginError::NotExecutable(target)),
            Err(source) => Err(PluginError::Target { target, source }),
        }
    }

    /// Where it may be copied from, best first.
    pub fn sources(&self) -> Vec<PathBuf> {
        if let Some(source) = &self.source {
            return vec![source.clone()];
        }
        let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(PLUGIN)));
        [Some(Path::new(PACKAGED).join(PLUGIN)), beside].into_iter().flatten().collect()
    }
}

fn is_file(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Compares a piece at a time: neither file is held in memory.
fn have_same_content(one: &File, other: &File) -> io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        let (ahead, beside) = (one.fill_buf()?, other.fill_buf()?);
        let length = ahead.len().min(beside.len());
        if ahead[..length] != beside[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(ahead.is_empty() && beside.is_empty());
        }
        one.consume(length);
        other.consume(length);
    }
}

#[cfg(test)]
mod tests;
