//! The management port: the interface over which this node's own processes and its pods reach each other (a kubelet's probes; pods of
//! the host's network). A desired state, compared and repaired whenever Open vSwitch or the kernel say that something changed.
//!
//! ```text
//! subnets, options ─▶ plan ─▶ Desired ─┬─ port: Open vSwitch's rows ──▶ a transaction of what differs
//!                                      ├─ link: the kernel's interface ─▶ steps of what differs ─▶ kernel
//!                                      └─ source_nat: rules ────────────▶ nftables
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `plan` | what the port is to be |
//! | `port` | its rows in Open vSwitch's database, and the transaction that corrects them |
//! | `link` | its interface, addresses, routes, neighbours, and the steps that correct them |
//! | `kernel` | reads these, and does the steps |
//! | `sysctl` | the interface's settings under `/proc/sys` |
//! | `source_nat` | the rules that give what leaves through it its address |
//! | `events` | that something changed in the kernel |
//!
//! Nothing is written that is as it should be: a restart changes nothing. The logical port `k8s-NODE` is the control plane's.

use std::{io, time::Duration};

use ovsdb::{Client, Endpoint, Event, Options, TransactError, Updates};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::changed;
use crate::{
    chain,
    conditions::{Conditions, Part},
};

mod events;
mod kernel;
mod link;
mod plan;
mod port;
mod source_nat;
mod sysctl;

use events::Gateways;
pub(super) use events::{Happened, listen};
pub use plan::ManagementPort;
pub(super) use plan::{INTERFACE, Lease};

use self::{
    kernel::{Kernel, Refused},
    link::{Step, steps},
    plan::Desired,
    port::Seen,
    source_nat::SourceNat,
};

/// Looks again after this long without an event, in case that one was lost.
const RESYNC: Duration = Duration::from_secs(300);
/// What could not be done is tried again after this long, and then after longer and longer, up to the other.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// The longest pause between attempts to connect to Open vSwitch's database.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the database may take to tell of what it was just told.
const ECHO: Duration = Duration::from_secs(1);
/// What happens in the kernel comes in crowds (a routing daemon that starts): the interface is looked at so often at most.
const SETTLE: Duration = Duration::from_millis(200);
/// One step may undo another (the kernel drops routes with an address): so often at most are they computed in a row.
const ROUNDS: usize = 3;

/// What a node has, or why it has nothing yet.
pub(super) type LeaseOf = Result<Lease, String>;

/// Keeps the port as it is to be.
pub(super) struct Keeper {
    config: ManagementPort,
    node: String,
    lease: watch::Receiver<LeaseOf>,
    conditions: Conditions,
    client: Client,
    updates: Updates,
    is_connected: bool,
    kernel: Kernel,
    source_nat: SourceNat,
    /// Changes with the interface.
    happened: watch::Receiver<u64>,
    /// Takes the neighbours whose changes matter.
    gateways: watch::Sender<Gateways>,
    /// When it was last compared.
    looked: Instant,
    /// Everything was as it should be, for this lease.
    finished: Option<Lease>,
    /// What was last said not to be possible.
    complaints: Vec<String>,
}

