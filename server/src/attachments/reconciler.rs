//! The reconciler of attachments: decides when to look at rows, links and pods, and what to do
//! about what it sees. It acts on events; what fails is tried again less and less often. Slow work
//! runs in tasks beside it, one that restores and one that removes, so that links and pods are
//! followed meanwhile.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use contract::{backoff::Backoff, wire::BridgeFacts};
use podnet::{
    interface_lock,
    link::{Link, LinkError},
    netlink::listen::Listener,
    plan::Identity,
    settings::{SHORT_TIMEOUT, Settings},
};
use tokio::{
    sync::watch,
    task::{JoinError, JoinHandle},
    time::{Instant, sleep_until},
};

use super::{
    Environment, Repaired,
    ignored_devices::{self, chain_is_lost},
    links::{LinkNews, Links},
    local_rows::{LocalRows, Look, RowsHandle},
    plan::{Doubt, StaleAttachment},
    restore::{MissingPort, Restored},
    stale_candidates::StaleCandidates,
    workers::{self, Workers, ended},
};
use crate::{conditions::Part, ports::WriteQueue};

/// The longest time without a look, in case an event was lost. A lost event leaves a pod without a
/// network for this long; a look compares all attachments, so it should not be much more frequent.
const RESYNC: Duration = Duration::from_secs(30);
/// From an event to the look. Most ports vanish because of a DEL, which removes the link next: an
/// immediate look would restore them in vain.
const SETTLE: Duration = Duration::from_millis(100);
/// The same for ports of upstream's plugin, whose calls take no per-interface lock. If it is too
/// short, ports are restored while upstream's DEL removes them.
const GRACE: Duration = Duration::from_secs(1);
/// What failed is tried again after about this long, and then less and less often, up to
/// [`RESYNC`]. Usually a call of the plugin holds the per-interface lock for a moment.
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// From the start of a restoration to the next look, which finds ports that vanished meanwhile or
/// again. Usually the restoration ends before, which is followed by a look as well.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// The reconciler of a node's attachments.
pub(crate) struct Reconciler {
    environment: Arc<Environment>,
    rows: RowsHandle,
    /// The integration bridge, while the rows are up to date and have one.
    bridge: watch::Receiver<Option<BridgeFacts>>,
    links: Links,
    /// Notifications of nftables; `None`: a kernel without it.
    rules: Option<Listener>,
    workers: Workers,
    /// The list of all links, while the kernel is asked for it.
    listing: Option<JoinHandle<Result<Vec<Link>, LinkError>>>,
    restoring: Option<JoinHandle<Restored>>,
    ignoring: Option<JoinHandle<Repaired>>,
    sweeping: Option<JoinHandle<()>>,
    /// What is being removed: not suspected again meanwhile.
    swept: HashSet<Identity>,
    /// What is removed next.
    to_sweep: Vec<StaleAttachment>,
    candidates: StaleCandidates,
    /// When to look next.
    due: Instant,
    backoff: Backoff,
    /// Ports of upstream's plugin that are missing, and since when.
    graces: HashMap<String, Instant>,
    doubt: Option<Doubt>,
}

/// The settings with which the plugin's code removes attachments here.
pub(crate) fn plugin_settings(environment: &Environment) -> Settings {
    let calls = interface_lock::directory_beside(&environment.socket);
    Settings { calls, ..Settings::with_ovsdb(&environment.endpoint, SHORT_TIMEOUT) }
}

