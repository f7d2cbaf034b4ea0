//! `ovn-k8s-gateway-helper`: the flows of a bridge whose NIC the node and its pods share, as
//! `gateway-init` leaves it.
//!
//! ```text
//! world ── NIC I ── bridge ── P patch ── br-int ── gateway router
//!                     └ NORMAL: the node
//! ```
//!
//! What pods send is remembered in a conntrack zone, and answers to it go back to them. All else is
//! the node's, but for the node ports of Services.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use contract::names::ServiceKey;
use kubeapi::{
    ApiServer, Connection,
    metrics::Metrics,
    services::{Protocol, Service, ServiceObject},
    watch::{Seen, Watch},
};
use prometheus::Registry;
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use uplink::flows::{
    self, Action, ConnectionState, Ct, Event, Family, Flows, Match, OfPort, Packet,
};

use super::{
    LegacyConfig,
    daemon::{self, DaemonOptions, Started},
    switch::{Port, Switch, patch_names},
};
use crate::chain;

const NAME: &str = "ovn-k8s-gateway-helper";
/// The modules that log, for `vlog/list`.
const MODULES: [&str; 5] = ["control", "daemon", "follow", "gateway_helper", "report"];
/// How long the flows of former Services stay while the API server does not answer. After a restart
/// of this process, it answers sooner; ten times as long would leave a new bridge without flows.
const FOR_SERVICES: Duration = Duration::from_secs(5);

/// Between attempts to find the ports. An attempt costs ovs-vswitchd a look at its configuration.
const PAUSE: Duration = Duration::from_secs(1);

const ARRIVAL: u8 = 0;
const ANSWERS: u8 = 1;

/// The arguments of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    pub bridge: String,
    pub nic: String,
    pub daemon: DaemonOptions,
}

type NodePorts = BTreeSet<(Protocol, u16)>;

/// Runs the command. An error goes to standard error.
pub fn run(helper: &Helper, config: &LegacyConfig) -> ExitCode {
    let Helper { bridge, nic, daemon } = helper;
    daemon::run(NAME, &MODULES, daemon, &config.run_dir, |started| {
        follow(bridge, nic, config, started)
    })
}

async fn follow(
    bridge: &str,
    nic: &str,
    config: &LegacyConfig,
    mut started: Started,
) -> Result<(), String> {
    let mut ports = connect(bridge, nic, config).await?;
    let api_server = config.api_server.clone()?;
    let (node_ports, mut changes) = watch::channel(None);
    let _watch = services(api_server, node_ports)?;
    if timeout(FOR_SERVICES, changes.changed()).await.is_err() {
        tracing::warn!("the API server has not answered yet: no node port has flows");
    }
    let desired = |ports: Ends, known: &Option<NodePorts>| {
        Arc::new(table(ports, config.conntrack_zone, known.as_ref().unwrap_or(&BTreeSet::new())))
    };
    loop {
        let (flows, wanted) = watch::channel(desired(ports, &changes.borrow_and_update()));
        let lost = Notify::new();
        let kept = flows::keep(&config.run_dir, bridge, wanted, |event| match event {
            Event::Installed { flows, outcome } => {
                let (all, added, removed) = (flows.len(), outcome.added, outcome.removed);
                tracing::info!(bridge, flows = all, added, removed, "flows installed");
                for conflict in &outcome.conflicts {
                    let flow = &conflict.slot;
                    tracing::warn!(bridge, ?flow, "another program's flow is in the way");
                }
                started.ready();
            }
            Event::Changed => tracing::warn!(bridge, "another program has changed flows; put back"),
            Event::Lost(error) => {
                let error = chain(&error);
                tracing::warn!(bridge, error, "the flows cannot be written; trying again");
                lost.notify_one();
            }
        });
        let followed = async {
            while changes.changed().await.is_ok() {
                let now = desired(ports, &changes.borrow_and_update());
                drop(flows.send(now));
            }
        };
        tokio::select! {
            () = kept => {}
            () = followed => return Err("the Services are no longer followed".to_owned()),
            () = lost.notified() => {}
        }
        ports = connected_again(bridge, nic, config).await;
    }
}

/// The ends once ovs-vswitchd has started again: their numbers may be others.
async fn connected_again(bridge: &str, nic: &str, config: &LegacyConfig) -> Ends {
    loop {
        match connect(bridge, nic, config).await {
            Ok(ports) => return ports,
            Err(why) => tracing::warn!(bridge, why, "no ports for the flows; trying again"),
        }
        sleep(PAUSE).await;
    }
}

