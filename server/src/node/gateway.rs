//! The node's gateway: the bridge between the physical network, the host and OVN. It is a desired
//! state, compared and repaired after each event of Open vSwitch's database or of the kernel.
//!
//! ```text
//! options, default routes ─▶ next_hop ─▶ interface ─▶ bridge (uplink: a NIC becomes one) ─▶ Place ─┬─▶ flows
//!                                                                                                  ├─▶ mapping
//!                                                                                                  └─▶ annotation
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `next_hop` | the interface to the outside, and the routers behind it |
//! | `uplink_move` | a NIC becomes the uplink of a bridge, or not |
//! | `trial` | what has to answer after that |
//! | `lease` | the addresses of DHCP leases on the bridge, while a client renews them |
//! | `host` | links, addresses and default routes of the host |
//! | `config` | what an administrator says of it |
//! | `follow_nic` | how the bridge follows its NIC |
//! | `moves` | how often a NIC is made the uplink of a bridge |
//! | `nic` | the NIC behind the bridge, and what the bridge takes over from it |
//! | `facts` | what a comparison reads of host and bridge |
//! | `corrections` | what it corrects beside the rows of the bridge |
//! | `remarks` | what an administrator should know of it |
//! | `host_side` | the host's way to the gateway router |
//! | `announce` | that the host tells its neighbours of a new MAC address |
//! | `bridge` | the bridge in Open vSwitch's database, and the entry for ovn-controller |
//! | `flow_keeper` | the task that keeps the bridge's flows |
//! | `cleanup` | takes all of it away again |
//! | `retire` | the gateway of an earlier configuration |
//! | `plan` | the entry for the controller, and what the flows depend on |
//!
//! The gateway router has the address and the MAC address of the bridge. So its order is fixed:
//! flows that keep the host reachable come before the entry for ovn-controller, which makes the
//! patch port, and all other flows after it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use contract::{error::chain, mac::Mac, mtu::Mtu, node_annotation::GatewayEntry};
use ipnet::IpNet;
use kubeapi::Connection;
use ovsdb::{Client, Endpoint, Event, Updates};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use uplink::flows;

use self::{
    bridge::Seen,
    corrections::ignore_own,
    flow_keeper::FlowKeeper,
    host::Host,
    lease::BridgeLeases,
    moves::FailedMoves,
    nic::Nic,
    plan::{Place, Surroundings},
    uplink_move::UplinkMoves,
};
use super::{
    at, changed, cluster_subnets,
    management_port::{AssignedSubnetsOf, Watched},
    object::NodeView,
    open_vswitch::Identity,
    pace::Pace,
};
use crate::{
    conditions::{Conditions, Part},
    events::Events,
    services::Facts,
};

mod announce;
mod bridge;
mod cleanup;
mod config;
mod corrections;
mod facts;
mod flow_keeper;
mod follow_nic;
mod host;
mod host_side;
mod lease;
mod moves;
mod next_hop;
mod nic;
mod plan;
mod remarks;
mod retire;
mod trial;
mod uplink_move;

pub(super) use bridge::MAPPINGS;
pub(super) use cleanup::{Removed, remove};
pub use config::{GatewayConfig, GatewayMode, ManagedNic};
pub(super) use plan::{annotation, annotation_disabled, annotation_without};
pub(super) use retire::retire;

/// The gateway is compared after this long without an event, in case one was lost.
const RESYNC: Duration = Duration::from_secs(300);
/// A repair that failed is tried again after this long, then after twice as long each time, up to
/// `LAST_RETRY`. The first ones are short because a node's network comes up in steps; the last one
/// is for a cause that only an administrator can remove.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How long the monitor may take to report a transaction that the database has committed. Without
/// the report, the next comparison makes the same change again; without the limit, a report that
/// never comes would stop repairs.
const ECHO: Duration = Duration::from_secs(1);
/// How long the bridge's link may lack a family's address or routes before the gateway goes on
/// without: a link that goes down loses its IPv6 addresses, and the host's network configuration
/// gives them again when it is up. Connections of pods live through that; without the family's rows
/// and flows, the host itself would reset those that are back before them.
const GRACE: Duration = Duration::from_secs(5);

