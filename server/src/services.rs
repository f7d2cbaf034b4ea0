//! The node's part in Services. OVN does the load balancing; the node follows Services and their
//! endpoints for what OVN does not do.
//!
//! ```text
//! API server ─watch─▶ Known ─┬▶ Facts: ranges, destinations ─▶ management port: routes and rules
//!                            ├▶ stale connections ─▶ Pending ─▶ Connections
//!                            └▶ HealthChecks
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `known` | Services, EndpointSlices, ServiceCIDRs and nodes' addresses, and what follows; pure |
//! | `destination` | addresses whose connections the host's kernel translates; pure |
//! | `pending` | when stale connections are removed; pure |
//! | `connections` | removes them |
//! | `health_checks` | `healthCheckNodePort` |

use std::{collections::BTreeMap, net::IpAddr, path::Path, sync::Arc};

use contract::{
    limits::Exceeded,
    names::{ServiceKey, SliceKey},
};
use ipnet::IpNet;
use kubeapi::{
    Connection,
    services::{NodeAddressesObject, RangeObject, Service, ServiceObject, Slice, SliceObject},
    watch::{self, Extent, Observer, Prompt, Seen, Selection, Watched, WrongVersion},
};
use ovslog::LogRateLimit;
use podnet::control_socket::{ControlSocket, VSWITCHD};
use tokio::{
    sync::{mpsc, watch as values},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::{
    connections::Connections,
    health_checks::HealthChecks,
    known::{Known, Moves},
    pending::Pending,
};

mod connections;
mod destination;
mod health_checks;
mod known;
mod pending;

pub(crate) use destination::Destination;
pub(crate) use known::Facts;
pub(crate) use kubeapi::services::Protocol;

/// The name of a ServiceCIDR, and its ranges.
type Range = (Arc<str>, Box<[IpNet]>);
/// The name of a node, and its addresses.
type NodeAddresses = (Arc<str>, Box<[IpAddr]>);

/// What the watches report.
enum Event {
    Services(Seen<ServiceKey, (ServiceKey, Service)>),
    Slices(Seen<SliceKey, (SliceKey, Slice)>),
    Ranges(Seen<Arc<str>, Range>),
    Nodes(Seen<Arc<str>, NodeAddresses>),
    Zone(Option<Arc<str>>),
    /// The API server does not tell of the nodes, or not now.
    NoNodes,
}

/// Slices of Services that no proxy serves are not read at all.
const NOT_HEADLESS: &str = "!service.kubernetes.io/headless";

/// Which Services matter to which node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServicesConfig<'a> {
    pub(crate) node: &'a str,
    /// The ranges of Services' addresses that the options name.
    pub(crate) ranges: &'a [IpNet],
    /// The ranges of OVN itself.
    pub(crate) reserved: &'a [IpNet],
    /// The masquerade addresses, IPv4 and IPv6, at which OVN has node ports for local traffic.
    pub(crate) local_traffic: [IpAddr; 2],
    /// The directory with the control socket of ovs-vswitchd.
    pub(crate) ovs_run_dir: &'a Path,
}

/// Follows the Services, once `cluster` says which subnets pods have, for as long as the runtime
/// lives. `zone`: that of the node.
pub(crate) fn start(
    connection: &Connection,
    config: &ServicesConfig<'_>,
    cluster: impl Future<Output = Vec<IpNet>> + Send + 'static,
    mut zone: values::Receiver<Option<Arc<str>>>,
) -> values::Receiver<Facts> {
    let mut known = Known::new(config);
    let (facts, receiver) = values::channel(known.facts());
    let (events, received) = mpsc::unbounded_channel();
    let whole = Selection::default;
    let with_proxy = Selection { labels: Some(NOT_HEADLESS), ..whole() };
    let connections = Connections {
        switch: ControlSocket::of(config.ovs_run_dir, VSWITCHD),
        failing: LogRateLimit::default(),
    };
    let connection = connection.clone();
    let (of_api_server, events_of_all) = (connection.clone(), events.clone());
    // Most clusters have no `externalIPs`: a node of such a one hears of no other node.
    let follow_nodes = move || {
        let metadata = Selection { extent: Extent::Metadata, ..Selection::default() };
        follow::<NodeAddressesObject>(
            &connection,
            &events,
            metadata,
            Event::Nodes,
            Some(|| Event::NoNodes),
        );
    };
    tokio::spawn(async move {
        known.pods_are_in(cluster.await);
        follow::<ServiceObject>(&of_api_server, &events_of_all, whole(), Event::Services, None);
        follow::<SliceObject>(&of_api_server, &events_of_all, with_proxy, Event::Slices, None);
        follow::<RangeObject>(&of_api_server, &events_of_all, whole(), Event::Ranges, None);
        drop(of_api_server);
        tokio::spawn(async move {
            loop {
                let now = zone.borrow_and_update().clone();
                if events_of_all.send(Event::Zone(now)).is_err() || zone.changed().await.is_err() {
                    return;
                }
            }
        });
        run(known, received, follow_nodes, facts, connections).await;
    });
    receiver
}

fn follow<K: Watched>(
    connection: &Connection,
    events: &mpsc::UnboundedSender<Event>,
    selection: Selection,
    event: fn(Seen<K::Key, K::Value>) -> Event,
    lost: Option<fn() -> Event>,
) {
    let selection = Selection { presence: K::PRESENCE, ..selection };
    let follower = Follower { events: events.clone(), event, lost, complained: None };
    tokio::spawn(watch::follow::<K, _>(connection.clone(), selection, Prompt::default(), follower));
}

