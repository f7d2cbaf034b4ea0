//! What the northbound database does with a connection: the ACLs of both ends, and the one that decides in
//! each stage. Reads only; knows nothing of policies.

use std::collections::{BTreeMap, BTreeSet};

use acl::{Carried, End, Expression, Packet, Port, Sets};
use contract::ovn::{CLUSTER_PORT_GROUP, ObjectId};
use ovsdb::{Condition, Connection, SelectedRow, Selection, TransactError, Transaction, Uuid};
use verdict::Direction;

/// The two ports in the database.
#[derive(Debug)]
pub(super) struct Database {
    /// None: the database has no port of this name.
    pub(super) ports: BTreeMap<String, PortRows>,
    sets: Sets,
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
    /// Reads what concerns the logical ports of these names.
    ///
    /// # Errors
    ///
    /// The connection is lost, or the database refuses to be read.
    pub(super) async fn read(connection: &Connection, names: [&str; 2]) -> Result<Self, TransactError> {
        let mut query = Transaction::new();
        let ports =
            names.map(|name| query.select("Logical_Switch_Port", Condition::equal("name", name), &["name"]));
        // It has a port on every switch: what names no group in its match counts there.
        let cluster_group = ObjectId::cluster_port_group(CLUSTER_PORT_GROUP).hashed();
        let everywhere = query.select("Port_Group", Condition::equal("name", cluster_group), &["acls"]);
        let outcome = connection.transact(query).await?;
        let everywhere: Vec<Uuid> = acls(outcome.rows(everywhere));
        let mut found = BTreeMap::new();
        for row in ports.iter().flat_map(|port| outcome.rows(*port)) {
            let Some(name) = row.string("name") else { continue };
            let (port, mut wanted) = places(connection, name, row.uuid()).await?;
            wanted.extend(&everywhere);
            found.insert(name.to_owned(), PortRows { port, acls: read_acls(connection, &wanted).await? });
        }
        let all = found.values().flat_map(|rows| &rows.acls);
        let expressions = all.filter_map(|acl| acl.acl.matching.as_ref());
        let names: BTreeSet<&str> = expressions.flat_map(Expression::sets).collect();
        let sets = read_sets(connection, &names).await?;
        Ok(Self { ports: found, sets })
    }

    /// What the ACLs of this end's port do with the packet. None: there is no such port.
    pub(super) fn carries(
        &self,
        name: &str,
        direction: Direction,
        packet: &Packet<'_>,
    ) -> Option<Carried<Acl>> {
        let PortRows { port, acls } = self.ports.get(name)?;
        let end = match direction {
            Direction::Egress => End::Client(port),
            Direction::Ingress => End::Server(port),
        };
        Some(Carried::of(acls.iter(), end, packet, &self.sets))
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

async fn read_acls(connection: &Connection, wanted: &BTreeSet<Uuid>) -> Result<Vec<Acl>, TransactError> {
    let has_tiers = connection.schema().table("ACL").is_some_and(|table| table.columns.contains_key("tier"));
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
            id: row.map("external_ids").remove(contract::ovn::ID),
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
