//! What the southbound databases of two zones have of a node.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contract::ovn;
use ovsdb::{
    Condition, Connection, Datum, Endpoints, Options, SelectedRow, Ssl, Transaction, Uuid, Where,
};
use tokio::time::{sleep, timeout};

use super::places::ZonePlace;
use crate::{chain, node::open_vswitch::Southbound};

/// For an answer of a database.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks while packets may be lost.
const SOON: Duration = Duration::from_millis(10);
/// How many missing rows are named.
const NAMED: usize = 5;

/// Whether a zone has other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Company {
    #[default]
    Alone,
    Others,
}

impl Company {
    /// That of a chassis among all of its zone, with name and `other_config`.
    fn of(all: &[SelectedRow], chassis: &str) -> Self {
        let is_remote = |row: &SelectedRow| ovn::is_remote(&row.map("other_config"));
        match all.iter().any(|row| !is_remote(row) && row.string("name") != Some(chassis)) {
            true => Self::Others,
            false => Self::Alone,
        }
    }
}

/// The company of a chassis in its zone.
pub(super) async fn company(database: &Southbound, chassis: &str) -> Result<Company, String> {
    let connection = connect(database).await?;
    let all = select(&connection, "Chassis", Where::all(), &["name", "other_config"]).await?;
    Ok(Company::of(&all, chassis))
}

/// The rows on which connections of a node's pods depend, by names that both zones have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneRows {
    /// Ports on the node's chassis, and the datapaths that they are of.
    pub(super) ports: BTreeMap<String, String>,
    /// Port groups with such a port: `group port`.
    groups: BTreeSet<String>,
    /// Front ends on the node's switch: `tcp 10.96.0.1:443`.
    services: BTreeSet<String>,
    /// The other nodes' chassis.
    chassis: BTreeSet<String>,
    /// Whether one of these is of this zone.
    pub(super) company: Company,
}

impl ZoneRows {
    /// Those of the zone whose ovn-controller has this chassis.
    pub(super) async fn of_chassis(
        database: &Southbound,
        chassis: &str,
        node: &str,
    ) -> Result<Self, String> {
        let connection = connect(database).await?;
        let all = select(&connection, "Chassis", Where::all(), &["_uuid", "name"]).await?;
        let own = all.iter().find(|row| row.string("name") == Some(chassis));
        let own = own.ok_or_else(|| format!("{} has no chassis {chassis}", database.remote))?;
        let datapaths = datapaths(&connection).await?;
        let on_chassis = Condition::equal("chassis", own.uuid());
        let mut ports = ports(&connection, on_chassis.into(), &datapaths).await?;
        // The link to the cluster router, which waits where other nodes would use it. OVN names the
        // port of a gateway's chassis after it, since 24.09 at both ends.
        for end in [ovn::router_to_switch(node), ovn::switch_to_router(node)] {
            ports.remove(&format!("cr-{end}"));
        }
        let names = all.iter().filter_map(|row| row.string("name"));
        let chassis = names.filter(|name| *name != chassis).map(str::to_owned).collect();
        let mut rows = Self { ports, chassis, ..Self::default() };
        rows.complete(&connection, &datapaths, node).await?;
        Ok(rows)
    }

    /// Those of another zone, of the same ports as far as it has them.
    pub(super) async fn like(
        before: &Self,
        database: &Southbound,
        chassis: &str,
        node: &str,
    ) -> Result<Self, String> {
        let connection = connect(database).await?;
        let datapaths = datapaths(&connection).await?;
        let names: BTreeSet<&String> = before.ports.values().collect();
        let mut rows = Self::default();
        for (datapath, _) in datapaths.iter().filter(|(_, name)| names.contains(name)) {
            let on_datapath = Condition::equal("datapath", *datapath);
            rows.ports.extend(ports(&connection, on_datapath.into(), &datapaths).await?);
        }
        rows.ports.retain(|port, _| before.ports.contains_key(port));
        let all = select(&connection, "Chassis", Where::all(), &["name", "other_config"]).await?;
        rows.chassis = all.iter().filter_map(|row| row.string("name")).map(str::to_owned).collect();
        rows.company = Company::of(&all, chassis);
        rows.complete(&connection, &datapaths, node).await?;
        Ok(rows)
    }

