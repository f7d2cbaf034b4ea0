//! Open vSwitch's database on this node: waits for it, writes the settings, and puts back what
//! disappears.
//!
//! Start, repair and steady state are one path: the actual settings are compared with the desired
//! ones. After the start only a key that is missing is put back, and only after a while; a value
//! that another program or an administrator wrote stays until the server starts again with an
//! option for another one. The tunnel address is followed if this program chose it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use contract::external_ids::SANDBOX;
use ovsdb::{
    Client, Closed, Endpoint, ErrorKind, Event, Monitor, NotConnected, Options, State,
    TransactError, Updates, Uuid, Where,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Identity, Southbound, SouthboundTls,
    settings::{
        Change, ChassisRecord, ENCAP_IP, INTERCONNECT, REMOTE, SYSTEM_ID, Settings, removal,
    },
};
use crate::{
    chain,
    conditions::{Conditions, Part},
    metrics::{Metrics, Peer},
};

/// A key is put back after it was missing for this long: an administrator, or Open vSwitch's start
/// script, may be about to write it, and the script must come first with the name of the chassis.
/// Also the pause after the database refused a change.
const GRACE: Duration = Duration::from_secs(5);
/// The longest pause between attempts to connect. The socket is local, so an attempt is cheap. A
/// node that boots waits for this, and after a restart of the database so does every port that a
/// pod waits for.
const PAUSE: Duration = Duration::from_millis(500);

ovsdb::table! {
    struct Root in "Open_vSwitch" {
        external_ids: BTreeMap<String, String>,
        ssl: Option<Uuid>,
    }

    struct Ssl in "SSL" {
        private_key: String,
        certificate: String,
        ca_cert: String,
    }

    struct InterfaceRow in "Interface" {
        name: String,
        external_ids: BTreeMap<String, String>,
    }
}

/// The connection to the database, and a copy of what it holds.
#[derive(Debug)]
pub(crate) struct Switch {
    endpoint: Endpoint,
    client: Client,
    updates: Updates,
    state: watch::Receiver<State>,
    link: Link,
    conditions: Conditions,
    metrics: Arc<Metrics>,
    identity: watch::Sender<Identity>,
}

/// The state of the copy.
#[derive(Debug)]
enum Link {
    /// No connection yet.
    First,
    /// Up to date.
    Up,
    /// As it was when this connection ended.
    Lost(Closed),
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// The database has changed since it was read, or the connection is lost: read it again.
    Overtaken,
}

/// Waits for another tunnel address. Never returns if the address is configured.
async fn moved(tunnels: Option<&mut watch::Receiver<Option<IpAddr>>>) {
    match tunnels {
        Some(tunnels) => crate::node::changed(tunnels).await,
        None => std::future::pending().await,
    }
}

/// Whether the change has to be computed again: its guard failed, or the connection is lost.
fn overtaken(error: &TransactError) -> bool {
    let lost = matches!(error, TransactError::NotConnected(_) | TransactError::OutcomeUnknown(_));
    // A `wait` with timeout 0 whose condition is false fails with "timed out" (RFC 7047, section
    // 5.2.6).
    lost || error.kind() == Some(&ErrorKind::TimedOut)
}

impl Switch {
    /// Starts connecting. Returns at once; needs a tokio runtime.
    pub(crate) fn connect(
        endpoint: &Endpoint,
        conditions: Conditions,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self::monitoring(Self::settings(), endpoint, conditions, metrics)
    }

    /// The same, with a copy of the interfaces, for [`pods_interfaces`](Self::pods_interfaces).
    pub(crate) fn connect_with_interfaces(endpoint: &Endpoint) -> Self {
        Self::monitoring(
            Self::settings().table::<InterfaceRow>(Where::all()),
            endpoint,
            Conditions::default(),
            Arc::default(),
        )
    }

    fn settings() -> Monitor {
        Monitor::new().table::<Root>(Where::all()).table::<Ssl>(Where::all())
    }

    fn monitoring(
        monitor: Monitor,
        endpoint: &Endpoint,
        conditions: Conditions,
        metrics: Arc<Metrics>,
    ) -> Self {
        let options = Options { backoff_max: PAUSE, ..Options::small() };
        let (client, updates) =
            Client::start(endpoint.clone().into(), "Open_vSwitch", monitor, options);
        let state = client.state();
        let (endpoint, identity) = (endpoint.clone(), watch::Sender::default());
        Self { endpoint, client, updates, state, link: Link::First, conditions, metrics, identity }
    }

