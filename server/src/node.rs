//! The server's life: from its options to its last answer. Knows the order of things, not how they are done.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{oneshot, watch},
    time::timeout,
};

use crate::{
    api_server::{ApiServer, Connection},
    chain,
    cni_conf::{CniConf, CniConfError},
    conditions::{Conditions, Part},
    endpoints::{self, Endpoints},
    events::Events,
    http,
    log::{Log, LogConfig, start_server_log},
    metrics::Metrics,
    options::{NodeOptions, Problems},
    pods::{ApiPods, Manifests, ManifestsError, PodSource},
    requests::{AddDefaults, Desk, InFlight, Phase},
    socket::{Socket, SocketError},
};

mod open_vswitch;
mod plugin;

pub use open_vswitch::{Chassis, OpenVSwitch, SouthboundTls};
pub use plugin::PluginInstall;

/// How long the ADDs in flight may take to be finished when the server is told to stop.
const DRAIN: Duration = Duration::from_secs(20);
/// How long those that are told to try again may take to hear it.
const STOP: Duration = Duration::from_secs(1);

/// What a node's server is told.
#[derive(Debug)]
pub struct NodeConfig {
    /// Name of the node.
    pub name: String,
    pub pods: PodsFrom,
    pub add: AddDefaults,
    pub cni_conf: CniConf,
    pub plugin: PluginInstall,
    pub socket: PathBuf,
    pub log: LogConfig,
    pub pidfile: Option<PathBuf>,
    pub open_vswitch: OpenVSwitch,
    pub endpoints: Endpoints,
}

/// Where pods are known from.
#[derive(Debug, Clone)]
pub enum PodsFrom {
    /// A directory of Pod manifests.
    Manifests(PathBuf),
    ApiServer(ApiServer),
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Options(#[from] Problems),
    #[error(transparent)]
    Manifests(#[from] ManifestsError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    CniConf(#[from] CniConfError),
    #[error("the runtime of this program")]
    Runtime(#[source] io::Error),
}

/// Serves until the process is told to stop. An error is in the log, and on standard error.
pub fn run(options: &NodeOptions) -> Result<(), StartError> {
    options.config(&BTreeMap::new())?.run()
}

impl NodeConfig {
    fn run(self) -> Result<(), StartError> {
        let log = start_server_log(&self.log);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(StartError::Runtime);
        let outcome = runtime.and_then(|runtime| runtime.block_on(self.serve()));
        if let Err(error) = &outcome {
            say(error, &log);
        }
        outcome
    }

    async fn serve(self) -> Result<(), StartError> {
        let conditions = Conditions::default();
        let metrics = Arc::new(Metrics::with_log_files([self.log.file.clone(), PathBuf::from(&self.cni_conf.log_file)]));
        let _endpoints = endpoints::start(&self.endpoints, &conditions, &metrics);
        let mut signals = Signals::listen().map_err(StartError::Runtime)?;
        let mut events = Events::default();
        let source: Arc<dyn PodSource> = match &self.pods {
            PodsFrom::Manifests(directory) => {
                let manifests = Manifests::start(directory)?;
                conditions.met(Part::Pods);
                Arc::new(manifests)
            }
            PodsFrom::ApiServer(api_server) => {
                let connection = Connection::open(api_server.clone());
                events = Events::start(connection.clone(), &self.name);
                Arc::new(ApiPods::start(connection, &self.name, conditions.clone(), Arc::clone(&metrics)))
            }
        };
        let (socket, listener) = Socket::listen(&self.socket)?;
        let listener = into_tokio(listener).map_err(StartError::Runtime)?;
        let (phase, phases) = watch::channel(Phase::Running);
        let adds = InFlight::default();
        let desk = Arc::new(Desk { source, add: self.add, phase: phases, adds: adds.clone(), metrics: Arc::clone(&metrics), events });
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(http::serve(listener, desk, stopped));
        conditions.met(Part::Socket);

        if let Err(error) = self.cni_conf.install() {
            socket.remove();
            return Err(error.into());
        }
        conditions.met(Part::CniConf);
        metrics.became_ready();
        tracing::info!(
            node = self.name,
            version = env!("CARGO_PKG_VERSION"),
            socket = %socket.path().display(),
            "ready"
        );

        let why = signals.stop().await;
        tracing::info!(why, in_flight = adds.count(), "stopping; the CNI configuration stays in place");
        phase.send_replace(Phase::Draining);
        tokio::select! {
            drained = timeout(DRAIN, adds.none()) => if drained.is_err() {
                tracing::warn!(in_flight = adds.count(), "not finished in time; told to try again");
                phase.send_replace(Phase::Stopping);
                let _ = timeout(STOP, adds.none()).await;
            },
            why = signals.stop() => tracing::warn!(why, in_flight = adds.count(), "told to stop once more: not waiting any longer"),
        }
        // The socket goes first: who finds none knows at once that nobody is there.
        socket.remove();
        let _ = stop.send(());
        let _ = serving.await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// What tells a process to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one and returns its name.
    async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

fn into_tokio(listener: std::os::unix::net::UnixListener) -> io::Result<tokio::net::UnixListener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

/// An error that ends the process: to whoever started it, and to the log.
fn say(error: &StartError, log: &Log) {
    let text = chain(error);
    tracing::error!(error = text, "not started");
    if !log.on_stderr {
        eprintln!("ovnkube: {text}");
    }
}
