//! The rows of each attachment as last seen: Open vSwitch's own rows, remembered for as long as
//! this process lives.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use contract::{
    external_ids::{IFACE_ID, IFACE_ID_VER, OVN_INSTALLED, POD_IF_NAME},
    names::PodKey,
    paths::INTEGRATION_BRIDGE,
};
use ovsdb::{Change, ChangeKind, Changes, Monitor, Updates, Uuid, Where};
use podnet::{
    bridge::Datapath,
    installed::PortState,
    plan::Identity,
    rows::{PortColumns, QosRow},
};

ovsdb::table! {
    pub(super) struct BridgeRow in "Bridge" {
        pub(super) name: String,
        pub(super) datapath_type: String,
        pub(super) ports: Vec<Uuid>,
    }

    pub(super) struct PortRow in "Port" {
        interfaces: Vec<Uuid>,
        qos: Option<Uuid>,
    }

    pub(super) struct InterfaceRow in "Interface" {
        pub(super) name: String,
        kind: String = "type",
        /// Assigned by ovs-vswitchd; -1 if it cannot open the device.
        pub(super) ofport: Option<i64>,
        /// Why ovs-vswitchd cannot open the device.
        pub(super) error: Option<String>,
        pub(super) external_ids: BTreeMap<String, String>,
        ingress_policing_rate: i64,
        ingress_policing_burst: i64,
    }

    pub(super) struct Qos in "QoS" {
        kind: String = "type",
        other_config: BTreeMap<String, String>,
        external_ids: BTreeMap<String, String>,
    }
}

/// Keys of upstream's interfaces that are functions of a NIC instead of veths: with a device of the
/// kernel in the pod, or without one.
const FUNCTIONS: [&str; 2] = ["vf-netdev-name", "vf-is-vfio"];
/// `ofport` of an interface whose device ovs-vswitchd cannot open (ovs-vswitchd.conf.db(5)).
const NO_DEVICE: i64 = -1;

/// A pod's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedPort {
    /// Name of the port, of its interface and of the host's link.
    pub(super) name: String,
    pub(super) identity: Identity,
    pub(super) pod: PodKey,
    pub(super) content: PortColumns,
    /// The row of [`PortColumns::qos`], which outlives its port: QoS is a root table.
    pub(super) qos: Option<Uuid>,
}

/// Every attachment whose rows were seen, by name.
#[derive(Debug, Default)]
pub(super) struct PortCache(HashMap<String, Arc<RecordedPort>>);

/// What a change of rows calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowNews {
    Nothing,
    /// A row vanished, ovs-vswitchd finds no device for it, the bridge was made, or a device came
    /// to a bridge in user space that the host's own stack may not ignore yet.
    Look,
}

/// The tables that tell of attachments.
pub(super) fn monitor() -> Monitor {
    Monitor::new()
        .table::<BridgeRow>(Where::all())
        .table::<PortRow>(Where::all())
        .table::<InterfaceRow>(Where::all())
        .table::<Qos>(Where::all())
}

/// Names of all interfaces in the database, of whatever type.
pub(super) fn names(updates: &Updates) -> impl Iterator<Item = &str> {
    updates.rows::<InterfaceRow>().map(|(_, interface)| interface.name.as_str())
}

/// Names of the interfaces for which ovs-vswitchd finds no device.
pub(super) fn deviceless(updates: &Updates) -> impl Iterator<Item = &str> {
    updates
        .rows::<InterfaceRow>()
        .filter(|(_, interface)| interface.is_deviceless())
        .map(|(_, interface)| interface.name.as_str())
}

/// The datapath of the integration bridge, if there is one.
pub(super) fn datapath(updates: &Updates) -> Option<Datapath> {
    integration_bridge(updates).map(|bridge| Datapath::of(&bridge.datapath_type))
}

/// Names of the integration bridge's ports that are devices of the kernel.
pub(super) fn devices(updates: &Updates) -> impl Iterator<Item = &str> {
    let ports = integration_bridge(updates).into_iter().flat_map(|bridge| &bridge.ports);
    ports
        .filter_map(|port| updates.row::<PortRow>(*port))
        .flat_map(|port| &port.interfaces)
        .filter_map(|interface| updates.row::<InterfaceRow>(*interface))
        .filter(|interface| interface.is_device())
        .map(|interface| interface.name.as_str())
}

