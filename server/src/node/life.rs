//! The server's lifecycle: the order of its steps, from Open vSwitch's database to the last answer.
//! The steps themselves are in the other modules.
//!
//! ```text
//! Open vSwitch → configuration → OVN's settings → plugin → pods, management port
//!              → socket → CNI configuration → ready
//! ```
//!
//! [`Conditions`] has what the server waits for.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc};

use kubeapi::Connection;
use ovsdb::{Client, Endpoint};
use podnet::{daemon::PATIENCE, interface_lock, settings::Settings as PluginSettings};
use tokio::sync::watch;

use super::{
    ManagementPort, NodeConfig, PodsFrom, StartError,
    annotations::Annotator,
    certificate, cluster_subnets,
    gateway::{self, GatewayMode, GatewayReconciler},
    management_port::{
        self, AssignedSubnets, AssignedSubnetsOf, ClientAddresses, Happened, PortReconciler,
        ServiceRanges,
    },
    object::{self, NodeView},
    open_vswitch::{
        Chassis, Identity, Southbound, SouthboundTls,
        settings::{ChassisRecord, ENCAP_IP, SYSTEM_ID, Settings, own},
        switch::{Switch, Written},
        tunnel_address::{self, Internal},
    },
    own_node, plugin,
    zone_move::{
        ZoneMove,
        places::{ZonePlace, ZonePlaces},
    },
};
use crate::{
    attachments::{self, Environment, OwnNode},
    conditions::{Conditions, Part},
    dry_runs,
    events::Events,
    kernel_thread,
    metrics::Metrics,
    pods::{ApiPods, Manifests, PodSource},
    ports::{Ports, WriteQueue},
    release::{self, NodePorts},
    services::{self, Facts, ServicesConfig},
    unverified::warn_of_skipped_verification,
};

mod running;

pub use running::Running;

/// The file in which Open vSwitch's scripts keep the name of the chassis.
const SYSTEM_ID_FILE: &str = "/etc/openvswitch/system-id.conf";

/// Starts a server up to the point where its socket is served. Waits for Open vSwitch's database
/// first. May be dropped at any point: what it has made by then disturbs nothing. Needs a
/// [`runtime`](super::runtime).
///
/// `configure` makes the configuration from the `external_ids` of the `Open_vSwitch` table. It is
/// called again if they change before the server has written its own.
///
/// # Errors
///
/// Those of `configure`, and a [`StartError`] for whatever does not get better by waiting.
pub async fn start<E: From<StartError>>(
    database: &Endpoint,
    configure: impl Fn(&BTreeMap<String, String>) -> Result<NodeConfig, E>,
    conditions: &Conditions,
    metrics: &Arc<Metrics>,
) -> Result<Running, E> {
    let mut switch = Switch::connect(database, conditions.clone(), Arc::clone(metrics));
    // Subscribed before anything is read, so that no change is missed.
    let happened = management_port::listen().map_err(StartError::Netlink)?;
    // Again if another program writes in between: it may have written what `configure` reads.
    let (config, settled) = loop {
        let seen = switch.seen().await;
        let config = configure(&seen.external_ids)?;
        if let Some(settled) = settle(&mut switch, &seen, &config).await? {
            break (config, settled);
        }
    };
    Ok(serve(config, switch, settled, conditions, metrics, happened).await?)
}

/// What was written for ovn-controller.
struct Settled {
    tunnels: Tunnels,
    settings: Settings,
    /// The southbound database that it still follows, if it is not the one of the options.
    former: Option<Southbound>,
}

/// Writes the settings for ovn-controller, if they differ. `None` if another program has changed
/// the database meanwhile.
async fn settle(
    switch: &mut Switch,
    seen: &ChassisRecord,
    config: &NodeConfig,
) -> Result<Option<Settled>, StartError> {
    let tunnels = match &config.open_vswitch.chassis.encap_ip {
        Some(_) => Tunnels::Given,
        None => {
            Tunnels::Found(first_address(&config.pods, own(&seen.external_ids, ENCAP_IP)).await?)
        }
    };
    let chassis = &config.open_vswitch.chassis;
    let mut settings = wanted(chassis, &config.name, &tunnels).await;
    // Another database may be another zone's, which the node's object will tell.
    let may_move = chassis.interconnect && matches!(config.pods, PodsFrom::ApiServer(_));
    let former = if may_move { settings.stay(seen) } else { None };
    let change = settings.differing(seen);
    if change.is_empty() {
        tracing::info!("Open vSwitch's database has what ovn-controller needs");
    } else if switch.write(seen, &change).await? == Written::Done {
        tracing::info!(
            keys = change.describe(),
            "wrote what ovn-controller needs into Open vSwitch's database"
        );
    } else {
        return Ok(None);
    }
    Ok(Some(Settled { tunnels, settings, former }))
}

