//! The server's life: the order of things, from the options to the last answer. Not how they are done.
//!
//! ```text
//! log, pidfile, signals → endpoints → Open vSwitch → its settings → plugin → pods, management port → socket → CNI configuration → ready
//! ```
//!
//! What is waited for is in the [`Conditions`]. A signal to stop ends every wait.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use kubeapi::Connection;
use podnet::fence;
use tokio::sync::watch;

use self::running::Running;
use super::{
    NodeConfig, PodsFrom, StartError,
    annotations::Annotator,
    management_port::{self, Happened, Keeper, Lease, LeaseOf},
    object::{self, View},
    open_vswitch::{
        Chassis, Identity,
        settings::{ENCAP_IP, SYSTEM_ID, Settings, own},
        switch::{Switch, Written},
        tunnel_address::{self, Internal},
    },
    own_node, plugin,
};
use ovslog::background::Log;

use crate::{
    attachments::{self, OwnNode, Surroundings},
    conditions::{Conditions, Part},
    control_plane::{Beside, ControlPlaneConfig},
    endpoints,
    events::Events,
    kernel_thread,
    metrics::{Combined, Metrics},
    options::{Early, NodeOptions},
    pods::{ApiPods, Manifests, PodSource},
    ports::{Orders, Ports},
    process::{announce, pidfile::Pidfile, signals::Signals},
    unverified::warn_of_skipped_verification,
};

mod running;

/// Where Open vSwitch's scripts keep the chassis' name.
const SYSTEM_ID_FILE: &str = "/etc/openvswitch/system-id.conf";

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
    log.tell_of_options(&options.notes());
    let announcing = tokio::spawn(announce::changes(&conditions));
    let unit = tokio::spawn(announce::node_started(&conditions));

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
    for task in [announcing, unit] {
        task.abort();
        let _ = task.await;
    }
    if outcome.is_ok() {
        tracing::info!("stopped");
    }
    outcome
}

/// All that comes before the socket is served. Nothing that it leaves behind, if it is given up, is in anybody's way.
async fn start(options: &NodeOptions, early: Early, conditions: &Conditions, metrics: &Arc<Metrics>) -> Result<Running, StartError> {
    let mut switch = Switch::connect(&early.ovsdb, conditions.clone(), Arc::clone(metrics));
    // Before anything is read, so that no change is missed.
    let happened = management_port::listen().map_err(StartError::Netlink)?;
    let (config, tunnels, settings) = loop {
        let seen = switch.seen().await;
        let config = options.config(&seen.external_ids)?;
        let tunnels = match &config.open_vswitch.chassis.encap_ip {
            Some(_) => Tunnels::Given,
            None => Tunnels::Found(first_address(&config.pods, own(&seen.external_ids, ENCAP_IP)).await?),
        };
        let settings = wanted(&config.open_vswitch.chassis, &config.name, &tunnels).await;
        let change = settings.differing(&seen);
        if change.is_empty() {
            tracing::info!("Open vSwitch's database has what ovn-controller needs");
            break (config, tunnels, settings);
        }
        if switch.write(&seen, &change).await? == Written::Done {
            tracing::info!(keys = change.describe(), "wrote what ovn-controller needs into Open vSwitch's database");
            break (config, tunnels, settings);
        }
    };
    let identity = switch.identity();

    plugin::install(&config.plugin, conditions).await;
    tokio::spawn(plugin::follow(config.plugin.clone(), conditions.clone()));

    let Sources { pods, events, api_server } = sources(&config, conditions, metrics)?;
    let view = api_server.as_ref().map(|connection| object::follow(connection, &config.name));
    tokio::spawn(switch.keep(settings, tunnels.follow(view.clone(), &happened, conditions)));
    let object = api_server.zip(view);
    let own_node = keep_network(&config, object, identity, &events, conditions, happened)?;
    let (ports, orders) = Ports::channel();
    keep_attachments(&config, &pods, own_node, &events, conditions, metrics, orders)?;
    Running::listen(config, pods, events, conditions.clone(), Arc::clone(metrics), ports)
}

/// Where this node's tunnels end.
enum Tunnels {
    /// Somebody said it.
    Given,
    /// At this address for now, if there is any yet.
    Found(Option<IpAddr>),
}

impl Tunnels {
    /// The address from now on; none where it does not change.
    fn follow(
        self,
        view: Option<watch::Receiver<View>>,
        happened: &Happened,
        conditions: &Conditions,
    ) -> Option<watch::Receiver<Option<IpAddr>>> {
        let Self::Found(address) = self else {
            conditions.met(Part::TunnelAddress);
            return None;
        };
        tunnel_address::report(conditions, address);
        let (address, tunnels) = watch::channel(address);
        let (host, conditions) = (happened.to_addresses.clone(), conditions.clone());
        tokio::spawn(tunnel_address::Follower { view, host, conditions, address }.follow());
        Some(tunnels)
    }
}

