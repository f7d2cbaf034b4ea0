//! What the database says about the older programs' rows. Reads the replica only.

use std::net::Ipv4Addr;

use contract::{mac::Mac, ovn};
use ipnet::{IpNet, Ipv4Net};
use ovsdb::{Atom, Uuid};

use crate::{engine::northbound::Northbound, legacy::CLUSTER_ROUTER, rows::Table};

/// Says which gateway router the pods of all nodes leave through.
pub(super) const FIRST_GATEWAY: &str = "first_gateway";
/// A gateway router's address on the physical network.
pub(super) const PHYSICAL_IP: &str = "physical_ip";

/// The rows that exist.
pub(super) struct Facts<'a>(&'a Northbound);

impl<'a> Facts<'a> {
    pub(super) fn of(northbound: &'a Northbound) -> Self {
        Self(northbound)
    }

    /// The rows of a table that has names.
    fn all(&self, table: Table) -> impl Iterator<Item = (&'a str, Uuid)> + use<'a> {
        let index = &self.0.index;
        index
            .names(table)
            .flat_map(move |name| index.named(table, name).iter().map(move |row| (&**name, *row)))
    }

    fn named(&self, table: Table, name: &str) -> Option<Uuid> {
        self.0.index.named(table, name).first().copied()
    }

    /// The texts in a column.
    fn texts(&self, table: Table, row: Uuid, column: &str) -> Vec<String> {
        let datum = self.0.column(table, row, column).map(|field| field.datum());
        datum.iter().flat_map(|datum| datum.atoms()).map(Atom::to_string).collect()
    }

    /// The value of a key in a map.
    fn value(&self, table: Table, row: Uuid, column: &str, key: &str) -> Option<&'a str> {
        self.0.column(table, row, column)?.pairs()?.get(key)
    }

    /// The name of the router that connects all nodes.
    pub(super) fn cluster_router(&self) -> Option<&'a str> {
        let table = Table::LogicalRouter;
        let is_it = |row| self.value(table, row, "external_ids", CLUSTER_ROUTER) == Some("yes");
        self.all(table).find(|(_, row)| is_it(*row)).map(|(name, _)| name)
    }

    /// Whether a router other than this one is bound to a chassis: it is a gateway.
    pub(super) fn has_other_gateway(&self, router: &str) -> bool {
        let table = Table::LogicalRouter;
        self.all(table).any(|(name, row)| {
            name != router && self.value(table, row, "options", "chassis").is_some()
        })
    }

    /// The gateway router that is the first.
    pub(super) fn first_gateway(&self) -> Option<&'a str> {
        let table = Table::LogicalRouter;
        let is_first = |row| self.value(table, row, "external_ids", FIRST_GATEWAY) == Some("yes");
        self.all(table).find(|(_, row)| is_first(*row)).map(|(name, _)| name)
    }

    /// The router other than this one that has this address on the physical network.
    pub(super) fn router_at(&self, address: Ipv4Addr, except: &str) -> Option<&'a str> {
        let (table, address) = (Table::LogicalRouter, address.to_string());
        let has_it =
            |row| self.value(table, row, "external_ids", PHYSICAL_IP) == Some(address.as_str());
        self.all(table).find(|(name, row)| *name != except && has_it(*row)).map(|(name, _)| name)
    }

    /// The networks of a router's port; none if there is no such port.
    pub(super) fn networks(&self, port: &str) -> Option<Vec<IpNet>> {
        let table = Table::LogicalRouterPort;
        let networks = self.texts(table, self.named(table, port)?, "networks");
        Some(networks.iter().filter_map(|text| text.parse().ok()).collect())
    }

    pub(super) fn mac(&self, port: &str) -> Option<Mac> {
        let table = Table::LogicalRouterPort;
        self.texts(table, self.named(table, port)?, "mac").first()?.parse().ok()
    }

    /// The first IPv4 network of a router's port.
    pub(super) fn network_v4(&self, port: &str) -> Option<Ipv4Net> {
        self.networks(port)?.into_iter().find_map(|net| match net {
            IpNet::V4(v4) => Some(v4),
            IpNet::V6(_) => None,
        })
    }

    /// The addresses of all routers on the join switch.
    pub(super) fn on_join_switch(&self) -> Vec<IpNet> {
        let to_join = ovn::router_to_join("");
        let ports =
            self.all(Table::LogicalRouterPort).filter(|(name, _)| name.starts_with(&to_join));
        ports.flat_map(|(name, _)| self.networks(name).unwrap_or_default()).collect()
    }

    /// The IPv4 subnets of all switches, as they are written.
    pub(super) fn subnets(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let table = Table::LogicalSwitch;
        let of = move |(name, row)| Some((name, self.value(table, row, "other_config", "subnet")?));
        self.all(table).filter_map(of)
    }

    /// The next hops of a router's default routes by destination.
    pub(super) fn default_routes(&self, router: &str) -> Vec<String> {
        let Some(row) = self.named(Table::LogicalRouter, router) else { return Vec::new() };
        let table = Table::StaticRoute;
        let sets = Table::LogicalRouter.sets().iter().filter(|set| set.holds == table);
        let routes = sets.flat_map(|set| self.0.elements(row, set));
        let is_default = |row: &&Uuid| {
            self.texts(table, **row, "ip_prefix") == ["0.0.0.0/0"]
                && self.texts(table, **row, "policy") != ["src-ip"]
        };
        routes.filter(is_default).flat_map(|row| self.texts(table, *row, "nexthop")).collect()
    }

    /// The load balancer that has `value` under this key of its ids, and its name.
    pub(super) fn load_balancer(&self, key: &str, value: &str) -> Option<Uuid> {
        let mut all = self.0.load_balancers();
        all.find(|(_, row)| row.external_ids.get(key) == Some(value)).map(|(uuid, _)| uuid)
    }

    /// Whether the switch or router of this name has the load balancer.
    pub(super) fn has_load_balancer(&self, table: Table, name: &str, balancer: Uuid) -> bool {
        let Some(row) = self.named(table, name) else { return false };
        let mut sets = table.sets().iter().filter(|set| set.holds == Table::LoadBalancer);
        sets.any(|set| self.0.elements(row, set).contains(&balancer))
    }

    /// The row of this name, if it exists.
    pub(super) fn row(&self, table: Table, name: &str) -> Option<Uuid> {
        self.named(table, name)
    }
}