async fn run(
    mut known: Known,
    mut events: mpsc::UnboundedReceiver<Event>,
    follow_nodes: impl FnOnce(),
    facts: values::Sender<Facts>,
    mut connections: Connections,
) {
    let (mut pending, mut health_checks) = (Pending::default(), HealthChecks::default());
    let mut full = LogRateLimit::default();
    let (mut has_looked, mut look) = (false, JoinSet::new());
    let mut follow_nodes = Some(follow_nodes);
    loop {
        let next = pending.next();
        let event = tokio::select! {
            event = events.recv() => event,
            Some(Ok(found)) = look.join_next() => {
                // Whose they were is not known any more.
                let stale = known.stale_among(&found).into_iter().map(|stale| (stale, Arc::from("")));
                tell(&mut full, pending.take(stale, [], Instant::now()));
                continue;
            }
            () = at(next) => {
                connections.remove(&pending.due(Instant::now())).await;
                continue;
            }
        };
        let Some(event) = event else { return };
        let Moves { stale, valid } = take(&mut known, event);
        tell(&mut full, pending.take(stale, valid, Instant::now()));
        if known.awaits_nodes()
            && let Some(follow) = follow_nodes.take()
        {
            follow();
        }
        // Watches tell of changes, and before the first lists nobody looked. Beside the events: a
        // switch that hangs must not delay what the node needs to be ready.
        if known.is_complete() && !std::mem::replace(&mut has_looked, true) {
            look.spawn(connections::translated(connections.switch.clone()));
        }
        // A list comes as one event, but a burst of changes as many: one look at the whole
        // suffices.
        if events.is_empty() {
            let now = known.facts();
            facts.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
            // Before the lists are there, each node would seem to have no endpoint.
            if known.is_complete() {
                health_checks.answer(known.health_checks());
            }
        }
    }
}

/// Says of which namespaces some connections are left alone.
fn tell(full: &mut LogRateLimit, left_out: BTreeMap<Arc<str>, Exceeded>) {
    for (namespace, why) in left_out {
        full.now(|times| {
            tracing::warn!(
                %namespace, %why, times,
                "clients of Services stay with endpoints that are gone"
            )
        });
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn take(known: &mut Known, event: Event) -> Moves {
    match event {
        Event::Zone(zone) => known.zone(zone),
        Event::Services(Seen::All(all)) => known.all_services(all),
        Event::Services(Seen::Applied((key, service))) => known.service(&key, Some(service)),
        Event::Services(Seen::Deleted(key)) => known.service(&key, None),
        Event::Slices(Seen::All(all)) => known.all_slices(all),
        Event::Slices(Seen::Applied((key, slice))) => known.slice(&key, Some(slice)),
        Event::Slices(Seen::Deleted(key)) => known.slice(&key, None),
        Event::Ranges(Seen::All(all)) => known.all_ranges(all),
        Event::Ranges(Seen::Applied((key, nets))) => known.range(key, Some(nets)),
        Event::Ranges(Seen::Deleted(key)) => known.range(key, None),
        // Only of kinds that an administrator defines.
        Event::Services(Seen::Unlisted(_))
        | Event::Slices(Seen::Unlisted(_))
        | Event::Ranges(Seen::Unlisted(_))
        | Event::Nodes(Seen::Unlisted(_)) => Moves::default(),
        Event::Nodes(Seen::All(all)) => known.all_nodes(all),
        Event::Nodes(Seen::Applied((name, addresses))) => known.node(name, addresses),
        Event::Nodes(Seen::Deleted(name)) => known.node(name, Box::default()),
        Event::NoNodes => known.no_nodes(),
    }
}

/// Passes on what a watch reports.
struct Follower<K: Watched> {
    events: mpsc::UnboundedSender<Event>,
    event: fn(Seen<K::Key, K::Value>) -> Event,
    /// What it means that nothing can be read.
    lost: Option<fn() -> Event>,
    /// The problem that was logged last, until it is over.
    complained: Option<String>,
}

impl<K: Watched> Follower<K> {
    fn tell(&self, seen: Seen<K::Key, K::Value>) {
        // Without a receiver the server ends.
        let _ = self.events.send((self.event)(seen));
    }
}

impl<K: Watched> Observer<K> for Follower<K> {
    fn all(&mut self, objects: Vec<K::Value>, _version: String) {
        tracing::debug!(kind = K::KIND, objects = objects.len(), "listed");
        self.tell(Seen::All(objects));
    }

    fn applied(&mut self, object: K::Value, _version: &str) -> Result<(), WrongVersion> {
        self.tell(Seen::Applied(object));
        Ok(())
    }

    fn deleted(&mut self, key: K::Key, _version: &str) -> Result<(), WrongVersion> {
        self.tell(Seen::Deleted(key));
        Ok(())
    }

    fn left_out(&mut self, reason: &str) {
        tracing::warn!(kind = K::KIND, error = %reason, "an object of the API server is left out");
    }

    fn heard(&mut self) {
        if self.complained.take().is_some() {
            tracing::info!(kind = K::KIND, "the watch is connected again");
        }
    }

    fn lost(&mut self, why: &str) {
        // Called after each failed attempt: logged once for each reason.
        if self.complained.as_deref() != Some(why) {
            tracing::warn!(kind = K::KIND, problem = why, "the watch is disconnected");
            if let Some(event) = self.lost {
                let _ = self.events.send(event());
            }
        }
        self.complained = Some(why.to_owned());
    }

    fn begins_anew(&mut self, why: &str) {
        tracing::debug!(kind = K::KIND, reason = why, "the watch starts over, with a list");
    }
}
