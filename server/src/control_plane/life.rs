//! The life of the control plane in a process of its own. Not what it does.
//!
//! ```text
//! log, pidfile, signals → endpoints → roles at work → a signal: roles end, the Lease is let go → exit 0
//!                                           └ another one leads, or could: roles end at once → exit 1, to be started anew
//! ```

use std::sync::Arc;

use super::{ControlPlaneConfig, ControlPlaneError, readiness, work::Work};
use kubeapi::Connection;
use ovslog::background::Log;

use crate::{
    conditions::{Conditions, Part},
    endpoints,
    metrics::ControlPlaneMetrics,
    process::{announce, pidfile::Pidfile, signals::Signals},
    unverified::warn_of_skipped_verification,
};

/// From the first signal that could come to the last line.
pub(super) async fn live(config: &ControlPlaneConfig, notes: &[String], log: &Log) -> Result<(), ControlPlaneError> {
    let mut signals = Signals::listen(log.reopen()).map_err(ControlPlaneError::Runtime)?;
    let pidfile = config.pidfile.as_deref().map(Pidfile::create).transpose()?;
    let conditions = Conditions::of(config.needs());
    let metrics = Arc::new(ControlPlaneMetrics::alone(config.roles, config.log.file.clone())?);
    tracing::info!(identity = config.identity, roles = ?config.roles, version = env!("CARGO_PKG_VERSION"), "starting");
    log.tell_of_options(notes);
    let announcing = tokio::spawn(announce::changes(&conditions));

    // From here on, so that they say what is waited for.
    let _endpoints = endpoints::start(&config.endpoints, &conditions, &metrics);

    let connection = Connection::open(config.api_server.clone());
    tokio::spawn(warn_of_skipped_verification(connection.clone(), conditions.clone(), Part::Cluster));
    let mut work = Work::start(config, &connection, &conditions, &metrics);
    announce::started();
    let readiness = tokio::spawn(readiness::once(conditions.clone(), Arc::clone(&metrics)));
    let outcome = tokio::select! {
        why = signals.stop() => {
            tracing::info!(why, "stopping");
            announce::stopping();
            tokio::select! {
                () = work.stop() => {}
                why = signals.stop() => tracing::warn!(why, "told to stop once more: not waiting any longer"),
            }
            Ok(())
        }
        ended = work.ended() => {
            // Whatever is left of the roles ends here, before anybody may have taken over.
            drop(work);
            Err(ended.into())
        }
    };
    if let Some(pidfile) = pidfile {
        pidfile.remove();
    }
    // Nothing is announced behind the last line.
    for task in [announcing, readiness] {
        task.abort();
        let _ = task.await;
    }
    if outcome.is_ok() {
        tracing::info!("stopped");
    }
    outcome
}
