//! The replica of the northbound database: the monitored rows, indexed by name, holder and owner.
//!
//! Knows the rows that exist and their owners; nothing of the desired rows.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, PodKey, PolicyKey, ServiceKey},
    ovn,
};
use ipnet::IpNet;
use ovsdb::{Client, Connection, Endpoints, Field, Options, Replica, Updates, Uuid};

use crate::{
    config::{ClusterConfig, Zone},
    engine::northbound::{index::Index, owner::Owners, touched::Touched},
    key::{Key, NodeName, SetId},
    kinds::{cluster::tiers, egress_firewall::rows as egress_firewall, pod::found::FoundPort},
    rows::{
        RowName, Table,
        acl::Tiers,
        switch_port::REQUESTED_CHASSIS,
        table::{
            self, Acl, AddressSet, LoadBalancer, LogicalRouter, LogicalRouterPort,
            LogicalSwitchPort, NbGlobal, Set, StaticRoute,
        },
    },
    select::node_addresses::FirewallRuleId,
};

mod by_address;
pub(crate) mod foreign;
pub(crate) mod index;
pub(crate) mod owner;
pub(crate) mod touched;

/// The name of the database in its schema.
pub const DATABASE: &str = "OVN_Northbound";
/// The mark of a new database, of `external_ids` in `NB_Global`.
pub(crate) const FILLING: &str = "filling";

/// A key in the `external_ids` of the cluster's router: the UID of the namespace `kube-system` of
/// the cluster that the database was written for.
pub(crate) const CLUSTER_ID: &str = "k8s-cluster-uid";

/// Starts a client that connects, and reconnects for ever, and monitors what
/// [`Controller`](crate::Controller) needs. Returns at once.
pub fn connect(endpoints: Endpoints, options: Options) -> (Client, Updates) {
    Client::start(endpoints, DATABASE, table::monitor(), options)
}

/// The replica and its indexes.
pub(crate) struct Northbound {
    updates: Updates,
    owners: Owners,
    pub(crate) index: Index,
}

/// An event of the replica.
#[derive(Debug)]
pub(crate) enum Event {
    /// There is a connection. The next [`Changed`](Self::Changed) follows at once, with all that
    /// differs from before.
    Connected,
    /// The content of the database is not known until there is a connection again.
    Disconnected(Arc<ovsdb::Closed>),
    Changed(Touched),
}

impl Northbound {
    /// `fixed`: the rows that exist once in a cluster.
    pub(crate) fn new(
        updates: Updates,
        fixed: impl IntoIterator<Item = RowName>,
        config: &ClusterConfig,
    ) -> Self {
        Self { updates, owners: Owners::new(fixed, config), index: Index::default() }
    }

    /// The same while this node is removed: all plain translations of its gateway are the
    /// gateway's.
    pub(crate) fn removing(self, node: NodeName) -> Self {
        Self { owners: self.owners.removing(node), ..self }
    }