/// What the controller is told of the node's gateway, by an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Published {
    /// Nothing new: an annotation that is there stays.
    #[default]
    Unchanged,
    Entry(Arc<GatewayEntry>),
    /// The node has no gateway any more: the controller has to remove its rows.
    Disabled,
    /// The controller has done so.
    Gone,
}

/// What the reconciler works with, besides its configuration.
#[derive(Debug)]
pub(super) struct Ties {
    pub(super) node: String,
    /// The subnets of all pods.
    pub(super) cluster: Vec<IpNet>,
    pub(super) mtu: Mtu,
    /// Open vSwitch's database, for the move of a NIC.
    pub(super) endpoint: Endpoint,
    /// The directory with the sockets of bridges.
    pub(super) ovs_run_dir: PathBuf,
    pub(super) client: Client,
    /// The API server. `None` if pods come from manifests.
    pub(super) api_server: Option<Connection>,
    pub(super) events: Events,
    /// The node's object. `None` if pods come from manifests.
    pub(super) view: Option<watch::Receiver<NodeView>>,
    /// The node's subnets.
    pub(super) assigned: watch::Receiver<AssignedSubnetsOf>,
    pub(super) identity: watch::Receiver<Identity>,
    pub(super) services: watch::Receiver<Facts>,
    /// Changes with each event of the host's addresses, default routes and links with them.
    pub(super) happened: watch::Receiver<u64>,
    /// Changes with each event of this program's nftables rules: another program may have flushed
    /// all.
    pub(super) rules: watch::Receiver<u64>,
    /// What else has such events.
    pub(super) watched: watch::Sender<Watched>,
    /// What the controller is told.
    pub(super) published: watch::Sender<Published>,
    pub(super) conditions: Conditions,
}

/// The reconciler of the gateway.
pub(super) struct GatewayReconciler {
    config: GatewayConfig,
    ties: Ties,
    updates: Updates,
    is_connected: bool,
    flows: FlowKeeper,
    /// Why the flows cannot be written; changes with it.
    lost: watch::Receiver<Option<String>>,
    pace: Pace,
    /// The last complete state.
    finished: Option<Place>,
    /// Since when the link lacks what `finished` has of a family.
    lapsed: Option<Instant>,
    /// The addresses that neighbours were told of last.
    announced: Option<(Mac, Vec<IpNet>)>,
    /// The NIC as the bridge has it.
    nic: Option<Nic>,
    /// What an administrator should know of it, as last remarked.
    remarks: Vec<String>,
    /// Whether something beside the gateway itself has to be tried again.
    again: bool,
    failed_moves: FailedMoves,
    /// NICs that are left alone, and addresses that have come back to the NIC.
    moves: UplinkMoves,
    /// The leases that were moved to the bridge.
    leases: BridgeLeases,
    /// The host as last read. Events of Services alone do not change it.
    host: Option<Host>,
}

/// Why the gateway is not complete.
struct Waiting {
    why: String,
    /// Whether another attempt without an event may succeed.
    again: bool,
}

impl Waiting {
    /// An event ends the wait.
    fn event(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: false }
    }

    /// Something failed.
    fn failed(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: true }
    }
}

impl GatewayReconciler {
    /// Needs a tokio runtime.
    pub(super) fn new(config: GatewayConfig, ties: Ties) -> Self {
        let updates = ties.client.replicate(bridge::monitor());
        let flows = FlowKeeper::new(&ties.ovs_run_dir);
        let lost = flows.lost();
        Self {
            lost,
            flows,
            config,
            ties,
            updates,
            is_connected: false,
            pace: Pace::begin(),
            finished: None,
            lapsed: None,
            announced: None,
            nic: None,
            remarks: Vec::new(),
            again: false,
            failed_moves: FailedMoves::default(),
            moves: UplinkMoves::default(),
            leases: BridgeLeases::default(),
            host: None,
        }
    }

