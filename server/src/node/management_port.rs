//! The management port: the interface over which this node's own processes and its pods reach each
//! other (the kubelet's probes; pods in the host's network). It is a desired state, compared and
//! repaired after each event of Open vSwitch's database or of the kernel.
//!
//! ```text
//! subnets, options ─▶ plan ─▶ Desired ─┬─ port: Open vSwitch's rows ──▶ a transaction of what differs
//!                                      ├─ link: the kernel's interface ─▶ steps for what differs ─▶ kernel
//!                                      ├─ rules ────────────────────────▶ nftables
//!                                      └─ forwarding ───────────────────▶ settings of the host's interfaces
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `plan` | the desired state |
//! | `port` | its rows in Open vSwitch's database, and the transaction that corrects them |
//! | `link` | its interface, addresses, routes, neighbours, and the steps that correct them |
//! | `kernel` | reads these from the kernel, and carries out the steps |
//! | `sysctl` | the interface's settings under `/proc/sys` |
//! | `firewalls` | firewalls of other programs that may be in the way |
//! | `forwarded` | the source of what this host forwards to pods |
//! | `rules` | nftables rules for packets between host, pods and other hosts |
//! | `service_rules` | nftables rules for addresses of Services |
//! | `forwarding` | settings of the interfaces over which pods reach other hosts |
//! | `to_services` | what this host needs to reach Services over the port |
//! | `service_ranges` | which ranges of Services are reached over the port |
//! | `outcome` | what a comparison has come to |
//! | `events` | notifications of the kernel that something changed |
//!
//! Only what differs is written: a restart changes nothing. The control plane owns the logical port
//! `k8s-NODE`.

use std::{io, time::Duration};

use ovsdb::{Client, Endpoint, Event, Options, TransactError, Updates};
use podnet::bridge::Datapath;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{at, changed, pace::Pace};
use crate::{
    chain,
    conditions::{Conditions, Part},
};

mod events;
mod firewalls;
mod forwarded;
mod forwarding;
pub(super) mod kernel;
pub(super) mod link;
mod outcome;
pub(super) mod plan;
mod port;
mod rules;
mod service_ranges;
mod service_rules;
mod sysctl;
mod to_services;

pub(super) use events::{Happened, Watched, listen};
pub(super) use forwarded::Wish;
pub(super) use plan::{AssignedSubnets, INTERFACE};
pub use plan::{Forwarding, ManagementPort};
pub(super) use service_ranges::{ClientAddresses, ServiceRanges};
pub(crate) use service_rules::translation;

use self::{
    firewalls::Firewalls,
    forwarded::ForwardedSources,
    forwarding::Uplinks,
    kernel::Kernel,
    link::steps,
    outcome::{Occasion, Outcome, log},
    plan::Desired,
    port::Seen,
    rules::ChainRules,
    to_services::ToServices,
};

/// The port is compared after this long without an event, in case one was lost. A comparison reads
/// the kernel and costs little, but every node does it for ever; a lost event must not leave the
/// port broken for an hour.
const RESYNC: Duration = Duration::from_secs(300);
/// A repair that failed is tried again after this long, then after twice as long each time, up to
/// `LAST_RETRY`. The first ones are short because another program may have changed the same thing
/// for a moment; the last one is for a cause that only an administrator can remove.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How long the monitor may take to report a transaction that the database has committed. Without
/// the report, the next comparison sees the old rows and makes the same change again; without the
/// limit, a report that never comes would stop the repairs.
const ECHO: Duration = Duration::from_secs(1);
/// The host's addresses tell which interfaces forward for pods. They change with each interface of
/// a pod, which gets one of link scope, and seldom matter: a new uplink may forward this much
/// later.
const ADDRESSES: Duration = Duration::from_secs(2);
/// One step may undo another (the kernel removes routes with an address), so the steps are computed
/// again after they were done, at most this often: another program may undo them each time.
const ROUNDS: usize = 3;

/// The node's subnets, or why they are not known yet.
pub(super) type AssignedSubnetsOf = Result<AssignedSubnets, String>;

/// The reconciler of the port.
pub(super) struct PortReconciler {
    config: ManagementPort,
    node: String,
    assigned: watch::Receiver<AssignedSubnetsOf>,
    conditions: Conditions,
    client: Client,
    updates: Updates,
    is_connected: bool,
    kernel: Kernel,
    rules: [ChainRules; 5],
    services: ToServices,
    forwarded: ForwardedSources,
    firewalls: Firewalls,
    /// Changes with each event of the interface.
    happened: watch::Receiver<u64>,
    /// What else has events that matter.
    watched: watch::Sender<Watched>,
    /// Changes with each event of the host's addresses.
    addresses: watch::Receiver<u64>,
    pace: Pace,
    /// The subnets for which the port was complete. From then on, a change is a repair.
    finished: Option<AssignedSubnets>,
    /// What the environment does not allow, as last logged.
    complaints: Vec<String>,
}