/// Starts everything from the plugin to the socket.
async fn serve(
    config: NodeConfig,
    switch: Switch,
    Settled { tunnels, settings, former }: Settled,
    conditions: &Conditions,
    metrics: &Arc<Metrics>,
    happened: Happened,
) -> Result<Running, StartError> {
    // One connection to Open vSwitch's database for all that read and write it.
    let (identity, client) = (switch.identity(), switch.client());

    let run_dir = ovs_run_dir(&config);
    metrics.count_dry_runs(move || dry_runs::packets(&run_dir));
    plugin::install(&config.plugin, conditions).await;
    // Followed after it was installed: the first report is that of the installation, with its
    // error.
    tokio::spawn(plugin::follow(config.plugin.clone(), conditions.clone()));

    let Sources { pods, events, api_server } = sources(&config, conditions, metrics)?;
    let view = api_server.as_ref().map(|connection| object::follow(connection, &config.name));
    let (lead, led) = watch::channel(None);
    let tunnels = tunnels.follow(view.clone(), &happened, conditions);
    tokio::spawn(switch.run(settings, tunnels, led));
    let object = api_server.zip(view);
    let node = config.name.clone();
    let node_ports = match &config.gateway {
        Some(gateway) if gateway.router_serves_node_ports() => NodePorts::GatewayRouter,
        Some(_) | None => NodePorts::Host,
    };
    tokio::spawn(release::warn(
        client.clone(),
        ovs_run_dir(&config),
        node_ports,
        node,
        events.clone(),
    ));
    // Before the management port's rules are written. The kernel may keep the question waiting, and
    // without the node's object there is no annotation that could wish for anything.
    let wish = match &object {
        Some(_) => management_port::Wish::at_start().await,
        None => management_port::Wish::Nothing,
    };
    let switch = SwitchLink { identity, client: client.clone(), former, lead };
    let own_node =
        keep_network(&config, object, switch, &events, (conditions, metrics), (happened, wish))?;
    let (ports, queue) = Ports::channel();
    let environment = Environment {
        node: config.name.clone(),
        endpoint: config.open_vswitch.endpoint.clone(),
        client,
        socket: config.socket.clone(),
        pods: Arc::clone(&pods),
        conditions: conditions.clone(),
        metrics: Arc::clone(metrics),
        events: events.clone(),
        own_node,
        patience: config.stale_after,
    };
    keep_attachments(environment, queue)?;
    // Last: from here on the plugin is answered, and its ADDs need pods and the port writer.
    Running::listen(config, pods, events, conditions.clone(), Arc::clone(metrics), ports)
}

/// The source of this node's tunnel address.
enum Tunnels {
    /// Configured by an administrator.
    Given,
    /// Chosen by this program: the address for now, if there is one yet.
    Found(Option<IpAddr>),
}

impl Tunnels {
    /// Follows the address. `None` if it is configured and does not change.
    fn follow(
        self,
        view: Option<watch::Receiver<NodeView>>,
        happened: &Happened,
        conditions: &Conditions,
    ) -> Option<watch::Receiver<Option<IpAddr>>> {
        let Self::Found(address) = self else {
            conditions.met(Part::TUNNEL_ADDRESS);
            return None;
        };
        // At once, and not only when the task runs: `/readyz` would show "not started".
        tunnel_address::report(conditions, address);
        let (address, tunnels) = watch::channel(address);
        let (host, conditions) = (happened.to_addresses.clone(), conditions.clone());
        tokio::spawn(tunnel_address::TunnelAddress { view, host, conditions, address }.follow());
        Some(tunnels)
    }
}

/// The tunnel address before the node's object is known. `before` is the address that this program
/// wrote at an earlier start.
async fn first_address(
    pods: &PodsFrom,
    before: Option<&str>,
) -> Result<Option<IpAddr>, StartError> {
    let internal = match pods {
        PodsFrom::Manifests(_) => Internal::Never,
        PodsFrom::ApiServer(_) => Internal::NotYet,
    };
    let before = before.and_then(|address| address.parse().ok());
    tunnel_address::look(internal, before).await.map_err(StartError::DefaultRoute)
}

/// The desired settings of this node.
async fn wanted(chassis: &Chassis, node: &str, tunnels: &Tunnels) -> Settings {
    let encap_ip = match tunnels {
        Tunnels::Given => chassis.encap_ip.clone(),
        Tunnels::Found(address) => address.map(|address| address.to_string()),
    };
    // The name that Open vSwitch's `ovs-ctl` would give: a chassis that changes its name is another
    // one to OVN.
    let system_id = tokio::fs::read_to_string(SYSTEM_ID_FILE).await.unwrap_or_default();
    let system_id = Some(system_id.trim()).filter(|id| !id.is_empty()).unwrap_or(node).to_owned();
    tracing::debug!(
        ?encap_ip,
        system_id,
        "chassis settings; a {SYSTEM_ID} in Open vSwitch's database takes precedence"
    );
    Settings::new(chassis, node, encap_ip, system_id)
}

