//! A server whose socket is served: it is announced to runtimes, answers, and stops. The start
//! before that is in the parent module.

use std::{io, sync::Arc, time::Duration};

use contract::net_conf::Places;
use podnet::{daemon::PATIENCE, settings::Settings as PluginSettings};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    cni_conf::{CniConfError, ConfReconciler},
    conditions::{Conditions, Part},
    daemons::{Daemons, Rounds},
    events::Events,
    http,
    metrics::Metrics,
    node::{NodeConfig, OpenVSwitch, StartError, translation},
    pods::PodSource,
    ports::Ports,
    requests::{HandlerState, InFlight, Phase, SwitchPlaces},
    socket::Socket,
    stamp::Stamp,
};

/// How long the server waits for the ADDs in flight when it has to stop. Unit and DaemonSet allow
/// 30 seconds for the whole stop (`TimeoutStopSec`, `terminationGracePeriodSeconds`). Much shorter,
/// and pods whose annotation is about to come fail.
const DRAIN: Duration = Duration::from_secs(20);
/// How long the answers "try again" may take to be written. They are short and go to a local
/// socket; a plugin that does not read must not delay the exit.
const STOP: Duration = Duration::from_secs(1);
/// What has to be met before the CNI configuration makes runtimes use the plugin.
const NEEDED: [Part; 4] =
    [Part::TUNNEL_ADDRESS, Part::PLUGIN, Part::MANAGEMENT_PORT, Part::GATEWAY];