/// Removes the port of `node` from Open vSwitch, under its present name and its old ones, and with
/// it the interface, its addresses, routes, neighbours and settings. Returns whether there was one.
/// Waits for the database.
pub(super) async fn remove(endpoint: &Endpoint, node: &str) -> Result<bool, TransactError> {
    let (client, mut updates) = Client::start(
        endpoint.clone().into(),
        "Open_vSwitch",
        port::monitor(node),
        Options::small(),
    );
    loop {
        while !matches!(updates.next().await, Event::Connected) {}
        let Some(removal) = Seen::look(&updates, node).removal() else { return Ok(false) };
        match client.transact(removal).await {
            Ok(_) => return Ok(true),
            // After the next connection the rows show whether the transaction was committed.
            Err(TransactError::NotConnected(_) | TransactError::OutcomeUnknown(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes the nftables rules. Returns the name of their table, if there was one.
pub(super) async fn remove_rules() -> io::Result<Option<&'static str>> {
    rules::remove().await
}

/// Removes the nftables chains that upstream's server does not have. Returns the names of those
/// that there were.
pub(super) async fn remove_own_rules() -> io::Result<Vec<&'static str>> {
    rules::remove_own().await
}

impl PortReconciler {
    /// Needs a tokio runtime.
    pub(super) fn new(
        config: ManagementPort,
        node: &str,
        client: Client,
        assigned: watch::Receiver<AssignedSubnetsOf>,
        conditions: Conditions,
        happened: Happened,
        services: ServiceRanges,
    ) -> io::Result<Self> {
        let watched = happened.watched.clone();
        let forwarded = ForwardedSources::new(services.ovs_run_dir.clone());
        let services = ToServices::new(
            (services, config.tunnel_ports.clone()),
            happened.to_table,
            watched,
            conditions.clone(),
        );
        Ok(Self {
            config,
            node: node.to_owned(),
            assigned,
            conditions,
            updates: client.replicate(port::monitor(node)),
            client,
            is_connected: false,
            kernel: Kernel::open()?,
            rules: rules::chains(),
            services,
            forwarded,
            firewalls: Firewalls::default(),
            happened: happened.to_interface,
            watched: happened.watched,
            addresses: happened.to_addresses,
            pace: Pace::begin(),
            finished: None,
            complaints: Vec::new(),
        })
    }

    /// Reconciles the port for as long as the server lives.
    pub(super) async fn run(mut self) {
        let mut retry = FIRST_RETRY;
        loop {
            self.pace = Pace::begin();
            let outcome = self.compare().await;
            self.pace.end();
            let wait = if outcome.failed { retry } else { RESYNC };
            retry = if outcome.failed { (retry * 2).min(LAST_RETRY) } else { FIRST_RETRY };
            self.say(outcome);
            self.something(wait).await;
        }
    }

    fn say(&mut self, Outcome { missing, forbidden, failed: _ }: Outcome) {
        if forbidden != self.complaints {
            // Logged once for as long as it holds, however often the repair is tried again.
            for complaint in
                forbidden.iter().filter(|complaint| !self.complaints.contains(complaint))
            {
                tracing::warn!(
                    complaint,
                    "this environment does not allow a setting of the management port"
                );
            }
            self.complaints = forbidden;
        }
        match missing {
            Some(why) => self.conditions.missing(Part::MANAGEMENT_PORT, why),
            None => {
                self.finished = self.assigned.borrow().as_ref().ok().cloned();
                self.conditions.met(Part::MANAGEMENT_PORT);
            }
        }
    }

    /// Waits for an event after which the port may differ, or for `at_most`.
    async fn something(&mut self, at_most: Duration) {
        let timer = sleep(at_most);
        tokio::pin!(timer);
        let seen = Seen::look(&self.updates, &self.node);
        let (mut settled, mut addressed) = (None, None);
        let (soon, services_soon) = (Some(self.pace.next()), Some(self.pace.next_of_services()));
        loop {
            tokio::select! {
                event = self.updates.next() => match event {
                    Event::Connected => return self.is_connected = true,
                    Event::Disconnected(_) => return self.is_connected = false,
                    // The row of the bridge changes with every pod: no reason to read the kernel.
                    Event::Changed(_) if Seen::look(&self.updates, &self.node) == seen => {}
                    Event::Changed(_) => return,
                },
                () = changed(&mut self.assigned) => return,
                // Endpoints on hosts may come and go as pods do.
                () = changed(&mut self.services.ranges.facts), if settled.is_none() || settled > services_soon => {
                    settled = services_soon;
                }
                // The first event starts the clock; those that follow until then are covered by one
                // comparison.
                () = changed(&mut self.happened), if settled.is_none() => settled = soon,
                () = changed(&mut self.addresses), if addressed.is_none() => {
                    addressed = Some(self.pace.began() + ADDRESSES)
                }
                () = at(settled) => return self.happened.mark_unchanged(),
                () = at(addressed) => return self.addresses.mark_unchanged(),
                // An event may have been lost.
                () = &mut timer => return self.services.rules.doubt(),
            }
        }
    }

    /// Compares, and repairs what can be repaired now.
    async fn compare(&mut self) -> Outcome {
        let missing = |why: String| Outcome { missing: Some(why), ..Outcome::default() };
        let failed =
            |why: String| Outcome { missing: Some(why), failed: true, ..Outcome::default() };
        // Marked as seen before it is used: a change during the repair wakes `something` at once.
        let assigned = match &*self.assigned.borrow_and_update() {
            Ok(assigned) => assigned.clone(),
            Err(why) => return missing(why.clone()),
        };
        let mut desired = match self.config.desired(&self.node, &assigned, &[]) {
            Ok(desired) => desired,
            Err(error) => return missing(format!("node {}: {error}", self.node)),
        };
        // Before the kernel is read: a change of a gateway's entry after that must be an event.
        let gateways = desired.neighbours.iter().map(|neighbour| neighbour.address).collect();
        self.watched.send_modify(|watched| watched.gateways = gateways);
        let is_finished = self.finished.as_ref() == Some(&assigned);
        let occasion = if is_finished { Occasion::Repair } else { Occasion::SetUp };
        let mut seen = Seen::look(&self.updates, &self.node);
        if !seen.has_bridge() {
            let why = if self.is_connected {
                "ovn-controller has not made br-int yet"
            } else {
                "Open vSwitch's database does not answer"
            };
            return missing(format!("{INTERFACE}: {why}"));
        }
        // Rows before the link: ovs-vswitchd makes the interface in the kernel from them.
        match self.correct_rows(&seen, &desired, occasion).await {
            Ok(false) => {}
            Ok(true) => seen = Seen::look(&self.updates, &self.node),
            Err(why) => return failed(why),
        }
        let unreadable =
            |error| failed(format!("{INTERFACE} cannot be read from the kernel: {error}"));
        let port = (&self.config, &*self.node);
        let is_same =
            match self.services.decide(&self.kernel, port, &assigned, &seen, &mut desired).await {
                Ok(is_same) => is_same,
                Err(error) => return unreadable(error),
            };
        // What Services need changes with them, and is no repair then.
        let occasion = if is_same { occasion } else { Occasion::SetUp };
        // Without the flows of the interface there are none of routes either.
        let is_installed = seen.is_installed(&desired.iface_id);
        let is_routed = !is_installed || self.route_forwarded(&assigned, &mut desired).await;
        let mut outcome = match self.correct_link(&seen, &desired, occasion).await {
            Ok(outcome) => outcome,
            Err(error) => return unreadable(error),
        };
        outcome.failed |= self.services.watch_detours() || !is_routed;
        self.correct_rules(&desired, occasion, &mut outcome).await;
        if let Err(error) = self.forward(&desired, occasion, &mut outcome).await {
            outcome.failed = true;
            outcome.forbidden.push(format!("forwarding for pods: the host's addresses: {error}"));
        }
        // ovn-controller sets `ovn-installed` when the flows of the port are in Open vSwitch
        // (ovn-controller(8)).
        if outcome.missing.is_none() && !seen.is_installed(&desired.iface_id) {
            outcome.missing = Some(format!(
                "ovn-controller has not connected {INTERFACE} to port {0} yet: does OVN know it (ovn-nbctl \
                 lsp-get-type {0}), and is ovn-controller on node {1} connected? See its log there",
                desired.iface_id, self.node
            ));
        }
        outcome
    }

    /// Sets the sources of what this host forwards. Returns whether OVN has routes to all of them.
    async fn route_forwarded(&mut self, assigned: &AssignedSubnets, desired: &mut Desired) -> bool {
        let unrouted = self.forwarded.decide(assigned, desired).await;
        let in_the_way = self.firewalls.look().await.iter().cloned();
        let remarks: Vec<String> =
            unrouted.iter().map(ToString::to_string).chain(in_the_way).collect();
        if remarks.is_empty() {
            self.conditions.unremark(Part::MANAGEMENT_PORT);
        } else {
            self.conditions.remark(Part::MANAGEMENT_PORT, remarks.join("; "));
        }
        unrouted.is_empty()
    }

    /// Corrects the rows. Returns whether one differed; if so, the copy of the rows has the change
    /// (or `ECHO` is over).
    async fn correct_rows(
        &mut self,
        seen: &Seen,
        desired: &Desired,
        occasion: Occasion,
    ) -> Result<bool, String> {
        let Some((change, done)) = seen.change(desired) else { return Ok(false) };
        let refused = |error| {
            format!("{INTERFACE}: cannot write to Open vSwitch's database: {}", chain(&error))
        };
        self.client.transact(change).await.map_err(refused)?;
        log(&done, occasion);
        // The transaction may be answered before the monitor reports it. A port that is added a
        // second time is refused.
        while Seen::look(&self.updates, &self.node) == *seen {
            match timeout(ECHO, self.updates.next()).await {
                Ok(Event::Connected) => self.is_connected = true,
                Ok(Event::Disconnected(_)) => self.is_connected = false,
                Ok(Event::Changed(_)) => {}
                Err(_) => break,
            }
        }
        Ok(true)
    }

    /// Corrects the rules of nftables. A failure is no reason to call the port missing: the kernel
    /// gives most packets of this host the port's address, and pods of the cluster reach each
    /// other.
    async fn correct_rules(
        &mut self,
        desired: &Desired,
        occasion: Occasion,
        outcome: &mut Outcome,
    ) {
        self.services.correct_rules(desired, occasion, outcome).await;
        for rules in &mut self.rules {
            match rules.correct(desired).await {
                Ok(true) => log(&[rules.what.to_owned()], occasion),
                Ok(false) => {}
                Err(error) => {
                    let ChainRules { what, without, .. } = rules;
                    outcome.failed = true;
                    outcome
                        .forbidden
                        .push(format!("nftables: {what}: {error}; without it, {without}"));
                }
            }
        }
    }

    /// Corrects the settings with which this host forwards packets of pods.
    async fn forward(
        &self,
        desired: &Desired,
        occasion: Occasion,
        outcome: &mut Outcome,
    ) -> io::Result<()> {
        let uplinks = Uplinks::read(self.config.masquerade).await?;
        let has =
            |is_v4: bool| desired.addresses.iter().any(|address| address.addr().is_ipv4() == is_v4);
        // Before they are written: a change by another program after that must be an event.
        self.watched.send_if_modified(|watched| {
            std::mem::replace(&mut watched.uplinks, uplinks.links.clone()) != uplinks.links
        });
        let mut done = Vec::new();
        for setting in uplinks.differing([has(true), has(false)]) {
            let written = match setting.over_netlink {
                Some(link) => self.kernel.forward(link).await,
                None => setting.write(),
            };
            match written {
                Ok(()) => done.push(format!("set {setting}")),
                Err(error) => {
                    outcome.failed |= !sysctl::is_forbidden(&error);
                    outcome
                        .forbidden
                        .push(format!("{setting}: {error}; without it, pods reach no other host"));
                }
            }
        }
        log(&done, occasion);
        Ok(())
    }

    /// Corrects the interface in the kernel.
    async fn correct_link(
        &self,
        seen: &Seen,
        desired: &Desired,
        occasion: Occasion,
    ) -> io::Result<Outcome> {
        let (mut outcome, mut done) = (Outcome::default(), Vec::new());
        for _ in 0..ROUNDS {
            // Only the last round counts: it may have done what was refused in the one before.
            outcome = Outcome::default();
            let Some(link) = self.kernel.look()? else {
                let why = seen
                    .error()
                    .unwrap_or("Open vSwitch has not made it yet: is ovs-vswitchd running?");
                outcome.missing = Some(format!("interface {INTERFACE}: {why}"));
                break;
            };
            let steps = steps(desired, seen.datapath.unwrap_or(Datapath::Kernel), &link);
            if steps.is_empty() {
                break;
            }
            for step in steps {
                match self.kernel.take(link.index, &step).await {
                    Ok(()) => done.push(step.to_string()),
                    // The other steps are done all the same: each brings the port nearer to
                    // working.
                    Err(error) => outcome.take(&step, &error),
                }
            }
        }
        log(&done, occasion);
        Ok(outcome)
    }
}
