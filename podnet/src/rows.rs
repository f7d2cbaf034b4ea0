//! A port's rows in Open vSwitch, and the transactions that create and remove them.
//!
//! Pure: builds transactions and reads rows, sends nothing. Tables and columns follow
//! ovs-vswitchd.conf.db(5). Port and Interface rows live only as long as a bridge refers to them,
//! so a port is removed by taking it out of its bridge. QoS rows live until they are deleted.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use contract::{
    bandwidth::Bandwidth,
    external_ids,
    names::{IfName, IfaceId, Network, SandboxId},
    paths::INTEGRATION_BRIDGE,
};
use ipnet::IpNet;
use ovsdb::{
    Condition, Datum, Mutation, Mutator, NamedUuid, Row, SelectedRow, Selection, Transaction,
    Until, Uuid, Where,
};

use crate::plan::{Attachment, Identity};

/// An Interface row, with the `external_ids` that name its sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceRow {
    pub uuid: Uuid,
    pub name: String,
    pub external_ids: BTreeMap<String, String>,
}

/// A Port row of such an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRow {
    pub uuid: Uuid,
    pub qos: Option<Uuid>,
}

/// The columns of a pod's port besides its name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortColumns {
    /// `external_ids` of the Interface row.
    pub external_ids: BTreeMap<String, String>,
    /// The kilobits per second that the pod may send, and the kilobits that it may send at once
    /// beyond that; 0 for no limit.
    pub policing: (i64, i64),
    /// The limit of what the pod receives.
    pub qos: Option<QosRow>,
}

/// Columns of a QoS row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosRow {
    /// `type` of the row.
    pub kind: String,
    pub other_config: BTreeMap<String, String>,
    pub external_ids: BTreeMap<String, String>,
}

/// How much of its limit's time a pod may save up: the burst of the policer is what the limit
/// allows in a quarter of a second. A policer has no queue: it drops what exceeds the burst, and
/// TCP, whose last segments are lost, waits for its retransmission timer, 200 ms at least
/// (TCP_RTO_MIN). What a smaller burst cannot save up meanwhile is lost for good: with a tenth of a
/// second TCP gets 56 to 71 % of its limit, with two tenths 97 % and more (`make test-kernel`, 8
/// and 20 Mbit/s, Linux 6.1).
const BURSTS_PER_SECOND: i64 = 4;

/// The least burst, in kilobits, however low the limit: two packets of 64 KiB, as the pod's kernel
/// hands them over for segmentation. A policer drops each packet that is larger than its burst
/// (tc-police(8)), and TCP would stand still.
const LEAST_BURST: i64 = 2 * 64 * 1024 * 8 / 1000 + 1;

impl PortColumns {
    /// The columns for an attachment. Rate limits are this interface's alone. What a pod receives
    /// leaves Open vSwitch through a queue; what it sends is policed on entry, in kilobits; see
    /// `BURSTS_PER_SECOND` and `LEAST_BURST`. In the userspace datapath, policing has no effect.
    pub fn of(attachment: &Attachment) -> Self {
        let Bandwidth { ingress, egress } = attachment.bandwidth;
        let Identity { sandbox, if_name, network: _ } = &attachment.identity;
        let qos = ingress.map(|rate| QosRow {
            kind: "linux-htb".to_owned(),
            other_config: ids([("max-rate", rate.to_string().as_str())]),
            external_ids: ids([
                (external_ids::SANDBOX, sandbox.as_str()),
                (external_ids::POD_IF_NAME, if_name.as_str()),
            ]),
        });
        let policing = egress.map_or((0, 0), |rate| {
            let kilobits = i64::try_from(rate.div_ceil(1000)).unwrap_or(i64::MAX);
            (kilobits, (kilobits / BURSTS_PER_SECOND).max(LEAST_BURST))
        });
        Self { external_ids: attachment.external_ids(), policing, qos }
    }

    /// The limits that the port is created with, for CHECK: the pod's annotations may change later,
    /// without an effect on the port.
    fn limits(&self) -> Option<String> {
        let ingress = self
            .qos
            .as_ref()
            .and_then(|qos| qos.other_config.get("max-rate"))
            .map_or("", String::as_str);
        let egress = self.policing.0;
        (!ingress.is_empty() || egress > 0).then(|| format!("{ingress}/{egress}"))
    }

