//! Installs the plugin in the directory where runtimes look for it, and reports whether it is
//! there.

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

/// The directory in which packages and images put the plugin.
const PACKAGED: &str = "/usr/libexec/cni";
/// The directory is looked at, and watched anew, after this long: it may not exist yet, or be
/// mounted over, and inotify(7) reports neither. A pod that starts meanwhile is tried again by its
/// kubelet.
const RESYNC: Duration = Duration::from_secs(30);

/// What to install, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginInstall {
    /// The executable to copy. `None`: the first that exists of
    /// [`sources`](PluginInstall::sources).
    pub source: Option<PathBuf>,
    /// The directory in which runtimes look for plugins, usually `/opt/cni/bin`.
    pub directory: PathBuf,
    /// File name of the plugin in that directory.
    pub name: String,
}

/// What the installation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// A copy of this file is in place now.
    From(PathBuf),
    /// The installed plugin has the same content as this file already.
    SameAs(PathBuf),
    /// There is nothing to copy, and an executable is in place.
    AsItWas,
}

/// Why the plugin is not in place.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error(
        "plugin {target:?} is missing, and there is none to copy ({}): install it, or give its path with \
         --cni-plugin-source",
        .tried.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(", ")
    )]
    NoSource { target: PathBuf, tried: Vec<PathBuf> },
    #[error("plugin {path:?}, to be copied to {target:?}")]
    NotCopied { path: PathBuf, target: PathBuf, source: io::Error },
    #[error("plugin {target:?}")]
    Target { target: PathBuf, source: io::Error },
    #[error("plugin {0:?} is not an executable file (chmod 0755)")]
    NotExecutable(PathBuf),
}

/// Installs the plugin, and reports the outcome in log and conditions. The server goes on after a
/// failure, too: an administrator may put the plugin there later.
pub(super) async fn install(plugin: &PluginInstall, conditions: &Conditions) {
    let owned = plugin.clone();
    let outcome = match tokio::task::spawn_blocking(move || owned.install()).await {
        Ok(outcome) => outcome,
        Err(panic) => {
            Err(PluginError::Target { target: plugin.target(), source: io::Error::other(panic) })
        }
    };
    let target = plugin.target();
    match &outcome {
        Ok(Installed::From(source)) => {
            tracing::info!(plugin = %target.display(), source = %source.display(), "installed the plugin");
        }
        Ok(Installed::SameAs(source)) => {
            tracing::info!(
                plugin = %target.display(),
                source = %source.display(),
                "the plugin is in place already"
            );
        }
        Ok(Installed::AsItWas) => {
            tracing::info!(plugin = %target.display(), "the plugin stays as it is: there is none to install");
        }
        Err(error) => tracing::error!(error = chain(error), "the plugin was not installed"),
    }
    // The condition is met by an older plugin that could not be replaced, too.
    report(plugin, outcome.err(), conditions);
}

/// Reports whether the plugin is there, after each change of its directory, for as long as the
/// server lives.
pub(super) async fn follow(plugin: PluginInstall, conditions: Conditions) {
    loop {
        let mut resync = pin!(sleep(RESYNC));
        let mut events = match listen(&plugin.directory) {
            Ok(events) => Some(events),
            Err(error) => {
                tracing::debug!(
                    directory = %plugin.directory.display(),
                    %error,
                    "the plugin's directory cannot be watched now"
                );
                None
            }
        };
        // After the watch was added, so that no change in between is missed.
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
                    Some(Ok(event)) if !event.mask.contains(inotify::EventMask::IGNORED) => {
                        report(&plugin, None, &conditions)
                    }
                    // The directory is gone (`IN_IGNORED`), or the events failed: the resync tries
                    // again.
                    Some(_) | None => events = None,
                },
                () = &mut resync => break,
            }
        }
    }
}

fn listen(directory: &Path) -> io::Result<inotify::EventStream<[u8; 1024]>> {
    let inotify = Inotify::init()?;
    let changes = WatchMask::CREATE
        | WatchMask::CLOSE_WRITE
        | WatchMask::MOVE
        | WatchMask::DELETE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF;
    inotify.watches().add(directory, changes | WatchMask::ONLYDIR)?;
    inotify.into_event_stream([0; 1024])
}

