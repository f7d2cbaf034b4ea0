//! The server's life: the order of things, from the options to the last answer. Not how they are done.
//!
//! ```text
//! log, pidfile, signals → endpoints → Open vSwitch → its settings → plugin → pods, management port → socket → CNI configuration → ready
//! ```
//!
//! What is waited for is in the [`Conditions`]. A signal to stop ends every wait.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{
    NodeConfig, PodsFrom, StartError,
    annotations::Annotator,
    management_port::{self, Keeper, Lease, LeaseOf},
    object,
    open_vswitch::{
        Chassis, Identity, default_route,
        settings::{SYSTEM_ID, Settings},
        switch::{Switch, Written},
    },
    plugin,
};
use crate::{
    api_server::Connection,
    attachments::{self, Surroundings},
    conditions::{Conditions, Part},
    control_plane::{Beside, ControlPlaneConfig},
    endpoints,
    events::Events,
    http,
    log::Log,
    metrics::{Combined, Metrics},
    options::{Early, NodeOptions},
    partners::Partners,
    pods::{ApiPods, Manifests, PodSource},
    ports::{Orders, Ports},
    process::{announce, pidfile::Pidfile, signals::Signals},
    requests::{Desk, InFlight, Phase},
    socket::Socket,
};

/// How long the ADDs in flight may take to be finished when the server is told to stop.
const DRAIN: Duration = Duration::from_secs(20);
/// How long those that are told to try again may take to hear it.
const STOP: Duration = Duration::from_secs(1);
/// What is waited for before runtimes are told to use the plugin.
const NEEDED: [Part; 2] = [Part::Plugin, Part::ManagementPort];
/// Where Open vSwitch's scripts keep the chassis' name.
const SYSTEM_ID_FILE: &str = "/etc/openvswitch/system-id.conf";
/// The port that OVN's tunnels have unless the southbound database says otherwise.
const GENEVE_PORT: u16 = 6081;

/// From the first signal that could come to the last answer. `early` is what the options say without Open vSwitch's database.
pub(super) async fn live(
    options: &NodeOptions,
    early: Early,
    control_plane: Option<ControlPlaneConfig>,
    log: &Log,
) -> Result<(), StartError> {
    let mut signals = Signals::listen(log.reopen()).map_err(StartError::Runtime)?;
    let pidfile = early.pidfile.as_deref().map(Pidfile::create).transpose()?;
    let conditions = Conditions::of(Part::NODE.into_iter().chain(control_plane.iter().flat_map(ControlPlaneConfig::needs)));
    let metrics = Arc::new(Metrics::with_log_files([early.log.file.clone(), PathBuf::from(&early.cni_conf.log_file)]));
    tracing::info!(node = early.name, version = env!("CARGO_PKG_VERSION"), "starting");
    for note in options.notes() {
        tracing::warn!(note, "options");
    }
    let announcing = tokio::spawn(announce::changes(&conditions));

    // From here on, so that they say what is waited for.
    let (_endpoints, control_plane) = match control_plane {
        None => (endpoints::start(&early.endpoints, &conditions, &metrics), None),
        Some(config) => {
            let all = Combined::of(config.roles, &metrics)?;
            let roles = Beside::start(config, conditions.clone(), Arc::clone(&all.control_plane));
            (endpoints::start(&early.endpoints, &conditions, &Arc::new(all)), Some(roles))
        }
    };

    let outcome = tokio::select! {
        started = start(options, early, &conditions, &metrics) => match started {
            Ok(running) => running.until_told(&mut signals).await,
            Err(error) => Err(error),
        },
        why = signals.stop() => {
            tracing::info!(why, "told to stop before the start was complete");
            announce::stopping();
            Ok(())
        }
    };
    // Until here it may have given addresses to the pods whose ADDs were still to be finished.
    if let Some(roles) = control_plane {
        roles.stop().await;
    }
    if let Some(pidfile) = pidfile {
        pidfile.remove();
    }
    // Nothing is announced behind the last line.
    announcing.abort();
    let _ = announcing.await;
    if outcome.is_ok() {
        tracing::info!("stopped");
    }
    outcome
}

/// All that comes before the socket is served. Nothing that it leaves behind, if it is given up, is in anybody's way.
async fn start(options: &NodeOptions, early: Early, conditions: &Conditions, metrics: &Arc<Metrics>) -> Result<Running, StartError> {
    let mut switch = Switch::connect(&early.ovsdb, conditions.clone(), Arc::clone(metrics));
    let (config, settings) = loop {
        let seen = switch.seen().await;
        let config = options.config(&seen.external_ids)?;
        let settings = wanted(&config.open_vswitch.chassis, &config.name).await?;
        let change = settings.differing(&seen);
        if change.is_empty() {
            tracing::info!("Open vSwitch's database has what ovn-controller needs");
            break (config, settings);
        }
        if switch.write(&seen, &change).await? == Written::Done {
            tracing::info!(keys = change.describe(), "wrote what ovn-controller needs into Open vSwitch's database");
            break (config, settings);
        }
    };
    let identity = switch.identity();
    tokio::spawn(switch.keep(settings));

    plugin::install(&config.plugin, conditions).await;
    tokio::spawn(plugin::follow(config.plugin.clone(), conditions.clone()));

    let Sources { pods, events, api_server } = sources(&config, conditions, metrics)?;
    keep_network(&config, api_server, identity, &events, conditions)?;
    let (ports, orders) = Ports::channel();
    keep_attachments(&config, &pods, &events, conditions, metrics, orders)?;
    Running::listen(config, pods, events, conditions.clone(), Arc::clone(metrics), ports)
}

