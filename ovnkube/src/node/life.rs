//! The lifecycle of a node's server: the order of the steps, from the options to the last log line.
//! The steps themselves are in other modules.
//!
//! ```text
//! log, pidfile, signals → endpoints → the control plane's roles, if they are in this process → server::node
//!     → a signal → roles end → exit
//! ```
//!
//! The [`Conditions`] say what the process waits for. A signal to stop ends every wait.

use std::{path::PathBuf, sync::Arc};

use ovslog::background::Log;
use server::{
    conditions::{Conditions, Part},
    metrics::Metrics,
};

use super::StartError;
use crate::{
    control_plane::{ControlPlaneConfig, EmbeddedRoles},
    endpoints,
    metrics::{ControlPlaneMetrics, Page},
    options::NodeOptions,
    process::{announce, pidfile::Pidfile, signals::Signals},
};

/// Runs the process from its signal handlers to the last log line.
pub(super) async fn live(
    options: &NodeOptions,
    control_plane: Option<ControlPlaneConfig>,
    log: &Log,
) -> Result<(), StartError> {
    let early = options.early();
    // Handlers first: a signal that comes now would kill the process, and its pidfile would stay.
    let mut signals = Signals::listen(log.reopen()).map_err(StartError::Runtime)?;
    let pidfile = early.pidfile.as_deref().map(Pidfile::create).transpose()?;
    let conditions = Conditions::of(
        Part::NODE.into_iter().chain(control_plane.iter().flat_map(ControlPlaneConfig::needs)),
    );
    let page = Page::of_node([early.log.file.clone(), PathBuf::from(&early.cni_conf.log_file)])?
        .with_lost_log_lines(log.lost());
    let metrics = Arc::new(Metrics::register(page.registry())?);
    tracing::info!(node = early.name, version = env!("CARGO_PKG_VERSION"), "starting");
    log.tell_of_options(&options.notes());
    tokio::spawn(announce::changes(&conditions));
    tokio::spawn(announce::node_started(&conditions));

    // Before the server: `/readyz` shows what it waits for. A page takes all its collectors before
    // it is served.
    let (_endpoints, control_plane) = match control_plane {
        None => (endpoints::start(&early.endpoints, &conditions, &Arc::new(page)), None),
        Some(config) => {
            let page = page.with_control_plane(config.roles)?;
            let metrics = Arc::new(ControlPlaneMetrics::register(config.roles, page.registry())?);
            let roles = EmbeddedRoles::start(config, conditions.clone(), metrics);
            (endpoints::start(&early.endpoints, &conditions, &Arc::new(page)), Some(roles))
        }
    };

    let configure = |external_ids: &_| options.config(external_ids).map_err(StartError::from);
    let outcome = tokio::select! {
        started = server::node::start(&early.ovsdb, configure, &conditions, &metrics) => match started {
            Ok(running) => {
                running.until_told(async || stop(&mut signals).await).await.map_err(StartError::from)
            }
            Err(error) => Err(error),
        },
        why = signals.stop() => {
            tracing::info!(why, "told to stop before the start was complete");
            announce::stopping();
            Ok(())
        }
    };
    // After the server: it has finished the ADDs in flight, whose pods may have needed addresses
    // from these roles.
    if let Some(roles) = control_plane {
        roles.stop().await;
    }
    if let Some(pidfile) = pidfile {
        pidfile.remove();
    }
    outcome
}

/// Waits for a signal to stop, and notifies systemd. Cancellation-safe.
async fn stop(signals: &mut Signals) -> &'static str {
    let why = signals.stop().await;
    announce::stopping();
    why
}