/// The integration bridge, if there is one.
pub(super) fn integration_bridge(updates: &Updates) -> Option<&BridgeRow> {
    updates
        .rows::<BridgeRow>()
        .map(|(_, bridge)| bridge)
        .find(|bridge| bridge.name == INTEGRATION_BRIDGE)
}

/// Whether ovn-controller has connected the interface to its logical port.
pub(super) fn is_installed(updates: &Updates, interface: Uuid) -> bool {
    updates
        .row::<InterfaceRow>(interface)
        .is_some_and(|row| row.external_ids.get(OVN_INSTALLED).is_some_and(|value| value == "true"))
}

/// Whether this QoS row exists.
pub(super) fn has_qos(updates: &Updates, qos: Uuid) -> bool {
    updates.row::<Qos>(qos).is_some()
}

impl PortCache {
    /// Records the rows that exist now, and keeps the records of those that are gone.
    pub(super) fn follow(&mut self, updates: &Updates, changes: &Changes) -> RowNews {
        let mut news = RowNews::Nothing;
        for change in changes.of::<InterfaceRow>() {
            match (change.kind, updates.row::<InterfaceRow>(change.uuid)) {
                (ChangeKind::Delete, _) => {
                    let old = change.old::<InterfaceRow>();
                    news = news.max(if old.is_some_and(|row| self.0.contains_key(&row.name)) {
                        RowNews::Look
                    } else {
                        RowNews::Nothing
                    });
                }
                // Only `ofport` or `error` has changed: nothing to record, but the device may be
                // lost.
                (ChangeKind::Modify, Some(row)) if !touches_record(change) => {
                    let is_lost = row.is_deviceless() && self.0.contains_key(&row.name);
                    news = news.max(if is_lost { RowNews::Look } else { RowNews::Nothing });
                }
                (kind, Some(row)) => {
                    self.record(updates, change.uuid, row);
                    // This project's plugin and server see to it before they write the row.
                    let is_foreign = row.is_device() && !row.external_ids.contains_key(POD_IF_NAME);
                    if kind == ChangeKind::Insert
                        && is_foreign
                        && datapath(updates) == Some(Datapath::Userspace)
                    {
                        news = RowNews::Look;
                    }
                }
                (_, None) => {}
            }
        }
        // New rate limits show in the Port row, which refers to the QoS row.
        for change in changes.of::<PortRow>().filter(|change| touches_limits(change)) {
            let interfaces = updates
                .row::<PortRow>(change.uuid)
                .map(|port| port.interfaces.as_slice())
                .unwrap_or_default();
            for (uuid, row) in interfaces
                .iter()
                .filter_map(|uuid| Some((*uuid, updates.row::<InterfaceRow>(*uuid)?)))
            {
                self.record(updates, uuid, row);
            }
        }
        let made = |change: &Change| change.kind == ChangeKind::Insert;
        if changes.of::<BridgeRow>().any(made) { RowNews::Look } else { news }
    }

    fn record(&mut self, updates: &Updates, uuid: Uuid, row: &InterfaceRow) {
        let Some(mut attached) = RecordedPort::read(row) else {
            self.0.remove(&row.name);
            return;
        };
        // References go from Port to Interface only (ovs-vswitchd.conf.db(5)), so all ports are
        // searched.
        attached.qos = updates
            .rows::<PortRow>()
            .find(|(_, port)| port.interfaces == [uuid])
            .and_then(|(_, port)| port.qos);
        attached.content.qos =
            attached.qos.and_then(|qos| updates.row::<Qos>(qos)).map(Qos::content);
        if self.0.get(&row.name).is_some_and(|known| **known == attached) {
            return;
        }
        // A pod has one port in a network: the record of its older sandbox is obsolete.
        self.0.retain(|_, other| other.iface_id() != attached.iface_id());
        self.0.insert(row.name.clone(), attached.into());
    }