/// The address that tunnels end at before the node's object is known; `before`: what this program wrote at an earlier start.
async fn first_address(pods: &PodsFrom, before: Option<&str>) -> Result<Option<IpAddr>, StartError> {
    let internal = match pods {
        PodsFrom::Manifests(_) => Internal::Never,
        PodsFrom::ApiServer(_) => Internal::NotYet,
    };
    let before = before.and_then(|address| address.parse().ok());
    tunnel_address::look(internal, before).await.map_err(StartError::DefaultRoute)
}

/// The settings that this node is to have.
async fn wanted(chassis: &Chassis, node: &str, tunnels: &Tunnels) -> Settings {
    let encap_ip = match tunnels {
        Tunnels::Given => chassis.encap_ip.clone(),
        Tunnels::Found(address) => address.map(|address| address.to_string()),
    };
    let system_id = tokio::fs::read_to_string(SYSTEM_ID_FILE).await.unwrap_or_default();
    let system_id = Some(system_id.trim()).filter(|id| !id.is_empty()).unwrap_or(node).to_owned();
    tracing::debug!(?encap_ip, system_id, "unless Open vSwitch's database has a {SYSTEM_ID} already");
    Settings::new(chassis, node, encap_ip, system_id)
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
            tokio::spawn(warn_of_skipped_verification(connection.clone(), conditions.clone(), Part::ManagementPort));
            let events = Events::start(&connection, &config.name);
            let pods = ApiPods::start(connection.clone(), &config.name, conditions.clone(), Arc::clone(metrics));
            Ok(Sources { pods: Arc::new(pods), events, api_server: Some(connection) })
        }
    }
}

/// Begins to keep the node's own network, and what the node says of itself; whether the node is this host, as long as that is known. Where pods come from manifests, nobody tells a node its
/// subnets: without `--node-subnets` there is no management port.
fn keep_network(
    config: &NodeConfig,
    object: Option<(Connection, watch::Receiver<View>)>,
    identity: watch::Receiver<Identity>,
    events: &Events,
    conditions: &Conditions,
    happened: Happened,
) -> Result<watch::Receiver<OwnNode>, StartError> {
    let NodeConfig { name, management_port, open_vswitch, zone, .. } = config;
    let mut own_node = watch::channel(OwnNode::Unconfirmed("manifests do not say whose they are".to_owned())).1;
    if object.is_none() && management_port.subnets.is_empty() {
        conditions.met(Part::ManagementPort);
        return Ok(own_node);
    }
    let lease = match object {
        None => watch::channel::<LeaseOf>(Ok(Lease { subnets: management_port.subnets.clone(), mac: None })).1,
        Some((connection, view)) => {
            own_node = own_node::follow(name, view.clone(), happened.to_addresses.clone());
            let lease = object::lease(name, view.clone());
            tokio::spawn(object::tell_of_waiting(name.clone(), view.clone(), lease.clone(), events.clone()));
            let (node, zone, addresses_changed) = (name.clone(), zone.clone(), happened.to_addresses.clone());
            tokio::spawn(Annotator { connection, node, zone, view, identity, addresses_changed, host: None }.keep());
            lease
        }
    };
    let (endpoint, conditions) = (&open_vswitch.endpoint, conditions.clone());
    // It asks the kernel all the time, and waits for nobody else.
    let kernel_thread = kernel_thread::handle().map_err(StartError::Runtime)?;
    let _there = kernel_thread.enter();
    let keeper = Keeper::new(management_port.clone(), name, endpoint, lease, conditions, happened);
    kernel_thread.spawn(keeper.map_err(StartError::Netlink)?.keep());
    Ok(own_node)
}

/// Begins to put back ports of pods that vanish, and to write those that are asked for.
fn keep_attachments(
    config: &NodeConfig,
    pods: &Arc<dyn PodSource>,
    own_node: watch::Receiver<OwnNode>,
    events: &Events,
    conditions: &Conditions,
    metrics: &Arc<Metrics>,
    orders: Orders,
) -> Result<(), StartError> {
    tokio::spawn(attachments::tidy(fence::directory_beside(&config.socket)));
    let around = Surroundings {
        node: config.name.clone(),
        endpoint: config.open_vswitch.endpoint.clone(),
        socket: config.socket.clone(),
        pods: Arc::clone(pods),
        conditions: conditions.clone(),
        metrics: Arc::clone(metrics),
        events: events.clone(),
        own_node,
        patience: config.stale_after,
    };
    tokio::spawn(attachments::Keeper::new(around, orders).map_err(StartError::Netlink)?.keep());
    Ok(())
}
