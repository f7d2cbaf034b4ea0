//! What the northbound database does with a connection: the ACLs of the ports that it passes, and
//! the one that decides in each stage. Reads only; knows nothing of policies.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use acl::{Carried, End, Expression, Packet, Port, Sets};
use contract::ovn::{self, CLUSTER_PORT_GROUP, ObjectId};
use ovsdb::{Condition, Connection, SelectedRow, Selection, TransactError, Transaction, Uuid};

use super::ends::PodFacts;

/// What the database has of a connection.
#[derive(Debug)]
pub(super) struct Database {
    /// By their names, those that it has.
    ports: BTreeMap<String, PortRows>,
    sets: Sets,
    /// Nodes of other zones, whose databases have the ports of their pods.
    elsewhere: BTreeSet<String>,
    /// Names of the DNS with the addresses that the control plane has written.
    names: Vec<(String, Vec<IpAddr>)>,
}

/// What the database does at an end of a connection.
#[derive(Debug)]
pub(super) enum Does {
    Carries(Carried<Acl>),
    /// It has no port of the pod.
    NoPort,
    /// The pod is on this node of another zone, whose database has its port.
    OtherZone(String),
}

impl Does {
    /// Whether it does what the policies say, as far as it is known here.
    pub(super) fn is(&self, allowed: bool) -> bool {
        match self {
            Self::Carries(carried) => carried.allows == Some(allowed),
            Self::NoPort => false,
            Self::OtherZone(_) => true,
        }
    }
}

/// The logical ports whose ACLs are asked, by their names.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked<'a> {
    Client(&'a str),
    Server(&'a str),
    /// A client's port, and the one on its switch that leads to the router.
    Leaving {
        client: &'a str,
        router: &'a str,
    },
}

/// A port, and the ACLs that are asked about its packets.
#[derive(Debug)]
pub(super) struct PortRows {
    port: Port,
    acls: Vec<Acl>,
}

/// A row of the table `ACL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acl {
    pub(super) uuid: Uuid,
    /// `external_ids:k8s.ovn.org/id`
    pub(super) id: Option<String>,
    pub(super) acl: acl::Acl,
    /// The text of its match.
    pub(super) matching: String,
}

impl Database {
    /// Reads what concerns the logical ports and the names of the DNS.
    ///
    /// # Errors
    ///
    /// The connection is lost, or the database refuses to be read.
    pub(super) async fn read(
        connection: &Connection,
        ports: &BTreeSet<String>,
        names: &BTreeSet<&str>,
    ) -> Result<Self, TransactError> {
        let mut query = Transaction::new();
        let found: Vec<Selection> = ports
            .iter()
            .map(|name| {
                query.select(
                    "Logical_Switch_Port",
                    Condition::equal("name", name.as_str()),
                    &["name"],
                )
            })
            .collect();
        // It has a port on every switch: what names no group in its match counts there.
        let cluster_group = ObjectId::cluster_port_group(CLUSTER_PORT_GROUP).hashed();
        let everywhere =
            query.select("Port_Group", Condition::equal("name", cluster_group), &["acls"]);
        let remote = Condition::equal("type", ovn::REMOTE_PORT);
        let remote = query.select("Logical_Switch_Port", remote, &["name"]);
        let outcome = connection.transact(query).await?;
        let everywhere: Vec<Uuid> = acls(outcome.rows(everywhere));
        let remote = outcome.rows(remote).iter().filter_map(|row| row.string("name"));
        let elsewhere = remote.filter_map(ovn::node_of_transit_port).map(str::to_owned).collect();
        let mut ports = BTreeMap::new();
        for row in found.iter().flat_map(|port| outcome.rows(*port)) {
            let Some(name) = row.string("name") else { continue };
            let (port, mut wanted) = places(connection, name, row.uuid()).await?;
            wanted.extend(&everywhere);
            ports.insert(
                name.to_owned(),
                PortRows { port, acls: read_acls(connection, &wanted).await? },
            );
        }
        let all = ports.values().flat_map(|rows| &rows.acls);
        let expressions = all.filter_map(|acl| acl.acl.matching.as_ref());
        let of_acls: BTreeSet<&str> = expressions.flat_map(Expression::sets).collect();
        let sets = read_sets(connection, &of_acls).await?;
        let names = read_names(connection, names).await?;
        Ok(Self { ports, sets, elsewhere, names })
    }

    /// What the ACLs of the party's port do with the packet.
    pub(super) fn does(&self, pod: &PodFacts, asked: Asked<'_>, packet: &Packet<'_>) -> Does {
        match (self.carries(asked, packet), &pod.node) {
            (Some(carried), _) => Does::Carries(carried),
            (None, Some(node)) if self.elsewhere.contains(node) => Does::OtherZone(node.clone()),
            (None, _) => Does::NoPort,
        }
    }