    /// Adds the rows of port `name` on the integration bridge, and returns the Interface row. `qos`
    /// is a QoS row that exists already.
    pub fn insert(&self, tx: &mut Transaction, name: &str, qos: Option<Uuid>) -> NamedUuid {
        let mut port = Row::new().with("name", name);
        if let Some(limits) = self.limits() {
            port.set("external_ids", ids([(external_ids::LIMITS, limits.as_str())]));
        }
        match (qos, &self.qos) {
            (Some(there), _) => port.set("qos", there),
            (None, Some(QosRow { kind, other_config, external_ids })) => {
                let row = Row::new()
                    .with("type", kind.as_str())
                    .with("other_config", other_config.clone());
                let qos = tx.insert("QoS", row.with("external_ids", external_ids.clone()));
                port.set("qos", &qos);
            }
            (None, None) => {}
        }
        let mut interface =
            Row::new().with("name", name).with("external_ids", self.external_ids.clone());
        if self.policing != (0, 0) {
            interface.set("ingress_policing_rate", self.policing.0);
            interface.set("ingress_policing_burst", self.policing.1);
        }
        let interface = tx.insert("Interface", interface);
        let port = tx.insert("Port", port.with("interfaces", &interface));
        // In the same transaction: at its end the database removes rows that nothing refers to.
        tx.mutate(
            "Bridge",
            Condition::equal("name", INTEGRATION_BRIDGE),
            vec![Mutation::insert("ports", &port)],
        );
        interface
    }
}

impl InterfaceRow {
    /// The columns to select.
    pub const COLUMNS: [&str; 2] = ["name", "external_ids"];

    /// Container id of the sandbox.
    pub fn sandbox(&self) -> Option<&str> {
        self.id(external_ids::SANDBOX)
    }

    /// Name of the logical port.
    pub fn iface_id(&self) -> Option<&str> {
        self.id(external_ids::IFACE_ID)
    }

    /// One of the row's `external_ids`.
    pub fn id(&self, key: &str) -> Option<&str> {
        self.external_ids.get(key).map(String::as_str)
    }

    /// The interface's addresses. The row may be another program's: values that are not addresses
    /// are skipped.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let list = self.id(external_ids::IP_ADDRESSES).or(self.id(external_ids::IP_ADDRESS));
        let list = list.into_iter().flat_map(|list| list.split(','));
        list.filter_map(|address| address.parse::<IpNet>().ok()).map(|net| net.addr())
    }

    /// Whether the row belongs to this interface of this sandbox.
    ///
    /// Rows of upstream before 2026 do not name the pod's interface. For them the network decides,
    /// of which a pod has one interface.
    pub fn belongs_to(&self, identity: &Identity) -> bool {
        let Identity { sandbox, if_name, network } = identity;
        self.sandbox() == Some(sandbox.as_str())
            && match self.id(external_ids::POD_IF_NAME) {
                Some(name) => name == if_name.as_str(),
                None => self.is_of(network),
            }
    }

    /// Whether the plugin of 2016 to 2018 has written the row, which named no sandbox.
    pub fn is_of_2017(&self) -> bool {
        self.sandbox().is_none()
            && self.iface_id().is_some()
            && self.id(external_ids::ATTACHED_MAC).is_some()
            && self.id(external_ids::IP_ADDRESS).is_some()
    }

    /// Whether the row belongs to this network.
    pub fn is_of(&self, network: &Network) -> bool {
        match network {
            Network::Default => self.id(external_ids::NAD).is_none(),
            Network::Attachment { nad, .. } => self.id(external_ids::NAD) == Some(nad),
        }
    }
}

impl From<&SelectedRow> for InterfaceRow {
    fn from(row: &SelectedRow) -> Self {
        Self {
            uuid: row.uuid(),
            name: row.string("name").unwrap_or_default().to_owned(),
            external_ids: row.map("external_ids"),
        }
    }
}

impl From<&SelectedRow> for PortRow {
    fn from(row: &SelectedRow) -> Self {
        Self { uuid: row.uuid(), qos: row.uuids("qos").first().copied() }
    }
}

/// The limits that a port was created with, from the `external_ids` of its Port row: bits per
/// second to the pod, kilobits per second from the pod.
pub fn limits_of(port: &BTreeMap<String, String>) -> Option<(Option<u64>, Option<i64>)> {
    let (ingress, egress) = port.get(external_ids::LIMITS)?.split_once('/')?;
    Some((ingress.parse().ok(), egress.parse().ok().filter(|rate| *rate > 0)))
}

/// Matches the rows whose `external_ids` have this pair.
pub fn has_id(key: &str, value: &str) -> Condition {
    Condition::includes("external_ids", ids([(key, value)]))
}