/// Starts the two tasks: the one that keeps the copy of the rows and writes ports, and the
/// reconciler. Both run for as long as the server lives. Needs a tokio runtime.
///
/// # Errors
/// The kernel lets nobody listen to changes of links.
pub(crate) fn start(environment: Environment, queue: WriteQueue) -> io::Result<()> {
    // Listens before the first list is made, so that no event in between is missed.
    let links = Links::listen()?;
    let rules = ignored_devices::listen();
    let environment = Arc::new(environment);
    let bridge = queue.bridge.subscribe();
    let (local_rows, rows) = LocalRows::new(Arc::clone(&environment), queue);
    let plugin = Arc::new(plugin_settings(&environment));
    let workers = Workers { environment: Arc::clone(&environment), plugin, rows: rows.clone() };
    let reconciler = Reconciler {
        environment,
        rows,
        bridge,
        links,
        rules,
        workers,
        listing: None,
        restoring: None,
        ignoring: None,
        sweeping: None,
        swept: HashSet::new(),
        to_sweep: Vec::new(),
        candidates: StaleCandidates::default(),
        due: Instant::now() + RESYNC,
        backoff: Backoff::new(FIRST_RETRY, RESYNC),
        graces: HashMap::new(),
        doubt: None,
    };
    tokio::spawn(local_rows.run());
    tokio::spawn(reconciler.run());
    Ok(())
}

impl Reconciler {
    async fn run(mut self) {
        let mut conditions = self.environment.conditions.watch();
        let mut own_node = self.environment.own_node.clone();
        let mut pods_were_known = false;
        loop {
            tokio::select! {
                () = self.rows.changed() => self.look_soon(),
                news = self.links.next() => self.kernel_says(news).await,
                changed = conditions.changed() => {
                    let are_known =
                        changed.is_ok() && !conditions.borrow_and_update().contains_key(&Part::PODS);
                    // Before the pods are known, no attachment can be found stale: now it can.
                    if are_known && !pods_were_known {
                        self.look_soon();
                    }
                    pods_were_known = are_known;
                    if changed.is_err() {
                        // The server ends.
                        return;
                    }
                }
                Ok(()) = own_node.changed() => self.look_soon(),
                listed = ended(&mut self.listing) => self.listed(listed),
                restored = ended(&mut self.restoring) => self.restored(restored),
                _ = ended(&mut self.sweeping) => self.sweep_next(),
                kept = ended(&mut self.ignoring) => {
                    // Success is not that of the look, which may have left something else.
                    if kept.unwrap_or(Repaired::NotAll) == Repaired::NotAll {
                        self.go_on(Repaired::NotAll);
                    }
                }
                () = chain_is_lost(&self.rules) => self.look_soon(),
                Ok(()) = self.bridge.changed() => self.look_soon(),
                () = sleep_until(self.due) => self.look().await,
            }
        }
    }

    async fn kernel_says(&mut self, news: LinkNews) {
        let matters = match news {
            LinkNews::Gone(names) => !names.is_empty() && self.rows.knows_any(names).await,
            LinkNews::Unknown => true,
        };
        if matters {
            self.look_soon();
        }
    }

    fn look_soon(&mut self) {
        self.due = self.due.min(Instant::now() + SETTLE);
    }

    /// Looks at rows, links and pods, and starts repairs.
    async fn look(&mut self) {
        let now = Instant::now();
        self.due = now + RESYNC;
        if self.bridge.borrow().is_none() || self.listing.is_some() {
            return;
        }
        // Without a complete list of links, every port would seem to have lost its link.
        let Some(links) = self.links.known() else {
            self.links.listing();
            self.listing = Some(workers::list());
            return;
        };
        // None if the server is shutting down.
        let Some(Look { missing, suspects, doubt, ignored }) = self.rows.look(links).await else {
            return;
        };
        self.say_doubt(doubt);
        // A task that still runs works with an older look.
        if self.ignoring.is_none() {
            self.ignoring = Some(tokio::spawn(ignored.keep()));
        } else {
            self.due = self.due.min(now + AFTERWARDS);
        }
        let done = self.put_back(missing, now);
        if let Some(patience) = self.environment.patience {
            // A suspect that is being removed must not be confirmed a second time.
            let suspects = suspects
                .into_iter()
                .filter(|suspect| !self.swept.contains(&suspect.identity))
                .collect();
            let confirmed = self.candidates.confirm(suspects, now, patience);
            self.due =
                self.due.min(self.candidates.due().map_or(self.due, |due| due.max(now + SETTLE)));
            self.swept.extend(confirmed.iter().map(|suspect| suspect.identity.clone()));
            self.to_sweep.extend(confirmed);
            self.sweep_next();
        }
        self.go_on(done);
    }

