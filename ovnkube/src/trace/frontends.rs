//! What the load balancers of the northbound database do at an address and a port. Reads only.
//!
//! ovn-trace(8) knows no variables (Chassis_Template_Var): a load balancer with `^NODEIP_IPv4_0` in
//! place of a node's address is not there for it. What such a one means on a chassis is read here.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use contract::{
    names::ServiceKey,
    ovn::{KIND, OWNER, SERVICE},
    wire::TraceProtocol,
};
use ovsdb::{Condition, Connection, SelectedRow, Where};

use super::steps::{LogicalFlow, Step};
use crate::status::databases::rows;

/// What begins the name of a variable in a load balancer.
const VARIABLE: char = '^';
/// Part of the names of those that only routers have.
const OF_ROUTERS: &str = "_node_router_template_";

/// The load balancers, and what their variables mean on one chassis.
#[derive(Debug, Default)]
pub(super) struct Frontends {
    balancers: Vec<SelectedRow>,
    variables: BTreeMap<String, String>,
}

/// A load balancer at an address and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frontend {
    /// `Service shop/web`, or the row's name.
    pub(super) name: String,
    pub(super) service: Option<ServiceKey>,
    /// As the row has it: `^NODEIP_IPv4_0:30080`.
    pub(super) vip: String,
    pub(super) backends: Vec<SocketAddr>,
}

impl Frontends {
    /// `chassis`: the one whose variables count.
    ///
    /// # Errors
    ///
    /// The database does not answer in time.
    pub(super) async fn read(north: &Connection, chassis: Option<&str>) -> Result<Self, String> {
        let columns = ["name", "vips", "protocol", "external_ids"];
        let balancers = rows(north, "Load_Balancer", Where::all(), &columns).await?;
        let Some(chassis) = chassis else {
            return Ok(Self { balancers, variables: BTreeMap::new() });
        };
        let own = Condition::equal("chassis", chassis).into();
        // Older databases have no such table.
        let found = rows(north, "Chassis_Template_Var", own, &["variables"]).await;
        let variables = found.unwrap_or_default().first().map(|row| row.map("variables"));
        Ok(Self { balancers, variables: variables.unwrap_or_default() })
    }

    /// The load balancer with a variable for this address.
    pub(super) fn with_variable(&self, at: SocketAddr, on: TraceProtocol) -> Option<Frontend> {
        let found = self.of_protocol(on).filter(|row| !is_of_routers(row));
        let mut found = found.flat_map(|row| row.map("vips").into_iter().map(move |it| (row, it)));
        found.find_map(|(row, (vip, backends))| {
            let is_same = vip.starts_with(VARIABLE) && self.place(&vip) == Some(at);
            is_same.then(|| self.frontend(row, vip, &backends))
        })
    }

    /// The load balancer at this address, with a variable or without.
    pub(super) fn serving(&self, at: SocketAddr, on: TraceProtocol) -> Option<Frontend> {
        let without = || {
            let text = at.to_string();
            self.of_protocol(on).find_map(|row| {
                let backends = row.map("vips").remove(&text)?;
                Some(self.frontend(row, text.clone(), &backends))
            })
        };
        self.with_variable(at, on).or_else(without)
    }

    /// The address beside those of nodes at which the Service has the port: the masquerade address
    /// of `externalTrafficPolicy: Local`.
    pub(super) fn of_local_traffic(
        &self,
        service: &ServiceKey,
        node_port: SocketAddr,
        on: TraceProtocol,
        is_of_node: impl Fn(IpAddr) -> bool,
    ) -> Option<SocketAddr> {
        let is_own = |row: &&SelectedRow| {
            row.map("external_ids").get(OWNER).is_some_and(|owner| owner == service.as_str())
        };
        let own = self.of_protocol(on).filter(is_own);
        let mut vips = own.flat_map(|row| row.map("vips").into_keys());
        vips.find_map(|vip| {
            let place: SocketAddr = vip.parse().ok()?;
            let is_there = place.port() == node_port.port()
                && place.is_ipv6() == node_port.is_ipv6()
                && !is_of_node(place.ip());
            is_there.then_some(place)
        })
    }

    fn of_protocol(&self, asked: TraceProtocol) -> impl Iterator<Item = &SelectedRow> {
        let asked = match asked {
            TraceProtocol::Tcp(_) => "tcp",
            TraceProtocol::Udp(_) => "udp",
            // No load balancer of a Service has it.
            TraceProtocol::Icmp => "icmp",
        };
        // Without a protocol it is TCP's (ovn-nb(5)).
        let is_of = move |row: &&SelectedRow| row.string("protocol").unwrap_or("tcp") == asked;
        self.balancers.iter().filter(is_of)
    }

    /// The place that a text means here: `^NODEIP_IPv4_0:30080`, `10.96.0.10:80`.
    fn place(&self, vip: &str) -> Option<SocketAddr> {
        let Some(variable) = vip.strip_prefix(VARIABLE) else { return vip.parse().ok() };
        let (name, port) = variable.rsplit_once(':')?;
        let address: IpAddr = self.variables.get(name)?.parse().ok()?;
        Some(SocketAddr::new(address, port.parse().ok()?))
    }

    fn frontend(&self, row: &SelectedRow, vip: String, backends: &str) -> Frontend {
        let ids = row.map("external_ids");
        let owner = ids.get(KIND).zip(ids.get(OWNER));
        let service = owner.filter(|(kind, _)| *kind == SERVICE).and_then(|(_, owner)| {
            let (namespace, name) = owner.split_once('/')?;
            ServiceKey::new(namespace, name).ok()
        });
        let name = match owner {
            Some((kind, owner)) => format!("{kind} {owner}"),
            None => format!("load balancer {}", row.string("name").unwrap_or("?")),
        };
        let meant = backends.strip_prefix(VARIABLE).and_then(|name| self.variables.get(name));
        let texts = meant.map_or(backends, String::as_str).split(',');
        let backends = texts.filter_map(|text| text.trim().parse().ok()).collect();
        Frontend { name, service, vip, backends }
    }
}

fn is_of_routers(row: &SelectedRow) -> bool {
    row.string("name").is_some_and(|name| name.contains(OF_ROUTERS))
}

impl Frontend {
    /// The step that ovn-trace leaves out.
    pub(super) fn step(&self, datapath: &str, inport: &str) -> Step {
        let refusal = self.backends.is_empty().then(|| "reject { next; };".to_owned());
        Step {
            datapath: datapath.to_owned(),
            inport: inport.to_owned(),
            stage: "ls_in_lb".to_owned(),
            flow: Some(LogicalFlow {
                matching: self.vip.clone(),
                priority: 0,
                uuid: String::new(),
            }),
            actions: refusal.into_iter().collect(),
            ..Step::default()
        }
    }
}