/// Matches the interfaces that a logical port is bound by.
pub fn has_iface_id(iface_id: &IfaceId) -> Condition {
    has_id(external_ids::IFACE_ID, iface_id.as_str())
}

/// The transaction that plugs an attachment, and its results.
#[derive(Debug)]
pub struct Plug {
    pub transaction: Transaction,
    /// The Interface row that it inserts.
    pub interface: NamedUuid,
    /// Interfaces that include all with one of its addresses: columns of [`InterfaceRow`], and
    /// `ofport`. `None` for an attachment without addresses.
    pub same_address: Option<Selection>,
}

/// The transaction that plugs an attachment.
///
/// It succeeds only if the interfaces with the same name or logical port are still exactly those of
/// `older`, whose ports it removes. Of two writers at the same time, one fails and sees what the
/// other has done.
pub fn plug(
    attachment: &Attachment,
    host: &IfName,
    older: &[(InterfaceRow, Vec<PortRow>)],
) -> Plug {
    let Identity { sandbox, if_name, .. } = &attachment.identity;
    let mut tx = Transaction::new();
    let names = |of: &dyn Fn(&InterfaceRow) -> bool| {
        older
            .iter()
            .filter(|(row, _)| of(row))
            .map(|(row, _)| Row::new().with("name", row.name.as_str()))
            .collect()
    };
    // The guards come first. A `wait` with timeout 0 fails at once if the rows differ, and with it
    // the whole transaction (RFC 7047 section 5.2.6).
    let same_port = names(&|row| row.iface_id() == Some(attachment.iface_id.as_str()));
    tx.wait(
        "Interface",
        has_iface_id(&attachment.iface_id),
        &["name"],
        Until::Equal,
        same_port,
        Duration::ZERO,
    );
    let same_name = names(&|row| row.name == host.as_str());
    tx.wait(
        "Interface",
        Condition::equal("name", host.as_str()),
        &["name"],
        Until::Equal,
        same_name,
        Duration::ZERO,
    );
    require_bridge(&mut tx);

    for port in older.iter().flat_map(|(_, ports)| ports) {
        remove_port(&mut tx, port);
    }
    let interface = PortColumns::of(attachment).insert(&mut tx, host.as_str(), None);
    let columns = [&InterfaceRow::COLUMNS[..], &["ofport"]].concat();
    let same_address = match attachment.addresses.as_slice() {
        [] => None,
        // Only the first address of a row has a key of its own. It may be of either family, and no
        // condition can match a part of the other key.
        [_, ..] => Some(tx.select("Interface", Where::all(), &columns)),
    };
    tx.comment(&format!(
        "ovn-k8s-cni-overlay: ADD {} of sandbox {sandbox} as {if_name}",
        attachment.iface_id
    ));
    Plug { transaction: tx, interface, same_address }
}

/// The row of another logical port on the attachment's network that has one of its addresses and
/// works, and that address.
pub fn holder_of_address(
    attachment: &Attachment,
    same_address: &[SelectedRow],
) -> Option<(IpNet, InterfaceRow)> {
    let ids = attachment.external_ids();
    let holds =
        |row: &&SelectedRow| holds_address(row.integer("ofport"), &row.map("external_ids"), &ids);
    let is_another = |row: &InterfaceRow| {
        row.iface_id().is_some_and(|iface_id| iface_id != attachment.iface_id.as_str())
    };
    same_address.iter().filter(holds).map(InterfaceRow::from).filter(is_another).find_map(|row| {
        let shared = attachment.addresses.iter().find(|address| {
            addresses(&row.external_ids).any(|other| other == address.to_string())
        })?;
        Some((*shared, row))
    })
}

/// The addresses in a row's `external_ids`. Older rows name only the first.
pub fn addresses(ids: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    let named = [external_ids::IP_ADDRESSES, external_ids::IP_ADDRESS]
        .into_iter()
        .find_map(|key| ids.get(key));
    named.into_iter().flat_map(|list| list.split(','))
}

/// Whether a row with this `ofport` and these `external_ids` keeps its address from a port with
/// those of `newer`: it is at work, and on the same network.
pub fn holds_address(
    ofport: Option<i64>,
    ids: &BTreeMap<String, String>,
    newer: &BTreeMap<String, String>,
) -> bool {
    is_at_work(ofport, ids) && ids.get(external_ids::NAD) == newer.get(external_ids::NAD)
}