    /// Reconciles the gateway for as long as the server lives.
    pub(super) async fn run(mut self) {
        let mut retry = FIRST_RETRY;
        // Before the first look at the host: an interface that comes after that is an event.
        self.watch_nic(None);
        loop {
            self.pace = Pace::begin();
            let compared = self.compare().await;
            self.pace.end();
            let wait = match compared {
                Ok(place) => {
                    retry = FIRST_RETRY;
                    self.tell(place);
                    let resync = if self.again { LAST_RETRY } else { RESYNC };
                    self.lapsed.map_or(resync, |since| GRACE.saturating_sub(since.elapsed()))
                }
                Err(Waiting { why, again }) => {
                    self.ties.conditions.missing(Part::GATEWAY, why);
                    let wait = if again { retry } else { LAST_RETRY };
                    retry = if again { (retry * 2).min(LAST_RETRY) } else { FIRST_RETRY };
                    wait
                }
            };
            let lease = self.leases.end.map(|end| end.saturating_duration_since(Instant::now()));
            self.something(lease.map_or(wait, |lease| lease.min(wait))).await;
        }
    }

    fn tell(&mut self, place: Place) {
        self.ties.conditions.met(Part::GATEWAY);
        if self.finished.as_ref() != Some(&place) {
            let Place { bridge, mac, addresses, next_hops } = &place;
            tracing::info!(bridge, %mac, ?addresses, ?next_hops, "the node's gateway is complete");
            self.finished = Some(place);
        }
    }

    /// Waits for an event after which the gateway may differ, or for `at_most`.
    async fn something(&mut self, at_most: Duration) {
        let timer = sleep(at_most);
        tokio::pin!(timer);
        let seen = Seen::look(&self.updates);
        let (mut settled, soon) = (None, Some(self.pace.next()));
        let services_soon = Some(self.pace.next_of_services());
        loop {
            tokio::select! {
                event = self.updates.next() => match event {
                    // The ports of pods come and go.
                    Event::Changed(_) if Seen::look(&self.updates) == seen => {}
                    event => {
                        self.host = None;
                        return match event {
                            Event::Connected => self.is_connected = true,
                            Event::Disconnected(_) => self.is_connected = false,
                            Event::Changed(_) => {}
                        };
                    }
                },
                // The first event starts the clock; those that follow until then are covered by one
                // comparison.
                () = changed(&mut self.ties.happened), if settled.is_none() => {
                    (settled, self.host) = (soon, None);
                }
                () = changed(&mut self.ties.rules), if settled.is_none() => settled = soon,
                () = changed(&mut self.ties.services), if settled.is_none() || settled > services_soon => {
                    settled = services_soon;
                }
                () = changed(&mut self.ties.assigned), if settled.is_none() => settled = soon,
                () = changed(&mut self.ties.identity), if settled.is_none() => settled = soon,
                () = changed(&mut self.lost) => return,
                () = at(settled) => return,
                // An event may have been lost.
                () = &mut timer => return self.host = None,
            }
        }
    }