    /// Forgets attachments whose link is gone for good.
    pub(super) fn forget(&mut self, gone: impl Fn(&RecordedPort) -> bool) {
        self.0.retain(|_, attached| !gone(attached));
    }

    /// The pods' ports that exist: as recorded, or as their rows say where a newer port of the pod
    /// has the record.
    pub(super) fn present(&self, updates: &Updates) -> Vec<Arc<RecordedPort>> {
        let known = |row: &InterfaceRow| self.0.get(&row.name).cloned();
        updates
            .rows::<InterfaceRow>()
            .filter_map(|(_, row)| known(row).or_else(|| RecordedPort::read(row).map(Arc::new)))
            .collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<RecordedPort>> {
        self.0.values()
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// ovs-vswitchd updates these two columns more often than any program changes the rest, and neither
/// is recorded.
fn touches_record(change: &Change) -> bool {
    change.columns().iter().any(|column| !["ofport", "error"].contains(column))
}

fn touches_limits(change: &Change) -> bool {
    change.kind == ChangeKind::Modify && change.columns().contains(&"qos")
}

impl RecordedPort {
    /// What an Interface row says, if it is a pod's.
    fn read(row: &InterfaceRow) -> Option<Self> {
        let InterfaceRow {
            name, external_ids, ingress_policing_rate, ingress_policing_burst, ..
        } = row;
        if !row.is_device() || FUNCTIONS.iter().any(|key| external_ids.contains_key(*key)) {
            return None;
        }
        let id = |key: &str| external_ids.get(key).map(String::as_str);
        let identity = Identity::of(external_ids)?;
        let pod = pod_of(id(IFACE_ID)?)?;
        // What ovn-controller says of a port (`ovn-installed` and its time) does not hold for the
        // next one.
        let external_ids = external_ids
            .iter()
            .filter(|(key, _)| !key.starts_with(OVN_INSTALLED))
            .map(|(key, value)| (key.clone(), value.clone()));
        let content = PortColumns {
            external_ids: external_ids.collect(),
            policing: (*ingress_policing_rate, *ingress_policing_burst),
            qos: None,
        };
        Some(Self { name: name.clone(), identity, pod, content, qos: None })
    }

    pub(super) fn iface_id(&self) -> &str {
        self.id(IFACE_ID)
    }

    /// UID of the pod; empty if unknown.
    pub(super) fn uid(&self) -> &str {
        self.id(IFACE_ID_VER)
    }

    /// Whether this project's plugin made the port; otherwise upstream's did.
    pub(super) fn names_pods_end(&self) -> bool {
        self.content.external_ids.contains_key(POD_IF_NAME)
    }

    fn id(&self, key: &str) -> &str {
        self.content.external_ids.get(key).map_or("", String::as_str)
    }
}

impl InterfaceRow {
    /// Whether it is a device of the kernel, and not one that ovs-vswitchd makes, or a tunnel or
    /// patch (ovs-vswitchd.conf.db(5), `type`).
    fn is_device(&self) -> bool {
        ["", "system"].contains(&self.kind.as_str())
    }

    fn is_deviceless(&self) -> bool {
        self.ofport == Some(NO_DEVICE)
    }

    pub(super) fn state(&self) -> PortState<'_> {
        PortState {
            name: &self.name,
            ofport: self.ofport,
            error: self.error.as_deref(),
            external_ids: &self.external_ids,
        }
    }
}

impl Qos {
    fn content(&self) -> QosRow {
        let Self { kind, other_config, external_ids } = self.clone();
        QosRow { kind, other_config, external_ids }
    }
}

/// The pod of a logical port: `<namespace>_<name>`; in networks other than the cluster's, the NAD's
/// name and another `_` come before it.
fn pod_of(iface_id: &str) -> Option<PodKey> {
    // Split from the right: names of namespaces and pods contain no underscore.
    let mut parts = iface_id.rsplitn(3, '_');
    let (name, namespace) = (parts.next()?, parts.next()?);
    PodKey::new(namespace, name).ok()
}