    /// The connection, for other readers and writers of the database.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The chassis as of the database, and its changes.
    pub(crate) fn identity(&self) -> watch::Receiver<Identity> {
        self.identity.subscribe()
    }

    /// The settings in the database. Waits for the first connection.
    pub(crate) async fn seen(&mut self) -> ChassisRecord {
        loop {
            if let Some(seen) = self.look() {
                return seen;
            }
            self.event().await;
        }
    }

    /// Writes a change, if the database still has the settings `seen`.
    pub(crate) async fn write(
        &mut self,
        seen: &ChassisRecord,
        change: &Change,
    ) -> Result<Written, TransactError> {
        match self.client.transact(change.transaction(seen)).await {
            Ok(_) => Ok(Written::Done),
            Err(error) if overtaken(&error) => {
                // Until the next event the copy is still the one that was refused.
                self.event().await;
                Ok(Written::Overtaken)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes what this program wrote. Returns the keys.
    pub(crate) async fn clean(&mut self) -> Result<Vec<String>, TransactError> {
        loop {
            let Some((removal, keys)) = removal(&self.seen().await) else { return Ok(Vec::new()) };
            match self.client.transact(removal).await {
                Ok(_) => return Ok(keys),
                Err(error) if overtaken(&error) => self.event().await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Names of the interfaces of attached pods.
    pub(crate) fn pods_interfaces(&self) -> Vec<String> {
        let attached = self
            .updates
            .rows::<InterfaceRow>()
            .filter(|(_, row)| row.external_ids.contains_key(SANDBOX));
        attached.map(|(_, row)| row.name.clone()).collect()
    }

    /// Reconciles the settings for as long as the server lives, and follows the tunnel address if
    /// there is a channel for it. ovn-controller is led to another southbound database when `lead`
    /// has one.
    pub(crate) async fn run(
        mut self,
        mut settings: Settings,
        mut tunnels: Option<watch::Receiver<Option<IpAddr>>>,
        mut lead: watch::Receiver<Option<Southbound>>,
    ) {
        // When the missing keys are put back. It stays over events that change nothing about them.
        let mut due = None;
        let (mut led, mut is_leading) = (None, false);
        loop {
            let seen = self.look();
            let to = lead.borrow_and_update().clone();
            if let Some(to) = to.filter(|to| led.as_ref() != Some(to)) {
                settings.lead(to.clone());
                (led, is_leading) = (Some(to), true);
            }
            if let Some(seen) = seen.as_ref().filter(|_| is_leading) {
                let change = settings.leading(seen);
                is_leading = !change.is_empty();
                if is_leading {
                    let done = "leads ovn-controller to another southbound database";
                    self.write_at_once(&change, seen, done).await;
                    continue;
                }
            }
            if let Some(tunnels) = &mut tunnels {
                let address = *tunnels.borrow_and_update();
                address.into_iter().for_each(|address| settings.set_encap_ip(address.to_string()));
                let moved = seen
                    .as_ref()
                    .map(|seen| (settings.moved(seen), seen))
                    .filter(|(moved, _)| !moved.is_empty());
                if let Some((moved, seen)) = moved.filter(|_| address.is_some()) {
                    // At once, without `GRACE`: until it is written, other nodes send to an address
                    // that this one has lost.
                    let done = "wrote this node's address for tunnels";
                    self.write_at_once(&moved, seen, done).await;
                    continue;
                }
            }
            let lacking = seen
                .map(|seen| (settings.missing(&seen), seen))
                .filter(|(missing, _)| !missing.is_empty());
            due = lacking.is_some().then(|| due.unwrap_or_else(|| Instant::now() + GRACE));
            let time = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.event() => continue,
                () = moved(tunnels.as_mut()) => continue,
                () = crate::node::changed(&mut lead) => continue,
                // `lacking` is as of this round, so it is still what the copy has: an event would
                // have started another round.
                () = time => due = None,
            }
            if let Some((missing, seen)) = lacking {
                self.put_back(&missing, &seen).await;
            }
        }
    }

    /// Writes a change of what is followed, and waits for the next event, as a rule the report of
    /// that change.
    async fn write_at_once(&mut self, change: &Change, seen: &ChassisRecord, done: &str) {
        let keys = change.describe();
        match self.write(seen, change).await {
            Ok(Written::Done) => {
                tracing::info!(keys, "{done}");
                self.event().await;
            }
            Ok(Written::Overtaken) => {}
            Err(error) => {
                tracing::warn!(
                    keys,
                    error = chain(&error),
                    "Open vSwitch's database refuses a change for ovn-controller"
                );
                // The loop would try again at once, and be refused again.
                sleep_until(Instant::now() + GRACE).await;
            }
        }
    }

    /// Writes the missing keys, with a warning: another program has removed them.
    async fn put_back(&mut self, missing: &Change, seen: &ChassisRecord) {
        let keys = missing.describe();
        match self.write(seen, missing).await {
            Ok(Written::Done) => {
                tracing::warn!(
                    keys,
                    "put back what ovn-controller needs and Open vSwitch's database lacked"
                )
            }
            Ok(Written::Overtaken) => {}
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(
                    keys,
                    error,
                    "Open vSwitch's database lacks what ovn-controller needs, and refuses it"
                );
            }
        }
    }

    /// The settings as of the copy, if it is up to date. Sets the condition either way, and
    /// publishes the chassis.
    fn look(&self) -> Option<ChassisRecord> {
        // The copy of a lost connection may be out of date: no change is computed from it.
        let root =
            matches!(self.link, Link::Up).then(|| self.updates.rows::<Root>().next()).flatten();
        let Some((root, Root { external_ids, ssl })) = root else {
            if let Some(why) = self.why_not() {
                self.conditions.missing(Part::OPEN_VSWITCH, why);
            }
            return None;
        };
        self.conditions.met(Part::OPEN_VSWITCH);
        let encap_ips = external_ids.get(ENCAP_IP).map_or("", String::as_str).split(',');
        let encap_ips: Vec<Option<IpAddr>> =
            encap_ips.map(|address| address.trim().parse().ok()).collect();
        let is_connected = external_ids.get(INTERCONNECT).is_some_and(|value| value == "true");
        let now = Identity {
            system_id: external_ids.get(SYSTEM_ID).filter(|id| !id.is_empty()).cloned(),
            encap_ip: encap_ips.first().copied().flatten(),
            encap_ips: encap_ips.into_iter().flatten().filter(|_| is_connected).collect(),
            remote: external_ids.get(REMOTE).cloned(),
        };
        self.identity.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        let ssl = ssl.and_then(|uuid| Some((uuid, self.updates.row::<Ssl>(uuid)?)));
        let files = |Ssl { private_key, certificate, ca_cert }: &Ssl| SouthboundTls {
            private_key: private_key.into(),
            certificate: certificate.into(),
            authority: ca_cert.into(),
        };
        Some(ChassisRecord {
            root,
            external_ids: external_ids.clone(),
            ssl: ssl.map(|(uuid, row)| (uuid, files(row))),
        })
    }

    /// Why the settings are not known. `None` while the first connection is being made.
    fn why_not(&self) -> Option<String> {
        let Self { endpoint, .. } = self;
        match (&self.link, &*self.state.borrow()) {
            (Link::Up, _) => {
                Some(format!("{endpoint}: the database has no row yet (ovs-vsctl init makes it)"))
            }
            // Before `Lost`: why no connection can be made now says more than why the last one
            // ended.
            (_, State::Disconnected(error @ NotConnected::Unreachable(_))) => Some(chain(error)),
            (Link::Lost(closed), _) => Some(format!("{endpoint}: {}", chain(closed))),
            (Link::First, _) => None,
        }
    }

    /// Waits for a change of the rows or of the connection. Cancellation-safe.
    async fn event(&mut self) {
        tokio::select! {
            event = self.updates.next() => match event {
                Event::Connected => {
                    if matches!(self.link, Link::Lost(_)) {
                        self.metrics.reconnected(Peer::OpenVSwitch);
                    }
                    self.link = Link::Up;
                }
                Event::Disconnected(closed) => self.link = Link::Lost(closed),
                Event::Changed(_) => {}
            },
            // Only for the reason why there is no connection (`why_not`): `updates` reports
            // everything else.
            _ = self.state.changed() => {}
        }
    }
}