/// The source of pods, the sink of events, and the connection to the API server, if there is one.
struct Sources {
    pods: Arc<dyn PodSource>,
    events: Events,
    api_server: Option<Connection>,
}

fn sources(
    config: &NodeConfig,
    conditions: &Conditions,
    metrics: &Arc<Metrics>,
) -> Result<Sources, StartError> {
    match &config.pods {
        PodsFrom::Manifests(directory) => {
            let manifests = Manifests::start(directory)?;
            // `start` has read the whole directory.
            conditions.met(Part::PODS);
            Ok(Sources { pods: Arc::new(manifests), events: Events::default(), api_server: None })
        }
        PodsFrom::ApiServer(api_server) => {
            let connection = Connection::open(api_server.clone());
            if let Some(certificate) = &config.certificate {
                let (certificate, node) = (certificate.clone(), config.name.clone());
                let metrics = Arc::clone(metrics);
                tokio::spawn(certificate::keep(certificate, node, connection.clone(), metrics));
            }
            tokio::spawn(warn_of_skipped_verification(
                connection.clone(),
                conditions.clone(),
                Part::MANAGEMENT_PORT,
            ));
            let events = Events::start(&connection, &config.name);
            let pods = ApiPods::start(
                connection.clone(),
                &config.name,
                conditions.clone(),
                Arc::clone(metrics),
            );
            Ok(Sources { pods: Arc::new(pods), events, api_server: Some(connection) })
        }
    }
}

/// What the node's own network needs of Open vSwitch's database.
struct SwitchLink {
    identity: watch::Receiver<Identity>,
    client: Client,
    /// See [`Settled::former`].
    former: Option<Southbound>,
    lead: watch::Sender<Option<Southbound>>,
}

/// Starts the tasks of the node's own network and annotations. Returns whether the node's object is
/// this host's, as far as that is known. With pods from manifests there is no API server to assign
/// subnets: without `--node-subnets` there is no management port.
fn keep_network(
    config: &NodeConfig,
    object: Option<(Connection, watch::Receiver<NodeView>)>,
    SwitchLink { identity, client, former, lead }: SwitchLink,
    events: &Events,
    (conditions, metrics): (&Conditions, &Metrics),
    (happened, wish): (Happened, management_port::Wish),
) -> Result<watch::Receiver<OwnNode>, StartError> {
    let NodeConfig { name, management_port, .. } = config;
    conditions.met(Part::SERVICES);
    conditions.met(Part::CLUSTER_SUBNETS);
    let mut own_node =
        watch::channel(OwnNode::Unconfirmed("manifests have no node object".to_owned())).1;
    // From here on, the object is seen only while it is not another host's.
    let object = object.map(|(connection, view)| {
        let own = own_node::follow(name, view, identity.clone(), happened.to_addresses.clone());
        own_node = own.node;
        (connection, own.view)
    });
    let assigned = match &object {
        None => {
            watch::channel::<AssignedSubnetsOf>(Ok(AssignedSubnets {
                subnets: management_port.subnets.clone(),
                ..AssignedSubnets::default()
            }))
            .1
        }
        Some((_, view)) => object::assigned(name, view.clone()),
    };
    let services = service_ranges(config, object.as_ref(), assigned.clone());
    tokio::spawn(cluster_subnets::compare(
        management_port.cluster.clone(),
        assigned.clone(),
        conditions.clone(),
    ));
    let (published, gateway) = watch::channel(gateway::Published::default());
    let ties = gateway::Ties {
        node: name.clone(),
        cluster: management_port.cluster.clone(),
        mtu: management_port.mtu,
        endpoint: config.open_vswitch.endpoint.clone(),
        ovs_run_dir: ovs_run_dir(config),
        client: client.clone(),
        api_server: object.as_ref().map(|(connection, _)| connection.clone()),
        events: events.clone(),
        view: object.as_ref().map(|(_, view)| view.clone()),
        assigned: assigned.clone(),
        identity: identity.clone(),
        services: services.facts.clone(),
        happened: happened.to_addresses.clone(),
        rules: happened.to_table.clone(),
        watched: happened.watched.clone(),
        published,
        conditions: conditions.clone(),
    };
    // As for the management port below.
    let kernel_thread = kernel_thread::handle().map_err(StartError::Runtime)?;
    match config.gateway.clone() {
        Some(config) => {
            if config.router_serves_node_ports() {
                metrics.serves_node_ports();
            }
            kernel_thread.spawn(GatewayReconciler::new(config, ties).run());
        }
        None => drop(kernel_thread.spawn(gateway::retire(ties))),
    }
    // Met although there is no port: a node without one must become ready, too.
    if object.is_none() && management_port.subnets.is_empty() {
        conditions.met(Part::MANAGEMENT_PORT);
        return Ok(own_node);
    }
    if let Some((connection, view)) = object {
        tokio::spawn(object::tell_of_leaving(view.clone(), conditions.clone()));
        tokio::spawn(object::tell_of_waiting(
            name.clone(),
            view.clone(),
            assigned.clone(),
            events.clone(),
        ));
        let (node, addresses_changed) = (name.clone(), happened.to_addresses.clone());
        let (names, zone_names) = watch::channel(None);
        let places = places(config);
        let zone_move = ZoneMove {
            node: name.clone(),
            followed: former.unwrap_or_else(|| places.own.southbound.clone()),
            places,
            view: view.clone(),
            identity: identity.clone(),
            ovn_run_dir: config.open_vswitch.ovn_run_dir.clone(),
            names,
            lead,
        };
        tokio::spawn(zone_move.run());
        let annotator = Annotator {
            connection,
            node,
            zone: zone_names,
            view,
            identity,
            addresses_changed,
            masquerade: management_port.masquerade,
            wish,
            services: services.facts.clone(),
            gateway,
            host: None,
        };
        tokio::spawn(annotator.run());
    }
    // On the kernel thread: each request to rtnetlink blocks while another process holds the lock
    // for links (RTNL). Entered before the reconciler is made, because its sockets belong to the
    // runtime that they are opened in.
    let kernel_thread = kernel_thread::handle().map_err(StartError::Runtime)?;
    let _there = kernel_thread.enter();
    let reconciler = PortReconciler::new(
        management_port.clone(),
        name,
        client,
        assigned,
        conditions.clone(),
        happened,
        services,
    );
    kernel_thread.spawn(reconciler.map_err(StartError::Netlink)?.run());
    Ok(own_node)
}

