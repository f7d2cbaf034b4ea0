//! The process of a node's server, and the removal of what it leaves behind. The work for pods is
//! in the package `server`.
//!
//! | module | what it does |
//! |---|---|
//! | `life` | the lifecycle: from the options to the last log line |
//! | `cleanup`(mod@cleanup) | `--cleanup-node`: removes what the server made |

use std::io;

use ovslog::background::{self, Log};

use crate::{
    chain,
    control_plane::ControlPlaneConfig,
    options::{NodeOptions, Problems},
    process::PidfileError,
};

mod cleanup;
mod life;

pub use cleanup::{CleanupError, cleanup, hand_back};

/// Why a node's server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Options(#[from] Problems),
    #[error(transparent)]
    Pidfile(#[from] PidfileError),
    #[error(transparent)]
    Server(#[from] server::node::StartError),
    #[error("register the metrics")]
    Metrics(#[from] prometheus::Error),
    #[error("the runtime of this program")]
    Runtime(#[source] io::Error),
}

/// Serves until a signal stops the process. An error is written to the log and to standard error.
///
/// With `control_plane`, its roles run in the same process. When they end, the node's server goes
/// on.
///
/// # Errors
///
/// If the server could not start: the options, the pidfile, the metrics, the runtime, or
/// [`server::node::start`]. A server that has started ends by a signal only.
pub fn run(
    options: &NodeOptions,
    control_plane: Option<ControlPlaneConfig>,
) -> Result<(), StartError> {
    let log = background::start(&options.early().log);
    let runtime = server::node::runtime().map_err(StartError::Runtime);
    let outcome = runtime.and_then(|runtime| {
        let outcome = runtime.block_on(life::live(options, control_plane, &log));
        // Before the last line of the log: no task says anything after it.
        server::node::end(runtime);
        outcome
    });
    match &outcome {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => say(error, &log),
    }
    outcome
}

/// Reports an error that ends the process to the log, and to standard error unless the log is
/// there.
fn say(error: &StartError, log: &Log) {
    let text = chain(error);
    tracing::error!(error = text, "not started");
    if !log.on_stderr {
        eprintln!("ovnkube: {text}");
    }
}