/// The OpenFlow numbers of the NIC, and of the bridge's end of the patch.
#[derive(Debug, Clone, Copy)]
struct Ends {
    nic: OfPort,
    patch: OfPort,
}

/// Makes the patch ports where they are missing. The logical port of the other end is
/// `gateway-init`'s.
async fn connect(bridge: &str, nic: &str, config: &LegacyConfig) -> Result<Ends, String> {
    let open = || Switch::open(&config.ovsdb);
    let switch = open().await.map_err(|error| chain(&error))?;
    if !switch.has_bridge(bridge) {
        return Err(format!(
            "bridge {bridge} does not exist; ovn-k8s-util nics-to-bridge {nic} makes it"
        ));
    }
    if !switch.has_port(bridge, nic) || switch.ofport(nic).is_none() {
        return Err(format!(
            "interface {nic} is no port of bridge {bridge}, or has no OpenFlow port there"
        ));
    }
    let pair = Port::patch_pair(bridge, None);
    switch.make(&pair, None).await.map_err(|error| chain(&error))?;
    switch.settle().await.map_err(|error| chain(&error))?;
    let switch = open().await.map_err(|error| chain(&error))?;
    let [outer, _] = patch_names(bridge);
    let number = |name: &str| switch.ofport(name).map(|number| OfPort(number.into()));
    match (number(nic), number(&outer)) {
        (Some(nic), Some(patch)) => Ok(Ends { nic, patch }),
        _ => Err(format!("ovs-vswitchd gives {outer} no OpenFlow port")),
    }
}

/// The node ports of all Services, and every change of them.
fn services(
    api_server: ApiServer,
    node_ports: watch::Sender<Option<NodePorts>>,
) -> Result<Watch, String> {
    // Nobody asks this process for them.
    let metrics = Metrics::register(&Registry::new(), "ovn_k8s").map_err(|error| chain(&error))?;
    let mut all: BTreeMap<ServiceKey, NodePorts> = BTreeMap::new();
    let connection = Connection::open(api_server);
    Ok(Watch::start::<ServiceObject>(connection, metrics, move |seen| {
        match seen {
            Seen::All(listed) => {
                all =
                    listed.into_iter().map(|(key, service)| (key, of_service(&service))).collect();
            }
            Seen::Applied((key, service)) => drop(all.insert(key, of_service(&service))),
            Seen::Deleted(key) => drop(all.remove(&key)),
            Seen::Unlisted(_) => return,
        }
        node_ports.send_replace(Some(all.values().flatten().copied().collect()));
    }))
}

fn of_service(service: &Service) -> NodePorts {
    let ports = service.ports.iter();
    ports.filter_map(|port| Some((port.protocol, port.node_port?))).collect()
}

/// The flows.
fn table(Ends { nic, patch }: Ends, zone: u16, node_ports: &NodePorts) -> Flows {
    let mut flows = Flows::default();
    let ip = |port| Match::from_port(port).ip(Family::V4);
    let committed = Action::Ct(Ct::of(zone).commit());
    flows.add(ARRIVAL, 100, ip(patch), [committed, Action::Output(nic)]);
    flows.add(ARRIVAL, 50, ip(nic), [Action::Ct(Ct::of(zone).table(ANSWERS))]);
    for state in [ConnectionState::Established, ConnectionState::Related] {
        let answer = Match::default().state(state);
        flows.add(ANSWERS, 100, answer, [Action::Output(patch)]);
    }
    flows.add(ANSWERS, 0, Match::default(), [Action::Output(OfPort::NORMAL)]);
    flows.add(ARRIVAL, 0, Match::default(), [Action::Output(OfPort::NORMAL)]);
    for (protocol, port) in node_ports {
        let protocol = match protocol {
            Protocol::Tcp => flows::Protocol::Tcp,
            Protocol::Udp => flows::Protocol::Udp,
            Protocol::Sctp => flows::Protocol::Sctp,
        };
        let packet = Packet::Transport(Family::V4, protocol);
        let matching = Match::from_port(nic).packet(packet).destination_port(*port);
        flows.add(ARRIVAL, 100, matching, [Action::Output(patch)]);
    }
    flows
}