/// Whether a row with this `ofport` and these `external_ids` belongs to a sandbox that works with
/// its addresses. A row for which ovs-vswitchd has no device is left over from a pod that is gone.
/// A row that OVN has let go of belongs to a pod that has given its address back, and whose sandbox
/// is about to go.
pub fn is_at_work(ofport: Option<i64>, ids: &BTreeMap<String, String>) -> bool {
    ofport.is_some_and(|ofport| ofport > 0)
        && ids.get(external_ids::OVN_INSTALLED).is_some_and(|value| value == "true")
        && ids.contains_key(external_ids::SANDBOX)
}

/// The server's transaction that adds ports where there are none: all of them, or none if a row has
/// one of their names or logical ports. Each port has its name, its columns, and its QoS row if
/// that exists. Returns the Interface rows, in the same order. `what` is done to the ports, for the
/// database's log.
pub fn insert_new<'a>(
    ports: impl Iterator<Item = (&'a str, &'a PortColumns, Option<Uuid>)>,
    what: &str,
) -> (Transaction, Vec<NamedUuid>) {
    let mut tx = Transaction::new();
    require_bridge(&mut tx);
    let mut interfaces = Vec::new();
    for (name, content, qos) in ports {
        if let Some(iface_id) = content.external_ids.get(external_ids::IFACE_ID) {
            tx.wait(
                "Interface",
                has_id(external_ids::IFACE_ID, iface_id),
                &["name"],
                Until::Equal,
                Vec::new(),
                Duration::ZERO,
            );
        }
        tx.wait(
            "Interface",
            Condition::equal("name", name),
            &["name"],
            Until::Equal,
            Vec::new(),
            Duration::ZERO,
        );
        interfaces.push(content.insert(&mut tx, name, qos));
    }
    tx.comment(&format!("ovnkube: {what} {} ports of pods", interfaces.len()));
    (tx, interfaces)
}

/// The transaction that asks ovs-vswitchd to report when it has processed the database, and the
/// number that it will report, in column `next_cfg`.
pub fn next_configuration() -> (Transaction, Selection) {
    let mut tx = Transaction::new();
    tx.mutate("Open_vSwitch", Where::all(), vec![Mutation::new("next_cfg", Mutator::Add, 1)]);
    let number = tx.select("Open_vSwitch", Where::all(), &["next_cfg"]);
    (tx, number)
}

/// The transaction that removes the rows of an interface of a sandbox.
pub fn unplug(identity: &Identity, ports: &[PortRow]) -> Transaction {
    let Identity { sandbox, if_name, .. } = identity;
    let mut tx = without([identity], ports);
    tx.comment(&format!("ovn-k8s-cni-overlay: DEL {if_name} of sandbox {sandbox}"));
    tx
}

/// The server's transaction that removes the rows of several interfaces.
pub fn unplug_all(identities: &[Identity], ports: &[PortRow]) -> Transaction {
    let mut tx = without(identities, ports);
    tx.comment(&format!("ovnkube: remove {} ports of pods", identities.len()));
    tx
}

fn without<'a>(
    identities: impl IntoIterator<Item = &'a Identity>,
    ports: &[PortRow],
) -> Transaction {
    let mut tx = Transaction::new();
    for port in ports {
        remove_port(&mut tx, port);
    }
    for Identity { sandbox, if_name, .. } in identities {
        // Also by their `external_ids`: a row may be left whose port is gone.
        tx.delete(
            "QoS",
            vec![
                has_id(external_ids::SANDBOX, sandbox.as_str()),
                has_id(external_ids::POD_IF_NAME, if_name.as_str()),
            ],
        );
    }
    tx
}

fn remove_port(tx: &mut Transaction, port: &PortRow) {
    tx.mutate(
        "Bridge",
        Condition::includes("ports", port.uuid),
        vec![Mutation::delete("ports", port.uuid)],
    );
    if let Some(qos) = port.qos {
        // The Port row goes only after all operations. Until then its reference keeps the QoS row.
        tx.update("Port", port.uuid, Row::new().with("qos", Datum::Set(Vec::new())));
        tx.delete("QoS", qos);
    }
}

/// Makes the transaction fail unless the integration bridge exists.
fn require_bridge(tx: &mut Transaction) {
    let present = vec![Row::new().with("name", INTEGRATION_BRIDGE)];
    tx.wait(
        "Bridge",
        Condition::equal("name", INTEGRATION_BRIDGE),
        &["name"],
        Until::Equal,
        present,
        Duration::ZERO,
    );
}

/// The sandbox id of a row, if it is valid.
pub fn sandbox_of(row: &InterfaceRow) -> Option<SandboxId> {
    row.sandbox()?.parse().ok()
}

fn ids<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