/// Removes the port of `node` from Open vSwitch, under its present and its old name, and with it the interface, its addresses, routes,
/// neighbours and settings; whether there was one. Waits for the database.
pub(super) async fn remove(endpoint: &Endpoint, node: &str) -> Result<bool, TransactError> {
    let (client, mut updates) = Client::start(endpoint.clone().into(), "Open_vSwitch", port::monitor(node), Options::small());
    loop {
        while !matches!(updates.next().await, Event::Connected) {}
        let Some(removal) = Seen::look(&updates, node).removal() else { return Ok(false) };
        match client.transact(removal).await {
            Ok(_) => return Ok(true),
            Err(TransactError::NotConnected(_) | TransactError::OutcomeUnknown(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes the rules; the name of their table, if there was one.
pub(super) async fn remove_rules() -> io::Result<Option<&'static str>> {
    source_nat::remove().await
}

/// Waits until then, if there is a time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// What a comparison came to.
#[derive(Default)]
struct Outcome {
    /// What keeps pods and node from reaching each other.
    missing: Option<String>,
    /// What this environment does not allow; the rest works.
    forbidden: Vec<String>,
    /// Whether it is worth another attempt without an event.
    failed: bool,
}

impl Keeper {
    /// Needs a tokio runtime.
    pub(super) fn new(
        config: ManagementPort,
        node: &str,
        endpoint: &Endpoint,
        lease: watch::Receiver<LeaseOf>,
        conditions: Conditions,
        happened: Happened,
    ) -> io::Result<Self> {
        let options = Options { backoff_max: PAUSE, ..Options::small() };
        let (client, updates) = Client::start(endpoint.clone().into(), "Open_vSwitch", port::monitor(node), options);
        Ok(Self {
            config,
            node: node.to_owned(),
            lease,
            conditions,
            client,
            updates,
            is_connected: false,
            kernel: Kernel::open()?,
            source_nat: SourceNat::default(),
            happened: happened.to_interface,
            gateways: happened.gateways,
            looked: Instant::now(),
            finished: None,
            complaints: Vec::new(),
        })
    }

    /// For as long as the server lives.
    pub(super) async fn keep(mut self) {
        let mut retry = FIRST_RETRY;
        loop {
            self.looked = Instant::now();
            let outcome = self.compare().await;
            let wait = if outcome.failed { retry } else { RESYNC };
            retry = if outcome.failed { (retry * 2).min(LAST_RETRY) } else { FIRST_RETRY };
            self.say(outcome);
            self.something(wait).await;
        }
    }

    fn say(&mut self, Outcome { missing, forbidden, failed: _ }: Outcome) {
        if forbidden != self.complaints {
            for complaint in forbidden.iter().filter(|complaint| !self.complaints.contains(complaint)) {
                tracing::warn!(complaint, "the management port lacks what this environment does not allow");
            }
            self.complaints = forbidden;
        }
        match missing {
            Some(why) => self.conditions.missing(Part::ManagementPort, why),
            None => {
                self.finished = self.lease.borrow().as_ref().ok().cloned();
                self.conditions.met(Part::ManagementPort);
            }
        }
    }

    /// Waits until something may be different.
    async fn something(&mut self, at_most: Duration) {
        let timer = sleep(at_most);
        tokio::pin!(timer);
        let seen = Seen::look(&self.updates, &self.node);
        let mut settled = None;
        loop {
            tokio::select! {
                event = self.updates.next() => match event {
                    Event::Connected => return self.is_connected = true,
                    Event::Disconnected(_) => return self.is_connected = false,
                    // The bridge changes with every pod.
                    Event::Changed(_) if Seen::look(&self.updates, &self.node) == seen => {}
                    Event::Changed(_) => return,
                },
                () = changed(&mut self.lease) => return,
                () = changed(&mut self.happened), if settled.is_none() => settled = Some(self.looked + SETTLE),
                () = at(settled) => return self.happened.mark_unchanged(),
                () = &mut timer => return,
            }
        }
    }

    /// Compares and repairs, as far as that can be done now.
    async fn compare(&mut self) -> Outcome {
        let missing = |why: String| Outcome { missing: Some(why), ..Outcome::default() };
        let failed = |why: String| Outcome { missing: Some(why), failed: true, ..Outcome::default() };
        let lease = match &*self.lease.borrow_and_update() {
            Ok(lease) => lease.clone(),
            Err(why) => return missing(why.clone()),
        };
        let desired = match self.config.desired(&self.node, &lease) {
            Ok(desired) => desired,
            Err(error) => return missing(format!("node {}: {error}", self.node)),
        };
        self.gateways.send_replace(desired.neighbours.iter().map(|neighbour| neighbour.address).collect());
        let is_repair = self.finished.as_ref() == Some(&lease);
        let mut seen = Seen::look(&self.updates, &self.node);
        if !seen.has_bridge() {
            let why = if self.is_connected { "ovn-controller has not made br-int yet" } else { "Open vSwitch's database does not answer" };
            return missing(format!("{INTERFACE}: {why}"));
        }
        match self.correct_rows(&seen, &desired, is_repair).await {
            Ok(false) => {}
            Ok(true) => seen = Seen::look(&self.updates, &self.node),
            Err(why) => return failed(why),
        }
        let mut outcome = match self.correct_link(&seen, &desired, is_repair).await {
            Ok(outcome) => outcome,
            Err(error) => return failed(format!("{INTERFACE} cannot be read from the kernel: {error}")),
        };
        match self.source_nat.correct(&desired).await {
            Ok(true) => log(&["source NAT".to_owned()], is_repair),
            Ok(false) => {}
            Err(error) => {
                let without = "what this host sends to pods from its other addresses may get no answer";
                outcome.failed = true;
                outcome.forbidden.push(format!("nftables: source NAT for {INTERFACE}: {error}; without it, {without}"));
            }
        }
        if outcome.missing.is_none() && !seen.is_installed(&desired.iface_id) {
            outcome.missing = Some(format!(
                "ovn-controller has not connected {INTERFACE} to port {0} yet: does OVN know it (ovn-nbctl lsp-get-type {0}), and is \
                 ovn-controller on node {1} connected? See its log there",
                desired.iface_id, self.node
            ));
        }
        outcome
    }

    /// Whether something had to be done; if so, the database has told of it.
    async fn correct_rows(&mut self, seen: &Seen, desired: &Desired, is_repair: bool) -> Result<bool, String> {
        let Some((change, done)) = seen.change(desired) else { return Ok(false) };
        let refused = |error| format!("{INTERFACE}: Open vSwitch's database did not take it: {}", chain(&error));
        self.client.transact(change).await.map_err(refused)?;
        log(&done, is_repair);
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

    async fn correct_link(&self, seen: &Seen, desired: &Desired, is_repair: bool) -> io::Result<Outcome> {
        let (mut outcome, mut done) = (Outcome::default(), Vec::new());
        for _ in 0..ROUNDS {
            outcome = Outcome::default();
            let Some(link) = self.kernel.look().await? else {
                let why = seen.error().unwrap_or("Open vSwitch has not made it yet: is ovs-vswitchd running?");
                outcome.missing = Some(format!("interface {INTERFACE}: {why}"));
                break;
            };
            let steps = steps(desired, seen.in_user_space, &link);
            if steps.is_empty() {
                break;
            }
            for step in steps {
                match self.kernel.take(link.index, &step).await {
                    Ok(()) => done.push(step.to_string()),
                    Err(error) => outcome.take(&step, &error),
                }
            }
        }
        log(&done, is_repair);
        Ok(outcome)
    }
}

impl Outcome {
    /// A step failed.
    fn take(&mut self, step: &Step, error: &Refused) {
        self.failed |= !error.is_final();
        let error = chain(error);
        match step {
            Step::SetSysctl(_) | Step::TurnChecksumOffloadOff => self.forbidden.push(error),
            _ => self.missing = Some(self.missing.take().map_or(error.clone(), |before| format!("{before}; {error}"))),
        }
    }
}

fn log(done: &[String], is_repair: bool) {
    match (done, is_repair) {
        ([], _) => {}
        (done, true) => tracing::warn!(interface = INTERFACE, done = done.join(", "), "repaired the management port"),
        (done, false) => tracing::info!(interface = INTERFACE, done = done.join(", "), "set up the management port"),
    }
}