/// The settings that this node is to have.
async fn wanted(chassis: &Chassis, node: &str) -> Result<Settings, StartError> {
    if let Some(port) = chassis.encap_port.filter(|port| *port != GENEVE_PORT) {
        let hint = "OVN knows it from options:dst_port of the chassis' Encap row in the southbound database";
        tracing::warn!(port, hint, "--encap-port is nothing that this node can set");
    }
    let encap_ip = match &chassis.encap_ip {
        Some(address) => address.clone(),
        None => default_route::address().await.map_err(StartError::DefaultRoute)?.ok_or(StartError::NoEncapIp)?.to_string(),
    };
    let system_id = tokio::fs::read_to_string(SYSTEM_ID_FILE).await.unwrap_or_default();
    let system_id = Some(system_id.trim()).filter(|id| !id.is_empty()).unwrap_or(node).to_owned();
    tracing::debug!(encap_ip, system_id, "unless Open vSwitch's database has a {SYSTEM_ID} already");
    Ok(Settings::new(chassis, node, &encap_ip, system_id))
}

/// Where pods are known from, where events go, and the way to the API server if there is one.
struct Sources {
    pods: Arc<dyn PodSource>,
    events: Events,
    api_server: Option<Connection>,
}

fn sources(config: &NodeConfig, conditions: &Conditions, metrics: &Arc<Metrics>) -> Result<Sources, StartError> {
    match &config.pods {
        PodsFrom::Manifests(directory) => {
            let manifests = Manifests::start(directory)?;
            conditions.met(Part::Pods);
            Ok(Sources { pods: Arc::new(manifests), events: Events::default(), api_server: None })
        }
        PodsFrom::ApiServer(api_server) => {
            let connection = Connection::open(api_server.clone());
            let events = Events::start(&connection, &config.name);
            let pods = ApiPods::start(connection.clone(), &config.name, conditions.clone(), Arc::clone(metrics));
            Ok(Sources { pods: Arc::new(pods), events, api_server: Some(connection) })
        }
    }
}

/// Begins to keep the node's own network, and what the node says of itself. Where pods come from manifests, nobody tells a node its
/// subnets: without `--node-subnets` there is no management port.
fn keep_network(
    config: &NodeConfig,
    api_server: Option<Connection>,
    identity: watch::Receiver<Identity>,
    events: &Events,
    conditions: &Conditions,
) -> Result<(), StartError> {
    let NodeConfig { name, management_port, open_vswitch, zone, .. } = config;
    if api_server.is_none() && management_port.subnets.is_empty() {
        conditions.met(Part::ManagementPort);
        return Ok(());
    }
    let happened = management_port::listen().map_err(StartError::Netlink)?;
    let lease = match api_server {
        None => watch::channel::<LeaseOf>(Ok(Lease { subnets: management_port.subnets.clone(), mac: None })).1,
        Some(connection) => {
            let view = object::follow(&connection, name);
            let lease = object::lease(name, view.clone());
            tokio::spawn(object::tell_of_waiting(name.clone(), view.clone(), lease.clone(), events.clone()));
            let (node, zone, addresses_changed) = (name.clone(), zone.clone(), happened.to_addresses);
            tokio::spawn(Annotator { connection, node, zone, view, identity, addresses_changed }.keep());
            lease
        }
    };
    let (endpoint, conditions) = (&open_vswitch.endpoint, conditions.clone());
    let keeper = Keeper::new(management_port.clone(), name, endpoint, lease, conditions, happened.to_interface);
    tokio::spawn(keeper.map_err(StartError::Netlink)?.keep());
    Ok(())
}

/// Begins to put back ports of pods that vanish, and to write those that are asked for.
fn keep_attachments(
    config: &NodeConfig,
    pods: &Arc<dyn PodSource>,
    events: &Events,
    conditions: &Conditions,
    metrics: &Arc<Metrics>,
    orders: Orders,
) -> Result<(), StartError> {
    let around = Surroundings {
        endpoint: config.open_vswitch.endpoint.clone(),
        pods: Arc::clone(pods),
        conditions: conditions.clone(),
        metrics: Arc::clone(metrics),
        events: events.clone(),
        patience: config.stale_after,
    };
    tokio::spawn(attachments::Keeper::new(around, orders).map_err(StartError::Netlink)?.keep());
    Ok(())
}

/// A server whose socket is served.
struct Running {
    config: NodeConfig,
    conditions: Conditions,
    metrics: Arc<Metrics>,
    socket: Socket,
    phase: watch::Sender<Phase>,
    adds: InFlight,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Running {
    fn listen(
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
        let partners = Partners::watch(&config.open_vswitch.endpoint);
        let adds_of_desk = adds.clone();
        let desk =
            Desk { source, add: config.add, phase: phases, adds: adds_of_desk, metrics: Arc::clone(&metrics), events, partners, ports };
        let desk = Arc::new(desk);
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(http::serve(listener, desk, stopped));
        conditions.met(Part::Socket);
        Ok(Self { config, conditions, metrics, socket, phase, adds, stop, serving })
    }

    /// Makes runtimes use the plugin, and serves until a signal comes.
    async fn until_told(self, signals: &mut Signals) -> Result<(), StartError> {
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
        self.config.cni_conf.install()?;
        self.conditions.met(Part::CniConf);
        self.metrics.became_ready();
        tracing::info!(node = self.config.name, socket = %self.socket.path().display(), "ready");
        announce::ready();
        Ok(())
    }

    async fn end(self, why: &str, signals: &mut Signals) {
        let Self { config: _, conditions, metrics: _, socket, phase, adds, stop, serving } = self;
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
        // The socket goes first: who finds none knows at once that nobody is there.
        socket.remove();
        let _ = stop.send(());
        let _ = serving.await;
    }
}

fn into_tokio(listener: std::os::unix::net::UnixListener) -> io::Result<tokio::net::UnixListener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}
