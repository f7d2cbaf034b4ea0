//! Open vSwitch's database on this node: waits for it, writes the settings, and puts back what disappears.
//!
//! Start, repair and steady state are one path: what the database holds is compared with what it is to hold. Only a key that is missing
//! is put back, and only after a while; a value that somebody else wrote stays until the server starts again with an option that says
//! otherwise. The address of tunnels is followed where this program chose it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use contract::external_ids::SANDBOX;
use ovsdb::{Client, Closed, Endpoint, ErrorKind, Event, Monitor, NotConnected, Options, State, TransactError, Updates, Uuid, Where};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Identity, SouthboundTls,
    settings::{Change, SYSTEM_ID, Seen, Settings, removal},
};
use crate::{
    chain,
    conditions::{Conditions, Part},
    metrics::{Metrics, Peer},
};

/// How long a key may be missing: an administrator, or Open vSwitch's start script, may be about to write it.
const GRACE: Duration = Duration::from_secs(5);
/// The longest pause between attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

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

    struct Interface in "Interface" {
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

/// Whether the copy is up to date.
#[derive(Debug)]
enum Link {
    /// Not yet.
    First,
    Up,
    Lost(Closed),
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// The database holds something else by now, or is gone: look again.
    Overtaken,
}

/// The address of tunnels is another; never, where an administrator gave it.
async fn moved(tunnels: Option<&mut watch::Receiver<Option<IpAddr>>>) {
    match tunnels {
        Some(tunnels) => crate::node::changed(tunnels).await,
        None => std::future::pending().await,
    }
}

/// Whether what was seen is no longer what there is, or nobody is there to ask: look again.
fn overtaken(error: &TransactError) -> bool {
    let lost = matches!(error, TransactError::NotConnected(_) | TransactError::OutcomeUnknown(_));
    lost || error.kind() == Some(&ErrorKind::TimedOut)
}

impl Switch {
    /// Begins to connect.
    pub(crate) fn connect(endpoint: &Endpoint, conditions: Conditions, metrics: Arc<Metrics>) -> Self {
        Self::monitoring(Self::settings(), endpoint, conditions, metrics)
    }

    /// The same, to know the interfaces, too.
    pub(crate) fn connect_with_interfaces(endpoint: &Endpoint) -> Self {
        Self::monitoring(Self::settings().table::<Interface>(Where::all()), endpoint, Conditions::default(), Arc::default())
    }

    fn settings() -> Monitor {
        Monitor::new().table::<Root>(Where::all()).table::<Ssl>(Where::all())
    }

    fn monitoring(monitor: Monitor, endpoint: &Endpoint, conditions: Conditions, metrics: Arc<Metrics>) -> Self {
        let options = Options { backoff_max: PAUSE, ..Options::small() };
        let (client, updates) = Client::start(endpoint.clone().into(), "Open_vSwitch", monitor, options);
        let state = client.state();
        let (endpoint, identity) = (endpoint.clone(), watch::Sender::default());
        Self { endpoint, client, updates, state, link: Link::First, conditions, metrics, identity }
    }

    /// Who the database says that this node is, now and later.
    pub(crate) fn identity(&self) -> watch::Receiver<Identity> {
        self.identity.subscribe()
    }

    /// What the database holds, once it is there.
    pub(crate) async fn seen(&mut self) -> Seen {
        loop {
            if let Some(seen) = self.look() {
                return seen;
            }
            self.event().await;
        }
    }

    /// Writes a change of what was seen.
    pub(crate) async fn write(&mut self, seen: &Seen, change: &Change) -> Result<Written, TransactError> {
        match self.client.transact(change.transaction(seen)).await {
            Ok(_) => Ok(Written::Done),
            Err(error) if overtaken(&error) => {
                self.event().await;
                Ok(Written::Overtaken)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes away what this program wrote; the keys.
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

    /// Names of the interfaces that pods are attached by.
    pub(crate) fn pods_interfaces(&self) -> Vec<String> {
        let attached = self.updates.rows::<Interface>().filter(|(_, row)| row.external_ids.contains_key(SANDBOX));
        attached.map(|(_, row)| row.name.clone()).collect()
    }

    /// Follows the database for as long as the server lives, and the address of tunnels if this program chooses it.
    pub(crate) async fn keep(mut self, mut settings: Settings, mut tunnels: Option<watch::Receiver<Option<IpAddr>>>) {
        let mut due = None;
        loop {
            let seen = self.look();
            if let Some(tunnels) = &mut tunnels {
                let address = *tunnels.borrow_and_update();
                address.into_iter().for_each(|address| settings.set_encap_ip(address.to_string()));
                let moved = seen.as_ref().map(|seen| (settings.moved(seen), seen)).filter(|(moved, _)| !moved.is_empty());
                if let Some((moved, seen)) = moved.filter(|_| address.is_some()) {
                    self.move_tunnels(&moved, seen).await;
                    continue;
                }
            }
            let lacking = seen.map(|seen| (settings.missing(&seen), seen)).filter(|(missing, _)| !missing.is_empty());
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
                () = time => due = None,
            }
            if let Some((missing, seen)) = lacking {
                self.put_back(&missing, &seen).await;
            }
        }
    }

    /// Writes the address of tunnels, and waits until the database tells of it, or of something else.
    async fn move_tunnels(&mut self, change: &Change, seen: &Seen) {
        let keys = change.describe();
        match self.write(seen, change).await {
            Ok(Written::Done) => {
                tracing::info!(keys, "wrote where this node's tunnels end");
                self.event().await;
            }
            Ok(Written::Overtaken) => {}
            Err(error) => {
                tracing::warn!(keys, error = chain(&error), "Open vSwitch's database refuses this node's address for tunnels");
                sleep_until(Instant::now() + GRACE).await;
            }
        }
    }

    async fn put_back(&mut self, missing: &Change, seen: &Seen) {
        let keys = missing.describe();
        match self.write(seen, missing).await {
            Ok(Written::Done) => tracing::warn!(keys, "put back what ovn-controller needs and Open vSwitch's database lacked"),
            Ok(Written::Overtaken) => {}
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(keys, error, "Open vSwitch's database lacks what ovn-controller needs, and refuses it");
            }
        }
    }

    /// What the database holds, if it is there; says so either way.
    fn look(&self) -> Option<Seen> {
        let root = matches!(self.link, Link::Up).then(|| self.updates.rows::<Root>().next()).flatten();
        let Some((root, Root { external_ids, ssl })) = root else {
            if let Some(why) = self.why_not() {
                self.conditions.missing(Part::OpenVSwitch, why);
            }
            return None;
        };
        self.conditions.met(Part::OpenVSwitch);
        let now = Identity {
            system_id: external_ids.get(SYSTEM_ID).filter(|id| !id.is_empty()).cloned(),
            encap_ip: external_ids.get("ovn-encap-ip").and_then(|addresses| addresses.split(',').next()?.trim().parse().ok()),
        };
        self.identity.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        let ssl = ssl.and_then(|uuid| Some((uuid, self.updates.row::<Ssl>(uuid)?)));
        let files = |Ssl { private_key, certificate, ca_cert }: &Ssl| SouthboundTls {
            private_key: private_key.into(),
            certificate: certificate.into(),
            authority: ca_cert.into(),
        };
        Some(Seen { root, external_ids: external_ids.clone(), ssl: ssl.map(|(uuid, row)| (uuid, files(row))) })
    }

    /// None while the first answer is not there yet.
    fn why_not(&self) -> Option<String> {
        let Self { endpoint, .. } = self;
        match (&self.link, &*self.state.borrow()) {
            (Link::Up, _) => Some(format!("{endpoint}: the database has no row yet (ovs-vsctl init makes it)")),
            (_, State::Disconnected(error @ NotConnected::Unreachable(_))) => Some(chain(error)),
            (Link::Lost(closed), _) => Some(format!("{endpoint}: {}", chain(closed))),
            (Link::First, _) => None,
        }
    }

    /// Waits until something is different. Cancellation-safe.
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
            // Only for the reason why there is no connection: the updates tell of the rest.
            _ = self.state.changed() => {}
        }
    }
}