    /// What the ACLs do with the packet. None: there is no such port.
    fn carries(&self, asked: Asked<'_>, packet: &Packet<'_>) -> Option<Carried<Acl>> {
        let rows = |name: &str| self.ports.get(name);
        let (acls, end): (Vec<&Acl>, End<'_>) = match asked {
            Asked::Client(name) => {
                let PortRows { port, acls } = rows(name)?;
                (acls.iter().collect(), End::Client(port))
            }
            Asked::Server(name) => {
                let PortRows { port, acls } = rows(name)?;
                (acls.iter().collect(), End::Server(port))
            }
            Asked::Leaving { client, router } => {
                let (client, router) = rows(client).zip(rows(router))?;
                // Those of the switch, and of groups that both are in, are known of both.
                let all = client.acls.iter().chain(&router.acls);
                let all: BTreeMap<Uuid, &Acl> = all.map(|acl| (acl.uuid, acl)).collect();
                let end = End::Leaving { client: &client.port, router: &router.port };
                (all.into_values().collect(), end)
            }
        };
        Some(Carried::of(acls.into_iter(), end, packet, &self.sets))
    }

    /// The names of the DNS as the model has them.
    pub(super) fn names(&self) -> Vec<verdict::Name<'_>> {
        let names = self.names.iter();
        names
            .map(|(name, addresses)| verdict::Name { name, addresses: addresses.clone() })
            .collect()
    }
}

impl AsRef<acl::Acl> for Acl {
    fn as_ref(&self) -> &acl::Acl {
        &self.acl
    }
}

fn acls(rows: &[SelectedRow]) -> Vec<Uuid> {
    rows.iter().flat_map(|row| row.uuids("acls")).collect()
}

/// The port with its groups, and the ACLs of these groups and of its switch.
async fn places(
    connection: &Connection,
    name: &str,
    port: Uuid,
) -> Result<(Port, BTreeSet<Uuid>), TransactError> {
    let mut query = Transaction::new();
    let groups = query.select("Port_Group", Condition::includes("ports", port), &["name", "acls"]);
    let switches = query.select("Logical_Switch", Condition::includes("ports", port), &["acls"]);
    let outcome = connection.transact(query).await?;
    let names = outcome.rows(groups).iter().filter_map(|row| row.string("name"));
    let port = Port { name: name.to_owned(), groups: names.map(str::to_owned).collect() };
    let wanted = acls(outcome.rows(groups)).into_iter().chain(acls(outcome.rows(switches)));
    Ok((port, wanted.collect()))
}

async fn read_acls(
    connection: &Connection,
    wanted: &BTreeSet<Uuid>,
) -> Result<Vec<Acl>, TransactError> {
    let has_tiers =
        connection.schema().table("ACL").is_some_and(|table| table.columns.contains_key("tier"));
    let mut columns = vec!["external_ids", "direction", "options", "priority", "action", "match"];
    columns.extend(has_tiers.then_some("tier"));
    let mut query = Transaction::new();
    let selections: Vec<Selection> =
        wanted.iter().map(|uuid| query.select("ACL", Condition::uuid(*uuid), &columns)).collect();
    let outcome = connection.transact(query).await?;
    let read = |row: &SelectedRow| {
        let text = |column: &str| row.string(column).unwrap_or_default().to_owned();
        let matching = text("match");
        Acl {
            uuid: row.uuid(),
            id: row.map("external_ids").remove(ovn::ID),
            acl: acl::Acl {
                direction: text("direction"),
                after_load_balancers: row
                    .map("options")
                    .get("apply-after-lb")
                    .is_some_and(|text| text == "true"),
                tier: row.integer("tier").unwrap_or_default(),
                priority: row.integer("priority").unwrap_or_default(),
                action: text("action"),
                matching: Expression::parse(&matching),
            },
            matching,
        }
    };
    Ok(selections.into_iter().flat_map(|selection| outcome.rows(selection)).map(read).collect())
}

async fn read_sets(connection: &Connection, names: &BTreeSet<&str>) -> Result<Sets, TransactError> {
    let mut query = Transaction::new();
    let columns = ["name", "addresses"];
    let selections: Vec<Selection> = names
        .iter()
        .map(|name| query.select("Address_Set", Condition::equal("name", *name), &columns))
        .collect();
    let outcome = connection.transact(query).await?;
    let rows = selections.into_iter().flat_map(|selection| outcome.rows(selection));
    let read = |row: &SelectedRow| {
        let addresses = row.strings("addresses").into_iter().map(str::to_owned).collect();
        Some((row.string("name")?.to_owned(), addresses))
    };
    Ok(rows.filter_map(read).collect())
}

/// The addresses of the sets of these names of the DNS.
async fn read_names(
    connection: &Connection,
    names: &BTreeSet<&str>,
) -> Result<Vec<(String, Vec<IpAddr>)>, TransactError> {
    let set = |name: &str, family| ObjectId::address_set(ovn::NAME_SET, name, family).hashed();
    let of: BTreeMap<String, &str> = names
        .iter()
        .flat_map(|name| ["v4", "v6"].map(|family| (set(name, family), *name)))
        .collect();
    let sets = read_sets(connection, &of.keys().map(String::as_str).collect()).await?;
    let read = |(set, texts): (String, Vec<String>)| {
        let addresses = texts.iter().filter_map(|text| text.parse().ok()).collect();
        Some(((*of.get(&set)?).to_owned(), addresses))
    };
    Ok(sets.into_iter().filter_map(read).collect())
}