    /// Waits for the next event. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Event {
        match self.updates.next().await {
            ovsdb::Event::Connected => {
                self.tell_of_old_schema();
                Event::Connected
            }
            ovsdb::Event::Disconnected(closed) => Event::Disconnected(Arc::new(closed)),
            ovsdb::Event::Changed(changes) => {
                Event::Changed(self.index.apply(self.updates.replica(), &self.owners, &changes))
            }
        }
    }

    /// Logs what the database is too old for. Rows are written without it.
    fn tell_of_old_schema(&self) {
        let lacking = self.connection().map(|connection| table::lacking(connection.schema()));
        if let Some(lacking) = lacking.filter(|lacking| !lacking.is_empty()) {
            let lacking = lacking.join(" ");
            tracing::info!(
                lacking,
                "the northbound database is of an older OVN: these are not written"
            );
        }
    }

    /// The connection that feeds the replica. Transactions use the same one: there the server sends
    /// the update with their effects before their reply.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.updates.connection()
    }

    /// The zone that the database belongs to: `name` in `NB_Global`, where nothing means `global`.
    pub(crate) fn zone(&self) -> Zone {
        let name = self
            .updates
            .rows::<NbGlobal>()
            .map(|(_, row)| row.name.as_str())
            .find(|name| !name.is_empty());
        name.map_or_else(Zone::default, |name| Zone(name.to_owned()))
    }

    /// Whether the database is new, and served to nobody else before it has all rows.
    pub(crate) fn is_filling(&self) -> bool {
        let mut rows = self.updates.rows::<NbGlobal>();
        rows.any(|(_, row)| row.external_ids.get(FILLING).is_some_and(|mark| mark == "true"))
    }

    /// Whether the database has the column. Its schema may be older than this program.
    pub(crate) fn has_column(&self, table: Table, column: &str) -> bool {
        self.connection()
            .is_some_and(|connection| connection.schema().has_column(table.name(), column))
    }

    /// The ports of pods.
    pub(crate) fn pod_ports(&self) -> impl Iterator<Item = (&PodKey, FoundPort)> {
        let pods = self
            .index
            .owners()
            .filter_map(|key| if let Key::Pod(pod) = key { Some((key, pod)) } else { None });
        pods.flat_map(|(key, pod)| self.index.owned(key).map(move |row| (pod, row))).filter_map(
            |(pod, row)| {
                let row: &LogicalSwitchPort = self.updates.row(row)?;
                // Each element is `MAC IP [IP]`.
                let words = || row.addresses.iter().flat_map(|text| text.split_whitespace());
                let port = FoundPort {
                    uid: row.options.get("iface-id-ver").map(Arc::from),
                    mac: words().find_map(|word| word.parse().ok()),
                    addresses: words().filter_map(|word| word.parse().ok()).collect(),
                };
                Some((pod, port))
            },
        )
    }

    /// Whether a chassis has variables of this controller, or of upstream's.
    pub(crate) fn has_variables(&self) -> bool {
        self.chassis().next().is_some()
    }

    /// Whether there is a load balancer of nodes, without variables, with one of these ports of
    /// this Service.
    pub(crate) fn has_node_ports(&self, service: &ServiceKey, node_ports: &[u16]) -> bool {
        let is_by_node = |row: &Uuid| {
            self.index
                .name(*row)
                .is_some_and(|name| name.contains("_node_") && !name.contains("_template_"))
        };
        let mut rows = self.index.owned(&Key::Service(service.clone())).filter(is_by_node);
        rows.any(|row| {
            let row: Option<&LoadBalancer> = self.updates.row(row);
            let mut vips = row.into_iter().flat_map(|row| row.vips.iter());
            vips.any(|(vip, _)| {
                vip.parse().is_ok_and(|address: SocketAddr| node_ports.contains(&address.port()))
            })
        })
    }

    /// The chassis that have variables.
    pub(crate) fn chassis(&self) -> impl Iterator<Item = &Arc<str>> {
        self.index
            .owners()
            .filter_map(|key| if let Key::Chassis(name) = key { Some(name) } else { None })
    }

    /// The row that is meant. Of several, an owned one comes before a foreign one.
    pub(crate) fn find(&self, id: &RowName) -> Option<Uuid> {
        let rows = self.index.named(id.table, &id.path()).iter().copied();
        rows.filter(|row| self.is_row(*row, id))
            .min_by_key(|row| (self.index.claim(*row).owner().is_none(), *row))
    }

    /// Whether a row of this name is the one that is meant. One without an id, as older versions
    /// wrote them, may be.
    pub(crate) fn is_row(&self, row: Uuid, id: &RowName) -> bool {
        id.id.as_ref().is_none_or(|id_of| self.id(id.table, row).is_none_or(|now| *now == **id_of))
    }

    /// The id of a row among its `external_ids`.
    pub(crate) fn id(&self, table: Table, row: Uuid) -> Option<&str> {
        self.column(table, row, "external_ids")?.pairs()?.get(ovn::ID)
    }

    /// The keys with an ACL whose text names the address set. Reads all ACLs.
    pub(crate) fn naming_set(&self, set: &RowName) -> BTreeSet<Key> {
        if set.table != Table::AddressSet {
            return BTreeSet::new();
        }
        let name = format!("${}", set.name);
        let acls = self.updates.rows::<Acl>().filter(|(_, acl)| acl.matching.contains(&name));
        acls.filter_map(|(row, _)| self.index.claim(row).owner().cloned()).collect()
    }

    pub(crate) fn load_balancers(&self) -> impl Iterator<Item = (Uuid, &LoadBalancer)> {
        self.updates.rows::<LoadBalancer>()
    }

    /// The router that connects all nodes.
    pub(crate) fn cluster_router(&self) -> Option<Uuid> {
        self.find(&Table::LogicalRouter.row(ovn::CLUSTER_ROUTER))
    }

    /// The cluster that the database was written for, from the `external_ids` of that router.
    pub(crate) fn cluster_id(&self, router: Uuid) -> Option<Arc<str>> {
        self.updates.row::<LogicalRouter>(router)?.external_ids.get(CLUSTER_ID).map(Arc::from)
    }

    /// The tiers of its ACLs. Every one is asked where this controller has written before, or
    /// writes all rows.
    pub(crate) fn tiers(&self) -> Tiers {
        // Of no use without what leaves the decision to the next one. Rows that the database does
        // not take would keep the pods of the policy waiting for its group.
        let passes = |connection: &Connection| {
            connection.schema().takes(Table::Acl.name(), "action", "pass")
        };
        if !self.has_column(Table::Acl, "tier") || !self.connection().is_some_and(passes) {
            return Tiers::Absent;
        }
        let is_ours = self.cluster_router().is_none_or(|router| self.cluster_id(router).is_some())
            || tiers::names().any(|row| self.find(&row).is_some());
        if is_ours { Tiers::Asked } else { Tiers::Present }
    }

    /// Nodes that have a switch.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        let is_switch = |row: &Uuid| self.index.table(*row) == Some(Table::LogicalSwitch);
        let has_switch = move |key: &&Key| self.index.owned(key).any(|row| is_switch(&row));
        self.index.owners().filter(has_switch).filter_map(Key::node)
    }

    /// The nodes with the chassis that their ports are pinned to: on the cluster router, or, of
    /// another zone, on the transit switch.
    pub(crate) fn chassis_of_nodes(&self) -> impl Iterator<Item = (&NodeName, &str)> {
        let nodes = self.index.owners().filter_map(|key| match key {
            Key::Node(node) | Key::Transit(node) => Some((key, node)),
            _ => None,
        });
        let rows = nodes.flat_map(|(key, node)| self.index.owned(key).map(move |row| (node, row)));
        rows.filter_map(|(node, row)| {
            let of_port = || {
                let port = self.updates.row::<LogicalSwitchPort>(row)?;
                port.options.get(REQUESTED_CHASSIS)
            };
            let of_router = self.updates.row::<table::GatewayChassis>(row);
            of_router.map(|row| &*row.chassis_name).or_else(of_port).map(|chassis| (node, chassis))
        })
    }

    /// The networks that nodes have on the cluster router: of its ports, and of its routes to other
    /// zones. Their subnets are among them.
    pub(crate) fn networks_of_nodes(&self) -> impl Iterator<Item = (&NodeName, IpNet)> {
        let nodes = self.index.owners().filter_map(|key| match key {
            Key::Node(node) | Key::Transit(node) => Some((key, node)),
            _ => None,
        });
        let rows = nodes.flat_map(|(key, node)| self.index.owned(key).map(move |row| (node, row)));
        rows.flat_map(|(node, row)| {
            let port = self.updates.row::<LogicalRouterPort>(row);
            let of_port = port.into_iter().flat_map(|port| port.networks.iter());
            let route = self.updates.row::<StaticRoute>(row);
            let texts = of_port.chain(route.map(|route| &*route.ip_prefix));
            texts.filter_map(move |text| Some((node, text.parse::<IpNet>().ok()?.trunc())))
        })
    }

    /// Nodes that have a gateway router.
    pub(crate) fn gateway_routers(&self) -> BTreeSet<NodeName> {
        let names = self.index.names(Table::LogicalRouter);
        names
            .filter_map(|name| name.strip_prefix(ovn::GATEWAY_ROUTER_PREFIX))
            .map(Into::into)
            .collect()
    }

    /// Services that have load balancers.
    pub(crate) fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.index
            .owners()
            .filter_map(|key| if let Key::Service(service) = key { Some(service) } else { None })
    }

    /// Services with backends. A variable of a template says nothing: it may be empty.
    pub(crate) fn services_with_backends(&self) -> impl Iterator<Item = &ServiceKey> {
        let has_backends = |row: Uuid| {
            let row: Option<&LoadBalancer> = self.updates.row(row);
            let mut vips = row.into_iter().flat_map(|row| row.vips.iter());
            vips.any(|(_, backends)| !backends.is_empty() && !backends.starts_with('^'))
        };
        self.services().filter(move |service| {
            self.index.owned(&Key::Service((*service).clone())).any(has_backends)
        })
    }

    /// Policies of the cluster that have rows.
    pub(crate) fn cluster_policies(&self) -> impl Iterator<Item = &ClusterPolicyKey> {
        let owners = self.index.owners();
        owners.filter_map(
            |key| if let Key::ClusterPolicy(policy) = key { Some(&**policy) } else { None },
        )
    }

    /// Objects that have rows, of the kinds of which a namespace has one.
    pub(crate) fn custom_objects(&self) -> impl Iterator<Item = (CustomKind, &Arc<str>)> {
        let owners = self.index.owners();
        owners.filter_map(|key| {
            if let Key::Custom(of) = key { Some((of.kind, &of.namespace)) } else { None }
        })
    }

    /// Policies that have rows.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &PolicyKey> {
        self.index
            .owners()
            .filter_map(|key| if let Key::Policy(policy) = key { Some(policy) } else { None })
    }

    /// The rules of EgressFirewalls that list nodes' addresses, as upstream's do.
    pub(crate) fn lists_of_nodes(&self) -> impl Iterator<Item = (FirewallRuleId, Vec<IpAddr>)> {
        let firewalls = self.index.owners().filter_map(|key| {
            let Key::Custom(of) = key else { return None };
            (of.kind == CustomKind::EgressFirewall).then_some((key, &of.namespace))
        });
        let rows = firewalls.flat_map(|(key, of)| self.index.owned(key).map(move |row| (of, row)));
        rows.filter_map(|(namespace, row)| {
            let row = self.updates.row::<Acl>(row)?;
            let index = row.external_ids.get(ovn::RULE_INDEX)?.parse().ok()?;
            let addresses = egress_firewall::addresses_of_nodes(&row.matching)?;
            Some(((Arc::clone(namespace), index), addresses))
        })
    }

    /// The sets of addresses.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (SetId, Vec<IpAddr>)> {
        self.index.owners().filter_map(|key| {
            let Key::Set(set) = key else { return None };
            let rows = self.index.owned(key).filter_map(|row| self.updates.row::<AddressSet>(row));
            let addresses =
                rows.flat_map(|row| &row.addresses).filter_map(|text| text.parse().ok());
            Some((set.clone(), addresses.collect()))
        })
    }

    /// A row as text for messages, such as `Logical_Switch_Port shop_cart-0`.
    pub(crate) fn describe(&self, row: Uuid) -> String {
        let table = self.index.table(row).map_or("row", Table::name);
        match self.index.name(row) {
            // NUL separates the holder's name (`RowName::path`).
            Some(name) if !name.is_empty() => format!("{table} {}", name.replace('\0', ":")),
            _ => format!("{table} {row}"),
        }
    }

    /// The value of a column; none if it is not monitored.
    pub(crate) fn column(&self, table: Table, row: Uuid, column: &str) -> Option<&dyn Field> {
        self.updates.replica().find(table.name(), row)?.column(column)
    }

    /// The rows that a set refers to, sorted.
    pub(crate) fn elements(&self, row: Uuid, set: &Set) -> &[Uuid] {
        elements(self.updates.replica(), row, set)
    }
}

fn elements<'a>(replica: &'a Replica, row: Uuid, set: &Set) -> &'a [Uuid] {
    replica
        .find(set.of.name(), row)
        .and_then(|row| row.column(set.column))
        .map_or(&[], Field::references)
}

impl fmt::Debug for Northbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Northbound").field(self.updates.replica()).finish()
    }
}
