//! A server whose socket is served: it is announced, answers, and ends. Not how it came there.

use std::{io, sync::Arc, time::Duration};

use contract::net_conf::Places;
use podnet::{partner::PATIENCE, settings::Settings as PluginSettings};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    cni_conf::{CniConfError, ConfKeeper},
    conditions::{Conditions, Part},
    events::Events,
    http,
    metrics::Metrics,
    node::{NodeConfig, OpenVSwitch, StartError},
    partners::{Partners, Rounds},
    pods::PodSource,
    ports::Ports,
    process::{announce, signals::Signals},
    requests::{Desk, InFlight, Phase},
    socket::Socket,
    stamp::Stamp,
};

/// How long the ADDs in flight may take to be finished when the server is told to stop.
const DRAIN: Duration = Duration::from_secs(20);
/// How long those that are told to try again may take to hear it.
const STOP: Duration = Duration::from_secs(1);
/// What is waited for before runtimes are told to use the plugin.
const NEEDED: [Part; 3] = [Part::TunnelAddress, Part::Plugin, Part::ManagementPort];

/// A server that listens.
pub(super) struct Running {
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
        // Before this server writes its own.
        let predecessor = podnet::stamp::age(&config.socket).and_then(|age| Instant::now().checked_sub(age));
        let stamp = Stamp::new(config.socket.clone(), Arc::clone(&source));
        tokio::spawn(stamp.clone().keep());
        let partners = Partners::watch(rounds(&config, &conditions, &metrics));
        let adds_of_desk = adds.clone();
        let desk = Arc::new(Desk {
            source,
            add: config.add,
            phase: phases,
            adds: adds_of_desk,
            metrics: Arc::clone(&metrics),
            events,
            partners,
            predecessor,
            ports,
        });
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(http::serve(listener, desk, stopped));
        conditions.met(Part::Socket);
        Ok(Self { config, conditions, metrics, socket, stamp, phase, adds, stop, serving })
    }

    /// Makes runtimes use the plugin, and serves until a signal comes.
    pub(super) async fn until_told(self, signals: &mut Signals) -> Result<(), StartError> {
        let why = tokio::select! {
            installed = self.announce() => match installed {
                Ok(()) => signals.stop().await,
                Err(error) => {
                    self.socket.remove();
                    return Err(error);
                }
            },
            why = signals.stop() => why,
        };
        self.end(why, signals).await;
        Ok(())
    }

    /// Writes the CNI configuration, once plugin and management port are there: before, the runtime would try to start what is not
    /// there, and the node would look ready. One that was written before stays: a restart takes the network away from nobody.
    async fn announce(&self) -> Result<(), StartError> {
        // Cannot fail: a sender is in the conditions that are watched.
        let _ = self.conditions.watch().wait_for(|missing| !NEEDED.iter().any(|part| missing.contains_key(part))).await;
        let is_installed = match self.config.cni_conf.install() {
            Ok(()) => true,
            Err(CniConfError::Chain(_)) => false,
            Err(error) => return Err(error.into()),
        };
        if is_installed {
            // The keeper has the last word.
            self.conditions.met(Part::CniConf);
        }
        tokio::spawn(ConfKeeper::new(self.config.cni_conf.clone(), self.conditions.clone()).keep());
        if !is_installed {
            // Whoever gave the chained plugins can put them right.
            let _ = self.conditions.watch().wait_for(|missing| !missing.contains_key(&Part::CniConf)).await;
        }
        self.metrics.became_ready();
        tracing::info!(node = self.config.name, socket = %self.socket.path().display(), "ready");
        Ok(())
    }

    async fn end(self, why: &str, signals: &mut Signals) {
        let Self { config: _, conditions, metrics: _, socket, stamp, phase, adds, stop, serving } = self;
        tracing::info!(why, in_flight = adds.count(), "stopping; the CNI configuration stays in place");
        announce::stopping();
        conditions.missing(Part::Socket, "the server is shutting down");
        phase.send_replace(Phase::Draining);
        tokio::select! {
            drained = timeout(DRAIN, adds.none()) => if drained.is_err() {
                tracing::warn!(in_flight = adds.count(), "not finished in time; told to try again");
                phase.send_replace(Phase::Stopping);
                let _ = timeout(STOP, adds.none()).await;
            },
            why = signals.stop() => tracing::warn!(why, in_flight = adds.count(), "told to stop once more: not waiting any longer"),
        }
        stamp.write();
        // The socket goes first: who finds none knows at once that nobody is there.
        socket.remove();
        let _ = stop.send(());
        let _ = serving.await;
    }
}

/// Where the partners of an ADD are asked, as the server sees them, and how the plugin calls them.
fn rounds(config: &NodeConfig, conditions: &Conditions, metrics: &Arc<Metrics>) -> Rounds {
    let NodeConfig { open_vswitch: OpenVSwitch { endpoint, ovn_run_dir, .. }, cni_conf, .. } = config;
    let here = Places {
        server_socket: None,
        ovsdb_endpoint: Some(endpoint.to_string()),
        ovn_run_dir: Some(ovn_run_dir.to_string_lossy().into_owned()),
    };
    let settings = |places: &Places| PluginSettings::at(places, PATIENCE).expect("an endpoint can be read as it was written");
    let (from_here, from_host) = (settings(&here), settings(&cni_conf.places()));
    Rounds { from_here, from_host, conditions: conditions.clone(), metrics: Arc::clone(metrics) }
}

fn into_tokio(listener: std::os::unix::net::UnixListener) -> io::Result<tokio::net::UnixListener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}