    /// Groups and Services of the ports.
    async fn complete(
        &mut self,
        connection: &Connection,
        datapaths: &BTreeMap<Uuid, String>,
        node: &str,
    ) -> Result<(), String> {
        let mut query = Transaction::new();
        let asked: Vec<_> = self
            .ports
            .keys()
            .map(|port| {
                let has_port = Condition::includes("ports", Datum::Set(vec![port.as_str().into()]));
                (port, query.select("Port_Group", has_port, &["name"]))
            })
            .collect();
        let outcome = answer(connection.transact(query)).await?;
        for (port, selection) in asked {
            for row in outcome.rows(selection) {
                // `<key of the datapath>_<group>`
                let name = row.string("name").unwrap_or_default();
                let group = name.split_once('_').map_or(name, |(_, group)| group);
                self.groups.insert(format!("{group} {port}"));
            }
        }
        let switch = datapaths.iter().find(|(_, name)| *name == node).map(|(uuid, _)| *uuid);
        if let Some(switch) = switch {
            self.services = services(connection, switch).await?;
        }
        Ok(())
    }

    /// What the other one does not have, for people: the first few, and how many more.
    pub(super) fn lacking_in(&self, other: &Self) -> Vec<String> {
        let ports = self.ports.keys().filter(|port| !other.ports.contains_key(*port));
        let lacking = ports
            .map(|port| format!("port {port}"))
            .chain(self.groups.difference(&other.groups).map(|group| format!("group {group}")))
            .chain(self.services.difference(&other.services).map(|vip| format!("Service {vip}")))
            .chain(self.chassis.difference(&other.chassis).map(|name| format!("chassis {name}")));
        let mut lacking: Vec<String> = lacking.collect();
        let more = lacking.len().saturating_sub(NAMED);
        lacking.truncate(NAMED);
        if more > 0 {
            lacking.push(format!("and {more} more"));
        }
        lacking
    }
}

/// Whether the node may begin to move to a zone, as far as that is known before: its database
/// answers, its controller and ovn-northd have made the way to other zones.
///
/// # Errors
///
/// What is missing.
pub(super) async fn unready(here: &Southbound, zone: &ZonePlace) -> Result<(), String> {
    let connection = connect(&zone.southbound).await?;
    let global = select(&connection, "SB_Global", Where::all(), &["options"]).await?;
    let name = global.first().and_then(|row| row.map("options").remove("name"));
    if let Some(name) = name.filter(|name| *name != zone.zone) {
        return Err(format!("{} is of the zone {name}", zone.southbound.remote));
    }
    if !datapaths(&connection).await?.values().any(|name| name == ovn::TRANSIT_SWITCH) {
        return Err(
            "the switch between zones: the zone's controller or ovn-northd does not run".to_owned()
        );
    }
    let there = chassis_names(&connection).await?;
    let here = chassis_names(&connect(here).await?).await?;
    let mut missing: Vec<&String> = here.difference(&there).collect();
    let more = missing.len().saturating_sub(NAMED);
    missing.truncate(NAMED);
    let names: Vec<&str> = missing.iter().map(|name| name.as_str()).collect();
    match (names.join(", "), more) {
        (names, _) if names.is_empty() => Ok(()),
        (names, 0) => Err(format!("chassis {names}")),
        (names, more) => Err(format!("chassis {names} and {more} more")),
    }
}

async fn chassis_names(connection: &Connection) -> Result<BTreeSet<String>, String> {
    let all = select(connection, "Chassis", Where::all(), &["name"]).await?;
    Ok(all.iter().filter_map(|row| row.string("name")).map(str::to_owned).collect())
}

/// Waits until the chassis has so many ports. A database that does not answer is asked again.
pub(super) async fn wait_until(
    database: &Southbound,
    chassis: &str,
    is_right: impl Fn(usize) -> bool,
) {
    let mut connection = None;
    loop {
        if connection.is_none() {
            connection = connect(database).await.ok();
        }
        if let Some(open) = &connection {
            match bound(open, chassis).await {
                Ok(ports) if is_right(ports) => return,
                Ok(_) => {}
                Err(_) => connection = None,
            }
        }
        sleep(SOON).await;
    }
}

/// How many ports are on the chassis; none if there is no such chassis.
async fn bound(connection: &Connection, chassis: &str) -> Result<usize, String> {
    let own = select(connection, "Chassis", Condition::equal("name", chassis), &["_uuid"]).await?;
    let Some(own) = own.first() else { return Ok(0) };
    let on_chassis = Condition::equal("chassis", own.uuid());
    let ports = select(connection, "Port_Binding", on_chassis, &["type"]).await?;
    // A node of another zone has one port here, which is its own there.
    Ok(ports.iter().filter(|row| row.string("type") != Some("remote")).count())
}