/// The zones that the node may be in.
fn places(config: &NodeConfig) -> ZonePlaces {
    let Chassis { southbound, tls, .. } = &config.open_vswitch.chassis;
    let place = |zone: &str, remote: &str, tls: &Option<SouthboundTls>| ZonePlace {
        zone: zone.to_owned(),
        southbound: Southbound { remote: remote.to_owned(), tls: tls.clone() },
    };
    let other = config.other_zone.as_ref();
    let other = other.map(|other| place(&other.name, &other.southbound, &other.tls));
    ZonePlaces { own: place(&config.zone, southbound, tls), other }
}

/// The ranges of Services that this node reaches. With an API server, also starts what the node
/// does for Services.
fn service_ranges(
    config: &NodeConfig,
    object: Option<&(Connection, watch::Receiver<NodeView>)>,
    assigned: watch::Receiver<AssignedSubnetsOf>,
) -> ServiceRanges {
    let ManagementPort { cluster, services: ranges, reserved, local_traffic, .. } =
        &config.management_port;
    // As for the flows of the bridge: `gateway/plan.rs`.
    let clients = match config.gateway.as_ref().map(|gateway| gateway.mode) {
        Some(GatewayMode::Shared) => ClientAddresses::Given,
        Some(GatewayMode::Local) | None => ClientAddresses::Kept,
    };
    let Some((connection, view)) = object else {
        return ServiceRanges::new(watch::channel(Facts::of_options(ranges)).1, None, clients);
    };
    let ovs_run_dir = ovs_run_dir(config);
    let (node, local_traffic) = (config.name.as_str(), *local_traffic);
    let of_services =
        ServicesConfig { node, ranges, reserved, local_traffic, ovs_run_dir: &ovs_run_dir };
    ServiceRanges::new(
        services::start(
            connection,
            &of_services,
            cluster_subnets::known(cluster.clone(), assigned),
            object::zone(view.clone()),
        ),
        Some(ovs_run_dir),
        clients,
    )
}

/// The directory with the sockets of Open vSwitch.
fn ovs_run_dir(config: &NodeConfig) -> PathBuf {
    PluginSettings::with_ovsdb(&config.open_vswitch.endpoint, PATIENCE).ovs_run_dir
}

/// Starts the tasks that put back ports of pods that vanish, and write the ports that plugins
/// request.
fn keep_attachments(environment: Environment, queue: WriteQueue) -> Result<(), StartError> {
    tokio::spawn(attachments::tidy(interface_lock::directory_beside(&environment.socket)));
    tokio::spawn(attachments::finish_flushes(attachments::plugin_settings(&environment)));
    attachments::start(environment, queue).map_err(StartError::Netlink)
}