/// Sets the condition. `error` is the failure of an installation, which says more than that the
/// plugin is missing.
fn report(plugin: &PluginInstall, error: Option<PluginError>, conditions: &Conditions) {
    match plugin.check() {
        Ok(()) => conditions.met(Part::PLUGIN),
        Err(missing) => conditions.missing(Part::PLUGIN, chain(&error.unwrap_or(missing))),
    }
}

impl PluginInstall {
    /// The path at which runtimes find the plugin.
    pub fn target(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Puts the plugin in place, unless it is there with the same content. Processes that run an
    /// old one keep it.
    ///
    /// # Errors
    ///
    /// [`NotCopied`](PluginError::NotCopied) if the given source cannot be read, or the copy fails.
    /// [`NoSource`](PluginError::NoSource) or [`NotExecutable`](PluginError::NotExecutable) if
    /// there is nothing to copy, and no executable in place. [`Target`](PluginError::Target) if the
    /// directory cannot be made.
    pub fn install(&self) -> Result<Installed, PluginError> {
        let target = self.target();
        // Made even if there is nothing to copy, so that it can be watched. A failure matters only
        // for the copy below.
        let directory = DirBuilder::new().recursive(true).mode(0o755).create(&self.directory);
        let sources = self.sources();
        let found = sources
            .iter()
            .find_map(|path| File::open(path).ok().filter(is_file).map(|file| (path, file)));
        let Some((path, mut source)) = found else {
            return match (&self.source, self.check()) {
                // A configured source that cannot be read is an error, even if a plugin is in
                // place.
                (Some(path), _) => {
                    let source = File::open(path)
                        .err()
                        .unwrap_or_else(|| io::ErrorKind::InvalidInput.into());
                    Err(PluginError::NotCopied { path: path.clone(), target, source })
                }
                (None, Ok(())) => Ok(Installed::AsItWas),
                (None, Err(_)) if target.exists() => Err(PluginError::NotExecutable(target)),
                (None, Err(_)) => Err(PluginError::NoSource { target, tried: sources }),
            };
        };
        // `check` first: a file of the right content that is not executable has to be replaced,
        // too.
        if self.check().is_ok()
            && File::open(&target)
                .and_then(|there| have_same_content(&source, &there))
                .unwrap_or_default()
        {
            return Ok(Installed::SameAs(path.clone()));
        }
        directory.map_err(|source| PluginError::Target { target: target.clone(), source })?;
        // The comparison has read the file. Replaced by renaming: a plugin that runs cannot be
        // written to (`ETXTBSY`).
        source
            .rewind()
            .and_then(|()| replace(&target, source, 0o755))
            .map_err(|source| PluginError::NotCopied { path: path.clone(), target, source })?;
        Ok(Installed::From(path.clone()))
    }

    /// Checks that an executable is in place.
    ///
    /// # Errors
    ///
    /// [`Target`](PluginError::Target) if it cannot be looked at, as a rule because there is none;
    /// [`NotExecutable`](PluginError::NotExecutable) if it is no file, or has no execute
    /// permission.
    pub fn check(&self) -> Result<(), PluginError> {
        let target = self.target();
        match std::fs::metadata(&target) {
            Ok(there) if there.is_file() && there.permissions().mode() & 0o111 != 0 => Ok(()),
            Ok(_) => Err(PluginError::NotExecutable(target)),
            Err(source) => Err(PluginError::Target { target, source }),
        }
    }

    /// The files that it may be copied from, best first.
    pub fn sources(&self) -> Vec<PathBuf> {
        if let Some(source) = &self.source {
            return vec![source.clone()];
        }
        let beside =
            std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(PLUGIN)));
        [Some(Path::new(PACKAGED).join(PLUGIN)), beside].into_iter().flatten().collect()
    }
}

fn is_file(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Compares two files a piece at a time: the plugin has megabytes, and neither file is held in
/// memory.
fn have_same_content(one: &File, other: &File) -> io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        let (ahead, beside) = (one.fill_buf()?, other.fill_buf()?);
        // The two buffers may be filled to different lengths: compare what both have.
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