    /// Compares, and repairs what can be repaired now. Returns the place, if everything is in
    /// place.
    async fn compare(&mut self) -> Result<Place, Waiting> {
        self.lost.mark_unchanged();
        // Marked as seen before it is read: a change during the repair is an event.
        // An event after another one may not have been waited for.
        if self.ties.happened.has_changed().unwrap_or(true) {
            self.host = None;
        }
        self.ties.happened.mark_unchanged();
        self.ties.rules.mark_unchanged();
        let mut seen = Seen::look(&self.updates);
        if !seen.has_integration {
            let why = if self.is_connected {
                "ovn-controller has not made br-int yet"
            } else {
                "Open vSwitch's database does not answer"
            };
            return Err(Waiting::event(why));
        }
        let host = match self.host.take() {
            Some(host) => host,
            None => self.host().await?,
        };
        if let Some(trial) = seen.trial() {
            self.judge(&host, &seen, &trial).await?;
        }
        let interface = self.interface(&host, &seen)?;
        let Some(name) = seen.bridge_of(&interface).map(str::to_owned) else {
            return Err(self.make_bridge(&host, &seen, &interface).await);
        };
        let bridge = &seen.bridges[&name];
        let mut host = self.follow_nic(host, &seen, &name).await?;
        if let Some(nic) = self.left_on_nic(&host, bridge, &name) {
            host = self.move_rest(&host, &seen, nic).await?;
        }
        self.keep_lease(&host, &seen, &name).await?;
        self.host = Some(host.clone());
        let place = self.place(&host, &interface, &name)?;
        let mut ports = self.ports(&name, bridge)?;
        if bridge.in_user_space {
            ignore_own(bridge, &name).await?;
        }
        // Before ovn-controller hears of the bridge: the gateway router answers for the host's
        // address.
        if ports.patch.is_none() {
            let flows = flows::bootstrap(&plan::external_bridge(&self.config, &place, &ports));
            self.install(&name, flows).await?;
        }
        if let Some((change, done)) = seen.change(&name) {
            self.ties.client.transact(change).await.map_err(|error| {
                Waiting::failed(format!("Open vSwitch's database: {}", chain(&error)))
            })?;
            tracing::info!(bridge = name, done = done.join(", "), "set up the node's gateway");
            seen = self.echo(|now| *now != seen).await;
            ports = self.ports(&name, seen.bridges.get(&name).ok_or_else(|| gone(&name))?)?;
        }
        let entry = Published::Entry(Arc::new(plan::entry(&self.config, &self.ties.node, &place)));
        self.ties
            .published
            .send_if_modified(|before| std::mem::replace(before, entry.clone()) != entry);
        if ports.patch.is_none() {
            let port = plan::patch_port(&name, &self.ties.node);
            return Err(Waiting::event(format!(
                "ovn-controller has not made {port} on bridge {name} yet: does OVN have the node's gateway \
                 router (ovn-nbctl show GR_{0}), and is ovn-controller on node {0} connected? See the log of \
                 the control plane, and its log there",
                self.ties.node
            )));
        }
        let facts = self.ties.services.borrow_and_update().clone();
        let own = match &*self.ties.assigned.borrow_and_update() {
            Ok(assigned) => assigned.subnets.clone(),
            Err(_) => Vec::new(),
        };
        let management = contract::ovn::managements(&own).iter().map(IpNet::addr).collect();
        let surroundings = Surroundings {
            management,
            host: host.all_addresses(),
            cluster: &cluster_subnets::of_pods(&self.ties.cluster, &own),
            service_ranges: facts.ranges.keys().copied().collect(),
            destinations: facts.destinations.as_deref().unwrap_or_default(),
            mtu: self.ties.mtu,
        };
        let flows = flows::table(&plan::flows_config(&self.config, &place, &ports, surroundings));
        let flows =
            if facts.destinations.is_some() { flows } else { flows.without_knowing_services() };
        self.install(&name, flows).await?;
        // With the flows, of the new address; before the neighbours, which the kernel forgets for
        // it.
        let now = (place.mac, host.addresses_on(&name, &self.known_addresses()));
        if self.announced.as_ref().is_some_and(|before| *before != now) {
            announce::now(&name, place.mac).await;
        }
        self.announced = Some(now);
        self.correct_host_side(&place).await?;
        announce::on_change(&name);
        // The gateway works without that.
        let others = self.leave_others(&seen, &name).await;
        self.again = others.as_ref().is_err();
        self.remark(&host, &seen, &place, others.err().map(|Waiting { why, .. }| why));
        Ok(place)
    }

    /// Waits for the report of a transaction, after which the rows are so.
    async fn echo(&mut self, is_reported: impl Fn(&Seen) -> bool) -> Seen {
        let limit = Instant::now() + ECHO;
        loop {
            let seen = Seen::look(&self.updates);
            let left = limit.saturating_duration_since(Instant::now());
            if is_reported(&seen) || left.is_zero() {
                return seen;
            }
            match timeout(left, self.updates.next()).await {
                Ok(Event::Connected) => self.is_connected = true,
                Ok(Event::Disconnected(_)) => self.is_connected = false,
                Ok(Event::Changed(_)) | Err(_) => {}
            }
        }
    }
}

fn gone(bridge: &str) -> Waiting {
    Waiting::failed(format!("bridge {bridge} is gone"))
}
