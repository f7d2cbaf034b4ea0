//! `--cleanup-node`: removes from a node what the server made, if no server runs there.
//! `--hand-back-node`: removes what upstream's server does not have. The removal itself is in
//! `server`.

use std::{io, path::PathBuf};

use server::{
    node::{Cleaned, CleanupConfig},
    socket,
};

use crate::{options::Early, process::pidfile};

/// Why the cleanup did nothing, or was incomplete.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    #[error(
        "a server answers on {0:?}: stop it first (systemctl stop ovnkube-node, or delete its pod)"
    )]
    Running(PathBuf),
    #[error("a running server holds {0:?}: stop it first")]
    Pidfile(PathBuf),
    #[error("the runtime of this program")]
    Runtime(#[source] io::Error),
    #[error("not everything was cleaned up:\n{0}")]
    Incomplete(Cleaned),
}

/// Removes what the server made, and the pidfile last. It is no error if something is gone already.
///
/// # Errors
///
/// [`Running`](CleanupError::Running) and [`Pidfile`](CleanupError::Pidfile) if a server runs:
/// nothing was done. [`Runtime`](CleanupError::Runtime) if no runtime could be made: nothing was
/// done. [`Incomplete`](CleanupError::Incomplete) if something could not be removed: the rest was,
/// and the error lists both.
pub fn cleanup(early: &Early) -> Result<Cleaned, CleanupError> {
    none_runs(early)?;
    // Every field is named: a new one is a compile error here until it is clear whether the cleanup
    // needs it.
    let Early {
        name,
        ovsdb,
        cni_conf,
        plugin,
        socket,
        api_server,
        extent,
        log: _,
        pidfile: _,
        ovn_run_dir: _,
        endpoints: _,
    } = early.clone();
    let config = CleanupConfig { name, ovsdb, cni_conf, plugin, socket, api_server, extent };
    let cleaned = server::node::cleanup(&config).map_err(CleanupError::Runtime)?;
    finish(early, cleaned)
}

/// Removes what only this program has on a node that upstream's programs run.
///
/// # Errors
///
/// [`Pidfile`](CleanupError::Pidfile) if a server of this program runs,
/// [`Runtime`](CleanupError::Runtime) if no runtime could be made: nothing was done.
/// [`Incomplete`](CleanupError::Incomplete) if something could not be removed.
pub fn hand_back(early: &Early) -> Result<Cleaned, CleanupError> {
    // The socket may be upstream's, at the same place.
    none_holds_the_pidfile(early)?;
    whole(server::node::hand_back().map_err(CleanupError::Runtime)?)
}

/// Fails if a server runs on this node.
fn none_runs(early: &Early) -> Result<(), CleanupError> {
    if socket::is_answered(&early.socket) {
        return Err(CleanupError::Running(early.socket.clone()));
    }
    // A server that still waits for Open vSwitch has a pidfile, and no socket yet.
    none_holds_the_pidfile(early)
}

fn none_holds_the_pidfile(early: &Early) -> Result<(), CleanupError> {
    match early.pidfile.as_deref().filter(|path| pidfile::is_held(path)) {
        Some(path) => Err(CleanupError::Pidfile(path.to_owned())),
        None => Ok(()),
    }
}

fn finish(early: &Early, mut cleaned: Cleaned) -> Result<Cleaned, CleanupError> {
    if let Some(path) = &early.pidfile {
        cleaned.file("pidfile", path);
    }
    whole(cleaned)
}

fn whole(cleaned: Cleaned) -> Result<Cleaned, CleanupError> {
    if cleaned.failures.is_empty() { Ok(cleaned) } else { Err(CleanupError::Incomplete(cleaned)) }
}

#[cfg(test)]
mod tests;