/// A connection to the first server that answers.
async fn connect(database: &Southbound) -> Result<Connection, String> {
    let Southbound { remote, tls } = database;
    let endpoints: Endpoints = remote.parse().map_err(|error| format!("{remote}: {error}"))?;
    let ssl = tls.as_ref().map(|files| {
        let mut ssl = Ssl::new(files.authority.clone());
        let (private_key, certificate) = (files.private_key.clone(), files.certificate.clone());
        ssl.identity = Some(ovsdb::Identity { private_key, certificate });
        ssl
    });
    let options = Options { ssl, ..Options::large() };
    let mut silent = Vec::new();
    for endpoint in endpoints.iter() {
        match Connection::open(endpoint, "OVN_Southbound", options.clone()).await {
            Ok(connection) => return Ok(connection),
            Err(error) => silent.push(chain(&error)),
        }
    }
    Err(silent.join("; "))
}

async fn select(
    connection: &Connection,
    table: &str,
    which: impl Into<Where>,
    columns: &[&str],
) -> Result<Vec<SelectedRow>, String> {
    let mut query = Transaction::new();
    let selection = query.select(table, which, columns);
    let outcome = answer(connection.transact(query)).await?;
    Ok(outcome.rows(selection).to_vec())
}

async fn answer<T, E: std::error::Error + 'static>(
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(PATIENCE, asked).await {
        Ok(answered) => answered.map_err(|error| chain(&error)),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}

/// The names of switches and routers.
async fn datapaths(connection: &Connection) -> Result<BTreeMap<Uuid, String>, String> {
    let all =
        select(connection, "Datapath_Binding", Where::all(), &["_uuid", "external_ids"]).await?;
    let named = |row: &SelectedRow| Some((row.uuid(), row.map("external_ids").remove("name")?));
    Ok(all.iter().filter_map(named).collect())
}

async fn ports(
    connection: &Connection,
    which: Where,
    datapaths: &BTreeMap<Uuid, String>,
) -> Result<BTreeMap<String, String>, String> {
    let found = select(connection, "Port_Binding", which, &["logical_port", "datapath"]).await?;
    let named = |row: &SelectedRow| {
        let datapath = row.uuids("datapath").first().and_then(|uuid| datapaths.get(uuid))?;
        Some((row.string("logical_port")?.to_owned(), datapath.clone()))
    };
    Ok(found.iter().filter_map(named).collect())
}

/// The front ends of the load balancers on a switch. Those of templates have other names in each
/// zone.
async fn services(connection: &Connection, switch: Uuid) -> Result<BTreeSet<String>, String> {
    const GROUP: &str = "Logical_DP_Group";
    let schema = connection.schema();
    if !schema.has_table("Load_Balancer") {
        return Ok(BTreeSet::new());
    }
    // Columns of OVN 23.03 and of later ones.
    let places: Vec<&str> = ["datapaths", "datapath_group", "ls_datapath_group"]
        .into_iter()
        .filter(|column| schema.has_column("Load_Balancer", column))
        .collect();
    let has_switch = Condition::includes("datapaths", Datum::Set(vec![switch.into()]));
    let groups: BTreeSet<Uuid> = match schema.table(GROUP) {
        None => BTreeSet::new(),
        Some(_) => {
            let groups = select(connection, GROUP, has_switch, &["_uuid"]).await?;
            groups.iter().map(SelectedRow::uuid).collect()
        }
    };
    let columns = [&["vips", "protocol"][..], &places].concat();
    let all = select(connection, "Load_Balancer", Where::all(), &columns).await?;
    let is_here = |row: &&SelectedRow| {
        let mut uuids = places.iter().flat_map(|column| row.uuids(column));
        uuids.any(|uuid| uuid == switch || groups.contains(&uuid))
    };
    let mut services = BTreeSet::new();
    for row in all.iter().filter(is_here) {
        let protocol = row.string("protocol").unwrap_or("tcp").to_owned();
        let vips = row.map("vips").into_keys().filter(|vip| !vip.starts_with('^'));
        services.extend(vips.map(|vip| format!("{protocol} {vip}")));
    }
    Ok(services)
}

#[cfg(test)]
mod tests;