    /// Sets the time of the next look, which comes later each time while something cannot be done.
    fn go_on(&mut self, done: Repaired) {
        match done {
            Repaired::All => self.backoff.reset(),
            Repaired::NotAll => self.due = self.due.min(Instant::now() + self.backoff.next(None)),
        }
    }

    fn listed(&mut self, listed: Result<Result<Vec<Link>, LinkError>, JoinError>) {
        let links = listed.ok().and_then(|listed| listed.inspect_err(workers::say_unlisted).ok());
        let is_there = links.is_some();
        self.links.listed(links);
        if is_there {
            // The look that needed the list has not compared anything yet.
            self.due = Instant::now();
        } else {
            self.go_on(Repaired::NotAll);
        }
    }

    fn restored(&mut self, restored: Result<Restored, JoinError>) {
        let Ok(Restored { done, interfaces }) = restored else {
            return self.go_on(Repaired::NotAll);
        };
        self.rows.restored(interfaces);
        // Ports that vanished while the task ran were left out.
        self.look_soon();
        self.go_on(done);
    }

    /// Starts the next removal, unless one is running.
    fn sweep_next(&mut self) {
        if self.sweeping.is_none() {
            // What could not be removed may be suspected again from now on.
            self.swept = self.to_sweep.iter().map(|suspect| suspect.identity.clone()).collect();
            let confirmed = std::mem::take(&mut self.to_sweep);
            if !confirmed.is_empty() {
                self.sweeping = Some(tokio::spawn(self.workers.clone().sweep(confirmed)));
            }
        }
    }

    fn put_back(&mut self, mut missing: Vec<MissingPort>, now: Instant) -> Repaired {
        let names: HashSet<&str> =
            missing.iter().map(|missing| missing.attached.name.as_str()).collect();
        self.graces.retain(|name, _| names.contains(name.as_str()));
        let all = missing.len();
        // This project's calls are seen by their locks, upstream's are not: its ports have to be
        // missing for a while.
        missing.retain(|MissingPort { attached, qos: _ }| {
            let mut since = || *self.graces.entry(attached.name.clone()).or_insert(now);
            attached.names_pods_end() || now.duration_since(since()) >= GRACE
        });
        let ripe = missing.len() == all;
        // The running task may be restoring these ports; the look after its end starts the rest.
        if !missing.is_empty() && self.restoring.is_none() {
            self.restoring = Some(tokio::spawn(self.workers.clone().restore(missing)));
            self.due = self.due.min(now + AFTERWARDS);
        }
        if ripe { Repaired::All } else { Repaired::NotAll }
    }

    fn say_doubt(&mut self, doubt: Option<Doubt>) {
        // Reported when it changes, not at each look.
        if self.doubt == doubt {
            return;
        }
        let Environment { node, conditions, events, .. } = &*self.environment;
        match &doubt {
            Some(Doubt { gone, known, why }) => {
                let remark = format!(
                    "{gone} attached pods are said to be gone, {known} are known, and nothing confirms \
                     that these are the pods of this host: {why}; nothing of them is removed"
                );
                let hint = "do --init-node and the API server (or --pod-manifests) name this host and its cluster?";
                tracing::warn!(
                    gone,
                    known,
                    why,
                    hint,
                    "attached pods are said to be gone; nothing is removed until that is confirmed"
                );
                events.doubtful(node, &format!("{remark}; {hint}"));
                conditions.remark(Part::PODS, remark);
            }
            None => {
                tracing::info!("this host's list of pods is trusted again");
                conditions.unremark(Part::PODS);
            }
        }
        self.doubt = doubt;
    }
}
