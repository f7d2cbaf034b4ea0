//! The lifecycle of the control plane in a process of its own.
//!
//! ```text
//! log, pidfile, signals → endpoints → roles run → a signal: roles end, the Lease is released → exit 0
//!                                         ├ leadership lost: roles end at once → exit 1, to be restarted
//!                                         └ database lost for minutes: as for a signal → exit 1
//! ```

use std::sync::Arc;

use super::{ControlPlaneConfig, ControlPlaneError, readiness, work::Work};
use kubeapi::Connection;
use ovslog::background::Log;
use server::{conditions::Conditions, unverified::warn_of_skipped_verification};
use tokio::runtime::Handle;

use crate::{
    endpoints,
    metrics::{ControlPlaneMetrics, Page},
    process::{announce, pidfile::Pidfile, signals::Signals},
    roles::CLUSTER,
};

/// Runs the roles in a process that has its own log, signals and pidfile, until they end. Dropped,
/// they end at once.
pub(crate) async fn work(config: &ControlPlaneConfig) -> ControlPlaneError {
    let conditions = Conditions::of(config.needs());
    let metrics = Page::of_control_plane(config.roles, config.log.file.clone()).and_then(|page| {
        ControlPlaneMetrics::register(config.roles, page.registry()).map(Arc::new)
    });
    let metrics = match metrics {
        Ok(metrics) => metrics,
        Err(error) => return error.into(),
    };
    tokio::spawn(announce::changes(&conditions));
    let connection = Connection::open(config.api_server.clone());
    let mut work = Work::start(config, &connection, &conditions, &metrics);
    let ended = work.ended().await;
    work.end(&ended).await;
    ended.into()
}

/// Runs the process from its signal handlers to the last log line. The roles and the connection to
/// the API server run on `of_roles`.
pub(super) async fn live(
    config: &ControlPlaneConfig,
    notes: &[String],
    log: &Log,
    of_roles: &Handle,
) -> Result<(), ControlPlaneError> {
    // Handlers first: a signal that comes now would kill the process, and its pidfile would stay.
    let mut signals = Signals::listen(log.reopen()).map_err(ControlPlaneError::Runtime)?;
    let pidfile = config.pidfile.as_deref().map(Pidfile::create).transpose()?;
    let conditions = Conditions::of(config.needs());
    let page = Page::of_control_plane(config.roles, config.log.file.clone())?
        .with_lost_log_lines(log.lost());
    let page = Arc::new(page);
    let metrics = Arc::new(ControlPlaneMetrics::register(config.roles, page.registry())?);
    tracing::info!(
        identity = config.identity,
        roles = ?config.roles,
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    log.tell_of_options(notes);
    tokio::spawn(announce::changes(&conditions));

    // Before the roles: `/readyz` shows what they wait for.
    let _endpoints = endpoints::start(&config.endpoints, &conditions, &page);

    let mut work = {
        let _entered = of_roles.enter();
        let connection = Connection::open(config.api_server.clone());
        tokio::spawn(warn_of_skipped_verification(connection.clone(), conditions.clone(), CLUSTER));
        Work::start(config, &connection, &conditions, &metrics)
    };
    // Not when the conditions are met: a standby, or a missing API server, must not hold up other
    // units.
    announce::started();
    tokio::spawn(readiness::once(conditions.clone(), Arc::clone(&metrics)));
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
            work.end(&ended).await;
            Err(ended.into())
        }
    };
    if let Some(pidfile) = pidfile {
        pidfile.remove();
    }
    outcome
}
