//! Bridges and ports in Open vSwitch's database, as the older commands make them: what is missing
//! is added in one transaction, what differs is corrected, the rest stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contract::{mac::Mac, mtu::Mtu, paths::INTEGRATION_BRIDGE};
use ovsdb::{
    ConnectError, Connection, Datum, Endpoint, Monitor, MonitorError, Mutation, Mutator, NamedUuid,
    Options, Row, SelectedRow, TransactError, Transaction, Uuid, Where,
};
use tokio::time::timeout;

const DATABASE: &str = "Open_vSwitch";
const IFACE_ID: &str = "iface-id";
/// How long ovs-vswitchd may take to make a port. It normally acts at once; `nics-to-bridge` waits
/// as long.
const PATIENCE: Duration = Duration::from_secs(20);

ovsdb::table! {
    struct Root in "Open_vSwitch" {
        cur_cfg: i64,
    }
}

/// Why Open vSwitch has not what it should have.
#[derive(Debug, thiserror::Error)]
pub(super) enum SwitchError {
    #[error("Open vSwitch's database cannot be reached; is ovsdb-server running?")]
    Connect(#[from] ConnectError),
    #[error("Open vSwitch's database refused")]
    Transact(#[from] TransactError),
    #[error("Open vSwitch's database cannot be followed")]
    Monitor(#[from] MonitorError),
    #[error("the connection to Open vSwitch's database broke")]
    Closed(#[from] ovsdb::Closed),
    #[error("Open vSwitch's database is empty; has its service been started once?")]
    NoRoot,
    #[error("port {name} is on bridge {on} already, not on {bridge}")]
    Elsewhere { name: String, on: String, bridge: String },
    #[error("there is no bridge {0:?} in Open vSwitch")]
    NoBridge(String),
    #[error("ovs-vswitchd has not acted within {} s; is it running?", PATIENCE.as_secs())]
    Slow,
}

/// The database, as it was when it was read.
#[derive(Debug)]
pub(super) struct Switch {
    connection: Connection,
    external_ids: BTreeMap<String, String>,
    bridges: BTreeMap<String, Bridge>,
    interfaces: BTreeMap<String, Interface>,
}

#[derive(Debug)]
struct Bridge {
    uuid: Uuid,
    datapath: String,
    other_config: BTreeMap<String, String>,
    ports: BTreeSet<String>,
}

#[derive(Debug)]
struct Interface {
    uuid: Uuid,
    kind: String,
    mac_in_use: Option<String>,
    mac: Option<String>,
    mtu: Option<i64>,
    options: BTreeMap<String, String>,
    external_ids: BTreeMap<String, String>,
    ofport: Option<i64>,
}

/// A port with one interface.
#[derive(Debug, Clone)]
pub(super) struct Port {
    pub(super) bridge: String,
    pub(super) name: String,
    /// The interface's type.
    pub(super) kind: &'static str,
    /// The logical port that it is; none leaves what is there.
    pub(super) iface_id: Option<String>,
    pub(super) mac: Option<Mac>,
    pub(super) mtu: Option<Mtu>,
    /// Of a patch port.
    pub(super) peer: Option<String>,
}

impl Port {
    /// The two patch ports between a bridge and the integration bridge. `interface`: the logical
    /// port of the integration bridge's end.
    pub(super) fn patch_pair(bridge: &str, interface: Option<String>) -> [Self; 2] {
        let [outer, inner] = patch_names(bridge);
        let port = |bridge: &str, name: &str, iface_id, peer: &str| Self {
            bridge: bridge.to_owned(),
            name: name.to_owned(),
            kind: "patch",
            iface_id,
            mac: None,
            mtu: None,
            peer: Some(peer.to_owned()),
        };
        [port(bridge, &outer, None, &inner), port(INTEGRATION_BRIDGE, &inner, interface, &outer)]
    }
}

/// The names of these ports: of the bridge's, and of the integration bridge's.
pub(super) fn patch_names(bridge: &str) -> [String; 2] {
    [
        format!("k8s-patch-{bridge}-{INTEGRATION_BRIDGE}"),
        format!("k8s-patch-{INTEGRATION_BRIDGE}-{bridge}"),
    ]
}

impl Switch {
    /// Connects, and reads all bridges and ports.
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, SwitchError> {
        let options = Options { connect_timeout: PATIENCE, ..Options::small() };
        let connection = Connection::open(endpoint, DATABASE, options).await?;
        let mut tx = Transaction::new();
        let roots = tx.select(DATABASE, Where::all(), &["external_ids"]);
        let bridges = ["_uuid", "name", "ports", "datapath_type", "other_config"];
        let bridges = tx.select("Bridge", Where::all(), &bridges);
        let ports = tx.select("Port", Where::all(), &["_uuid", "name"]);
        let interfaces = [
            "_uuid",
            "name",
            "type",
            "mac_in_use",
            "mac",
            "mtu_request",
            "options",
            "external_ids",
            "ofport",
        ];
        let interfaces = tx.select("Interface", Where::all(), &interfaces);
        let outcome =
            timeout(PATIENCE, connection.transact(tx)).await.map_err(|_| SwitchError::Slow)??;
        let names: BTreeMap<Uuid, String> =
            outcome.rows(ports).iter().map(|row| (row.uuid(), text(row, "name"))).collect();
        let root = outcome.rows(roots).first().ok_or(SwitchError::NoRoot)?;
        let bridge = |row: &SelectedRow| Bridge {
            uuid: row.uuid(),
            datapath: text(row, "datapath_type"),
            other_config: row.map("other_config"),
            ports: row.uuids("ports").iter().filter_map(|uuid| names.get(uuid).cloned()).collect(),
        };
        let interface = |row: &SelectedRow| Interface {
            uuid: row.uuid(),
            kind: text(row, "type"),
            mac_in_use: row.string("mac_in_use").map(str::to_owned),
            mac: row.string("mac").map(str::to_owned),
            mtu: row.integer("mtu_request"),
            options: row.map("options"),
            external_ids: row.map("external_ids"),
            ofport: row.integer("ofport"),
        };
        let (external_ids, bridges, interfaces) = (
            root.map("external_ids"),
            outcome.rows(bridges).iter().map(|row| (text(row, "name"), bridge(row))).collect(),
            outcome
                .rows(interfaces)
                .iter()
                .map(|row| (text(row, "name"), interface(row)))
                .collect(),
        );
        Ok(Self { connection, external_ids, bridges, interfaces })
    }

    /// A key of `external_ids` that has a value.
    pub(super) fn external_id(&self, key: &str) -> Option<&str> {
        self.external_ids.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn has_bridge(&self, name: &str) -> bool {
        self.bridges.contains_key(name)
    }

    /// Whether the bridge has the port.
    pub(super) fn has_port(&self, bridge: &str, name: &str) -> bool {
        self.bridges.get(bridge).is_some_and(|bridge| bridge.ports.contains(name))
    }

    /// The OpenFlow number of an interface; none if ovs-vswitchd cannot use it.
    pub(super) fn ofport(&self, name: &str) -> Option<u16> {
        let ofport = self.interfaces.get(name)?.ofport?;
        u16::try_from(ofport).ok().filter(|number| *number > 0)
    }

    /// The MAC address that an interface has now.
    pub(super) fn mac(&self, interface: &str) -> Option<Mac> {
        self.interfaces.get(interface)?.mac_in_use.as_ref()?.parse().ok()
    }

    /// Whether the integration bridge's datapath is, or will be, in user space.
    pub(super) fn is_userspace(&self) -> bool {
        self.datapath() == "netdev"
    }

    fn datapath(&self) -> &str {
        let asked = self.external_id("ovn-bridge-datapath-type").unwrap_or_default();
        self.bridges.get(INTEGRATION_BRIDGE).map_or(asked, |bridge| &bridge.datapath)
    }

    /// Adds what is missing of these ports, and of the integration bridge, in one transaction, and
    /// waits until ovs-vswitchd has them. `pinned`: a bridge, and the MAC address that it is to
    /// keep. Nothing is written if nothing differs.
    pub(super) async fn make(
        &self,
        ports: &[Port],
        pinned: Option<(&str, Mac)>,
    ) -> Result<(), SwitchError> {
        let mut tx = Transaction::new();
        let mut inserted: BTreeMap<&str, Vec<NamedUuid>> = BTreeMap::new();
        for port in ports {
            if let Some((on, _)) = self
                .bridges
                .iter()
                .find(|(name, bridge)| **name != port.bridge && bridge.ports.contains(&port.name))
            {
                let (name, bridge) = (port.name.clone(), port.bridge.clone());
                return Err(SwitchError::Elsewhere { name, on: on.clone(), bridge });
            }
            match self.interfaces.get(&port.name) {
                Some(now) if self.has_port(&port.bridge, &port.name) => correct(&mut tx, now, port),
                _ => inserted.entry(&port.bridge).or_default().push(insert(&mut tx, port)),
            }
        }
        for (bridge, ports) in inserted {
            match self.bridges.get(bridge) {
                Some(row) => drop(tx.mutate(
                    "Bridge",
                    row.uuid,
                    ports.iter().map(|port| Mutation::insert("ports", port)).collect(),
                )),
                None if bridge == INTEGRATION_BRIDGE => self.add_integration_bridge(&mut tx, ports),
                None => return Err(SwitchError::NoBridge(bridge.to_owned())),
            }
        }
        if let Some((bridge, mac)) = pinned
            && let Some(row) = self.bridges.get(bridge)
            && row.other_config.get("hwaddr").is_none_or(|now| *now != mac.to_string())
        {
            let hwaddr = Datum::map([("hwaddr", mac.to_string())]);
            let keys = Mutation::delete_keys("other_config", ["hwaddr"]);
            tx.mutate("Bridge", row.uuid, vec![keys, Mutation::insert("other_config", hwaddr)]);
        }
        if tx.is_empty() {
            return Ok(());
        }
        tx.comment("ovn-k8s-overlay");
        self.apply(tx).await
    }

    /// Waits until ovs-vswitchd has applied what the database has. One that has just started gives
    /// other numbers to ports than the one before.
    pub(super) async fn settle(&self) -> Result<(), SwitchError> {
        self.apply(Transaction::new()).await
    }

    async fn apply(&self, mut tx: Transaction) -> Result<(), SwitchError> {
        tx.mutate(DATABASE, Where::all(), vec![Mutation::new("next_cfg", Mutator::Add, 1_i64)]);
        let next = tx.select(DATABASE, Where::all(), &["next_cfg"]);
        let applied = async {
            let outcome = self.connection.transact(tx).await?;
            let next = outcome.rows(next).first().and_then(|row| row.integer("next_cfg"));
            self.applied(next.ok_or(SwitchError::NoRoot)?).await
        };
        timeout(PATIENCE, applied).await.unwrap_or(Err(SwitchError::Slow))
    }

    /// As ovn-controller would make it: it forwards nothing without its flows.
    fn add_integration_bridge(&self, tx: &mut Transaction, mut ports: Vec<NamedUuid>) {
        let own = Row::new().with("name", INTEGRATION_BRIDGE).with("type", "internal");
        let own = tx.insert("Interface", own);
        let own = Row::new().with("name", INTEGRATION_BRIDGE).with("interfaces", &own);
        ports.push(tx.insert("Port", own));
        let bridge = Row::new()
            .with("name", INTEGRATION_BRIDGE)
            .with("ports", ports)
            .with("fail_mode", "secure")
            .with("datapath_type", self.datapath().to_owned());
        let bridge = tx.insert("Bridge", bridge);
        tx.mutate(DATABASE, Where::all(), vec![Mutation::insert("bridges", &bridge)]);
    }

    /// Waits until ovs-vswitchd has applied everything up to this number
    /// (ovs-vswitchd.conf.db(5)).
    async fn applied(&self, next: i64) -> Result<(), SwitchError> {
        let monitor = Monitor::new().table::<Root>(Where::all());
        let mut monitored = self.connection.monitor(monitor).await?;
        while !monitored.rows::<Root>().any(|(_, root)| root.cur_cfg >= next) {
            monitored.changed().await?;
        }
        Ok(())
    }
}

fn text(row: &SelectedRow, column: &str) -> String {
    row.string(column).unwrap_or_default().to_owned()
}

fn insert(tx: &mut Transaction, port: &Port) -> NamedUuid {
    let Port { bridge: _, name, kind, iface_id, mac, mtu, peer } = port;
    let ids = iface_id.iter().map(|id| (IFACE_ID, id.as_str()));
    let options = peer.iter().map(|peer| ("peer", peer.as_str()));
    let mut row = Row::new()
        .with("name", name.as_str())
        .with("type", *kind)
        .with("options", Datum::map(options))
        .with("external_ids", Datum::map(ids));
    if let Some(mac) = mac {
        row.set("mac", mac.to_string());
    }
    if let Some(mtu) = mtu {
        row.set("mtu_request", i64::from(mtu.bytes()));
    }
    let interface = tx.insert("Interface", row);
    tx.insert("Port", Row::new().with("name", name.as_str()).with("interfaces", &interface))
}

/// Updates what differs. Columns of others stay.
fn correct(tx: &mut Transaction, now: &Interface, port: &Port) {
    let Port { bridge: _, name: _, kind, iface_id, mac, mtu, peer } = port;
    let mut row = Row::new();
    if now.kind != *kind && !(kind.is_empty() && now.kind == "system") {
        row.set("type", *kind);
    }
    if let Some(mac) = mac
        && now.mac.as_deref() != Some(&mac.to_string())
        && now.mac_in_use.as_deref() != Some(&mac.to_string())
    {
        row.set("mac", mac.to_string());
    }
    if let Some(mtu) = mtu
        && now.mtu != Some(i64::from(mtu.bytes()))
    {
        row.set("mtu_request", i64::from(mtu.bytes()));
    }
    if !row.is_empty() {
        tx.update("Interface", now.uuid, row);
    }
    let mut set = |column: &'static str, map: &BTreeMap<String, String>, key, value: &str| {
        if map.get(key).is_none_or(|now| now != value) {
            let pair = Mutation::insert(column, Datum::map([(key, value)]));
            tx.mutate("Interface", now.uuid, vec![Mutation::delete_keys(column, [key]), pair]);
        }
    };
    if let Some(id) = iface_id {
        set("external_ids", &now.external_ids, IFACE_ID, id);
    }
    if let Some(peer) = peer {
        set("options", &now.options, "peer", peer);
    }
}