/// A server that listens on its socket.
#[derive(Debug)]
pub struct Running {
    config: NodeConfig,
    conditions: Conditions,
    metrics: Arc<Metrics>,
    socket: Socket,
    stamp: Stamp,
    phase: watch::Sender<Phase>,
    adds: InFlight,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Running {
    /// Opens the socket, and serves it from now on.
    pub(super) fn listen(
        config: NodeConfig,
        source: Arc<dyn PodSource>,
        events: Events,
        conditions: Conditions,
        metrics: Arc<Metrics>,
        ports: Ports,
    ) -> Result<Self, StartError> {
        let (socket, listener) = Socket::listen(&config.socket)?;
        let listener = into_tokio(listener).map_err(StartError::Runtime)?;
        let (phase, phases) = watch::channel(Phase::Running);
        let adds = InFlight::default();
        // Read before this server writes its own stamp over it.
        let predecessor =
            podnet::stamp::age(&config.socket).and_then(|age| Instant::now().checked_sub(age));
        let stamp = Stamp::new(config.socket.clone(), Arc::clone(&source));
        tokio::spawn(stamp.clone().run());
        let daemons = Daemons::watch(rounds(&config, &conditions, &metrics));
        let adds_of_desk = adds.clone();
        let handler_state = Arc::new(HandlerState {
            source,
            add: config.add,
            phase: phases,
            adds: adds_of_desk,
            calls: InFlight::default(),
            metrics: Arc::clone(&metrics),
            events,
            daemons,
            predecessor,
            ports,
            node: config.name.clone(),
            conditions: conditions.clone(),
            switch: SwitchPlaces {
                ovsdb: config.open_vswitch.endpoint.clone(),
                run_dir: super::ovs_run_dir(&config),
                translate: |client, at, protocol| Box::pin(translation(client, at, protocol)),
            },
        });
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(http::serve(listener, handler_state, stopped));
        conditions.met(Part::SOCKET);
        Ok(Self { config, conditions, metrics, socket, stamp, phase, adds, stop, serving })
    }

    /// Makes runtimes use the plugin, serves until it has to stop, and then finishes the ADDs in
    /// flight.
    ///
    /// `told` waits for the request to stop, and returns its reason, for the log. It must be
    /// cancellation-safe: its future is dropped and made anew. If it returns a second time, while
    /// the server stops, the server no longer waits for the ADDs.
    ///
    /// # Errors
    ///
    /// The CNI configuration cannot be written.
    pub async fn until_told(
        self,
        mut told: impl AsyncFnMut() -> &'static str,
    ) -> Result<(), StartError> {
        let why = tokio::select! {
            installed = self.announce() => match installed {
                Ok(()) => told().await,
                Err(error) => {
                    self.socket.remove();
                    return Err(error);
                }
            },
            why = told() => why,
        };
        self.end(why, told).await;
        Ok(())
    }

    /// Writes the CNI configuration once [`NEEDED`] is met. Earlier, the node would look ready, and
    /// the runtime would start a plugin that is not installed yet. A configuration of an earlier
    /// start stays: a restart leaves the node its network.
    async fn announce(&self) -> Result<(), StartError> {
        // Cannot fail: a sender is in the conditions that are watched.
        let _ = self
            .conditions
            .watch()
            .wait_for(|missing| !NEEDED.iter().any(|part| missing.contains_key(part)))
            .await;
        let is_installed = match self.config.cni_conf.install() {
            Ok(()) => true,
            Err(CniConfError::Chain(_)) => false,
            Err(error) => return Err(error.into()),
        };
        if is_installed {
            // Before the follower starts: it looks for files that runtimes prefer, and then reports
            // that instead.
            self.conditions.met(Part::CNI_CONF);
        }
        tokio::spawn(
            ConfReconciler::new(self.config.cni_conf.clone(), self.conditions.clone()).run(),
        );
        if !is_installed {
            // An administrator can correct the chained plugins: the follower reads them again, and
            // installs.
            let _ = self
                .conditions
                .watch()
                .wait_for(|missing| !missing.contains_key(&Part::CNI_CONF))
                .await;
        }
        self.metrics.became_ready();
        tracing::info!(node = self.config.name, socket = %self.socket.path().display(), "ready");
        Ok(())
    }

    /// Stops: refuses new ADDs, waits for those in flight, and closes the socket.
    async fn end(self, why: &str, mut told: impl AsyncFnMut() -> &'static str) {
        let Self { config: _, conditions, metrics: _, socket, stamp, phase, adds, stop, serving } =
            self;
        tracing::info!(
            why,
            in_flight = adds.count(),
            "stopping; the CNI configuration stays in place"
        );
        conditions.missing(Part::SOCKET, "the server is shutting down");
        // Phase before count: an ADD enters the count first and then reads the phase, so none is
        // overlooked.
        phase.send_replace(Phase::Draining);
        tokio::select! {
            drained = timeout(DRAIN, adds.none()) => if drained.is_err() {
                tracing::warn!(
                    in_flight = adds.count(),
                    "ADDs are not finished in time; they are told to try again"
                );
                phase.send_replace(Phase::Stopping);
                let _ = timeout(STOP, adds.none()).await;
            },
            why = told() => {
                let in_flight = adds.count();
                tracing::warn!(why, in_flight, "told to stop once more: not waiting any longer");
            }
        }
        // As late as possible: STATUS forgives the absence of a server for a time that is counted
        // from the stamp.
        stamp.write();
        // Before the listener is closed: a plugin that finds no socket knows at once that no server
        // is there.
        socket.remove();
        let _ = stop.send(());
        let _ = serving.await;
    }
}

/// Where the processes that an ADD needs are asked, as this server and as the plugin on the host
/// see them.
fn rounds(config: &NodeConfig, conditions: &Conditions, metrics: &Arc<Metrics>) -> Rounds {
    let NodeConfig { open_vswitch: OpenVSwitch { endpoint, ovn_run_dir, .. }, cni_conf, .. } =
        config;
    let here = Places {
        server_socket: None,
        ovsdb_endpoint: Some(endpoint.to_string()),
        ovn_run_dir: Some(ovn_run_dir.to_string_lossy().into_owned()),
    };
    let settings = |places: &Places| {
        PluginSettings::at(places, PATIENCE).expect("an endpoint can be read as it was written")
    };
    let (from_here, from_host) = (settings(&here), settings(&cni_conf.places()));
    Rounds { from_here, from_host, conditions: conditions.clone(), metrics: Arc::clone(metrics) }
}

/// tokio requires a non-blocking listener.
fn into_tokio(listener: std::os::unix::net::UnixListener) -> io::Result<tokio::net::UnixListener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}
