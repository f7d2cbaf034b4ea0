//! Desired rows of each command, from the command and the facts.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use contract::{mac::Mac, ovn};
use ipnet::{IpNet, Ipv4Net};
use ovsdb::Datum;

use crate::{
    engine::diff::edit::{Edit, Target},
    legacy::{
        CLUSTER_ROUTER, GatewayRouter, Init, InitError, JOIN, LoadBalancers, NodeNetwork,
        facts::{FIRST_GATEWAY, Facts, PHYSICAL_IP},
    },
    rows::{
        DesiredRow, Membership, Pairs, RouterPort, RowSet, SourceNat, StaticRoute, SwitchPort,
        Table, Value,
        port_group::bare,
        switch_port::{Kind, port_addresses},
    },
};

/// Marks routers' ports on the join switch.
const ON_JOIN_SWITCH: (&str, &str) = ("connect_to_join", "yes");
/// Marks a gateway router's port on the physical network.
const EXTERNAL: (&str, &str) = ("gateway-physical-ip", "yes");
/// The cluster's load balancers: how the older programs' messages call each, the key of its id, and
/// its protocol.
const CLUSTER_LBS: [(&str, &str, &str); 2] = [
    ("K8S_CLUSTER_LB_TCP", "k8s-cluster-lb-tcp", "tcp"),
    ("K8S_CLUSTER_LB_UDP", "k8s-cluster-lb-udp", "udp"),
];
/// Those of a gateway router: the key of its id, which names the router, and its protocol.
const GATEWAY_LBS: [(&str, &str); 2] =
    [("TCP_lb_gateway_router", "tcp"), ("UDP_lb_gateway_router", "udp")];

/// Desired rows, and links to load balancers that have no name.
pub(super) struct Additions {
    pub(super) rows: RowSet,
    pub(super) links: Vec<Edit>,
}

/// What the command makes.
pub(super) fn plan(facts: &Facts<'_>, init: &Init) -> Result<Additions, InitError> {
    let mut plan = Additions { rows: RowSet::new(), links: Vec::new() };
    match init {
        Init::Master(network) => {
            let router = facts.cluster_router().unwrap_or(&network.node);
            plan.rows.extend(cluster(facts, router));
            plan.node(facts, router, network)?;
        }
        Init::Minion(network) => {
            let router = facts.cluster_router().ok_or(InitError::NoRouter)?;
            for (name, key, _) in CLUSTER_LBS {
                facts.load_balancer(key, "yes").ok_or(InitError::NoLoadBalancer(name, key))?;
            }
            plan.node(facts, router, network)?;
        }
        Init::Gateway(gateway) => {
            let router = facts.cluster_router().ok_or(InitError::NoRouter)?;
            plan.gateway(facts, router, gateway)?;
        }
    }
    Ok(plan)
}

/// The cluster's router, and the join switch.
fn cluster(facts: &Facts<'_>, router: &str) -> RowSet {
    let mark = Value::pairs([(CLUSTER_ROUTER, "yes".to_owned())]);
    let mut rows = vec![
        DesiredRow {
            columns: vec![("external_ids", mark)],
            ..bare(Table::LogicalRouter.row(router))
        },
        bare(Table::LogicalSwitch.row(ovn::JOIN_SWITCH)),
    ];
    rows.extend(to_join_switch(facts, router, JOIN));
    rows
}

/// The link between a router and the join switch.
fn to_join_switch(facts: &Facts<'_>, router: &str, address: Ipv4Net) -> [DesiredRow; 2] {
    let port = ovn::router_to_join(router);
    link(
        facts,
        router,
        port,
        address,
        Some(ON_JOIN_SWITCH),
        (ovn::JOIN_SWITCH, ovn::join_to_router(router)),
    )
}

/// A router's port, and the port of a switch that leads to it. A port that exists keeps its
/// addresses.
fn link(
    facts: &Facts<'_>,
    router: &str,
    port: String,
    address: Ipv4Net,
    mark: Option<(&'static str, &str)>,
    (switch, switch_port): (&str, String),
) -> [DesiredRow; 2] {
    let mac = facts.mac(&port).unwrap_or_else(|| Mac::from_ip(address.addr().into()));
    let networks = facts.networks(&port).unwrap_or_else(|| vec![address.into()]);
    let external_ids = mark.map(|(key, value)| [(key, value.to_owned())].into());
    [
        RouterPort {
            router: router.to_owned(),
            name: port.clone(),
            mac,
            networks,
            options: Pairs::default(),
            external_ids: external_ids.unwrap_or_default(),
        }
        .into(),
        with_mac(SwitchPort::new(switch, switch_port, Kind::Router { port }).into(), mac),
    ]
}

/// The older programs wrote the MAC address of the router's port, where `router` says the same. A
/// port that says that stays.
fn with_mac(row: DesiredRow, mac: Mac) -> DesiredRow {
    let addresses = |text: String| ("addresses", Value::Datum(Datum::set([text])));
    let mut columns = row.columns;
    columns.retain(|(column, _)| *column != "addresses");
    columns.push(addresses(mac.to_string()));
    DesiredRow { columns, or_columns: vec![addresses("router".to_owned())], ..row }
}

impl Additions {
    /// The node's switch, its link to the cluster's router, and the node's port.
    fn node(
        &mut self,
        facts: &Facts<'_>,
        router: &str,
        network: &NodeNetwork,
    ) -> Result<(), InitError> {
        let NodeNetwork { node, cluster: _, subnet, mac } = network;
        let (gateway, own) = addresses(facts, network)?;
        let switch = ovn::node_switch(node);
        self.rows.push(DesiredRow {
            columns: vec![
                ("other_config", Value::pairs([("subnet", subnet.trunc().to_string())])),
                ("external_ids", Value::pairs([("gateway_ip", gateway.to_string())])),
            ],
            ..bare(Table::LogicalSwitch.row(&*switch))
        });
        let to_router = (&*switch, ovn::switch_to_router(node));
        let port = ovn::router_to_switch(node);
        self.rows.extend(link(facts, router, port, gateway, None, to_router));
        let kind = Kind::Interface { addresses: port_addresses(*mac, &[own.into()]) };
        self.rows.push(SwitchPort::new(&*switch, ovn::management_port(node), kind).into());
        for (_, key, protocol) in CLUSTER_LBS {
            let name = key.to_owned();
            self.load_balancer(facts, (key, "yes"), name, protocol, Table::LogicalSwitch, &switch);
        }
        Ok(())
    }

    /// The load balancer with this id, on a switch or router.
    fn load_balancer(
        &mut self,
        facts: &Facts<'_>,
        (key, value): (&'static str, &str),
        name: String,
        protocol: &str,
        table: Table,
        on: &str,
    ) {
        // The older programs gave no name to theirs: of those, only the row itself is known.
        let Some(balancer) = facts.load_balancer(key, value) else {
            let on = Membership::of(table.row(on), "load_balancer");
            self.rows.push(DesiredRow {
                columns: vec![
                    ("protocol", Value::Datum(Datum::set([protocol]))),
                    ("external_ids", Value::pairs([(key, value.to_owned())])),
                ],
                member_of: vec![on],
                ..bare(Table::LoadBalancer.row(name))
            });
            return;
        };
        if !facts.has_load_balancer(table, on, balancer) {
            let of = facts
                .row(table, on)
                .map_or_else(|| Target::Inserted(table.row(on)), Target::Existing);
            let element = Target::Existing(balancer);
            self.links.push(Edit::Link { of, table, column: "load_balancer", element });
        }
    }

    /// The gateway router, its links, its routes and its translation.
    fn gateway(
        &mut self,
        facts: &Facts<'_>,
        cluster_router: &str,
        gateway: &GatewayRouter,
    ) -> Result<(), InitError> {
        let router = ovn::gateway_router(&gateway.node);
        let (hub, join) = join_addresses(facts, cluster_router, &router)?;
        check_gateway(facts, &router, gateway)?;
        self.rows.push(gateway_router(facts, &router, gateway, join.addr()));
        self.rows.extend(to_join_switch(facts, &router, join));
        self.rows.extend(to_physical_network(facts, &router, gateway));
        if gateway.load_balancers == LoadBalancers::With {
            for (key, protocol) in GATEWAY_LBS {
                let name = format!("{key}_{router}");
                let table = Table::LogicalRouter;
                self.load_balancer(facts, (key, &router), name, protocol, table, &router);
            }
        }
        self.rows.extend(routes(facts, cluster_router, &router, gateway, hub, join.addr()));
        self.rows.push(translation(router, gateway));
        Ok(())
    }
}

/// The router's and the node's addresses in the node's subnet.
fn addresses(facts: &Facts<'_>, network: &NodeNetwork) -> Result<(Ipv4Net, Ipv4Net), InitError> {
    let NodeNetwork { node, cluster, subnet, mac: _ } = network;
    let subnet = subnet.trunc();
    let number = |number: u32| Ipv4Addr::from(u32::from(subnet.network()).wrapping_add(number));
    if subnet.prefix_len() > 29 {
        return Err(InitError::Small { subnet });
    }
    if !cluster.contains(&subnet) {
        return Err(InitError::Outside { subnet, cluster: *cluster });
    }
    for (switch, theirs) in facts.subnets() {
        let other: Option<Ipv4Net> = theirs.parse().ok();
        let (switch, theirs) = (switch.to_owned(), theirs.to_owned());
        match other {
            Some(other) if switch == *node && other != subnet => {
                return Err(InitError::OtherSubnet { switch, now: theirs, subnet });
            }
            Some(other)
                if switch != *node && (other.contains(&subnet) || subnet.contains(&other)) =>
            {
                return Err(InitError::Taken { subnet, theirs, switch });
            }
            Some(_) | None => {}
        }
    }
    let in_subnet = |address| Ipv4Net::new_assert(address, subnet.prefix_len());
    Ok((in_subnet(number(1)), in_subnet(number(2))))
}

/// The addresses on the join switch of the cluster's router, and of this gateway router: its own,
/// or else the lowest that no router has.
fn join_addresses(
    facts: &Facts<'_>,
    cluster_router: &str,
    router: &str,
) -> Result<(Ipv4Addr, Ipv4Net), InitError> {
    let port = ovn::router_to_join(cluster_router);
    let hub = facts.network_v4(&port).ok_or(InitError::NoJoin { port })?;
    if let Some(own) = facts.network_v4(&ovn::router_to_join(router)) {
        return Ok((hub.addr(), own));
    }
    let taken: Vec<IpAddr> = facts.on_join_switch().iter().map(IpNet::addr).collect();
    let free = hub.trunc().hosts().find(|address| !taken.contains(&IpAddr::V4(*address)));
    let free = free.ok_or(InitError::JoinFull { network: hub.trunc() })?;
    Ok((hub.addr(), Ipv4Net::new_assert(free, hub.prefix_len())))
}

/// Refuses a gateway that contradicts one that is there.
fn check_gateway(
    facts: &Facts<'_>,
    router: &str,
    gateway: &GatewayRouter,
) -> Result<(), InitError> {
    let GatewayRouter { address, next_hop, .. } = *gateway;
    if let Some(other) = facts.router_at(address.addr(), router) {
        return Err(InitError::AddressTaken { address: address.addr(), router: other.to_owned() });
    }
    let port = ovn::router_to_external(router);
    let now: Vec<String> =
        facts.networks(&port).unwrap_or_default().iter().map(IpNet::to_string).collect();
    if !now.is_empty() && !now.contains(&address.to_string()) {
        return Err(InitError::OtherAddress { port, now: now.join(", "), address });
    }
    let Some(next_hop) = next_hop else { return Ok(()) };
    if !address.contains(&next_hop) {
        return Err(InitError::UnreachableNextHop { next_hop, address });
    }
    match facts.default_routes(router).into_iter().find(|now| *now != next_hop.to_string()) {
        Some(now) => Err(InitError::OtherNextHop { router: router.to_owned(), now, next_hop }),
        None => Ok(()),
    }
}

/// The gateway router, on the node's chassis. The first one of a cluster stays the first.
fn gateway_router(
    facts: &Facts<'_>,
    router: &str,
    gateway: &GatewayRouter,
    join: Ipv4Addr,
) -> DesiredRow {
    let options = Pairs {
        alike: [("lb_force_snat_ip", "router_ip".to_owned())].into(),
        ..[("chassis", gateway.chassis.clone()), ("lb_force_snat_ip", join.to_string())].into()
    };
    let first = if facts.has_other_gateway(router) { "no" } else { "yes" };
    let ids = Pairs {
        initially: BTreeMap::from([(FIRST_GATEWAY, first.to_owned())]),
        ..[(PHYSICAL_IP, gateway.address.addr().to_string())].into()
    };
    DesiredRow {
        columns: vec![("options", Value::pairs(options)), ("external_ids", Value::pairs(ids))],
        ..bare(Table::LogicalRouter.row(router))
    }
}

/// The switch that stands for the physical network, with the gateway router and the node's bridge.
fn to_physical_network(
    facts: &Facts<'_>,
    router: &str,
    gateway: &GatewayRouter,
) -> Vec<DesiredRow> {
    let GatewayRouter { node, address, interface, mac, .. } = gateway;
    let switch = ovn::external_switch(node);
    let (port, to_router) = (ovn::router_to_external(router), ovn::external_to_router(router));
    let networks = facts.networks(&port).unwrap_or_else(|| vec![(*address).into()]);
    let (key, value) = EXTERNAL;
    let unknown = Kind::Interface { addresses: "unknown".to_owned() };
    let to_router = SwitchPort::new(&*switch, to_router, Kind::Router { port: port.clone() });
    vec![
        bare(Table::LogicalSwitch.row(&*switch)),
        SwitchPort::new(&*switch, &**interface, unknown).into(),
        RouterPort {
            router: router.to_owned(),
            name: port,
            mac: *mac,
            networks,
            options: Pairs::default(),
            external_ids: [(key, value.to_owned())].into(),
        }
        .into(),
        with_mac(to_router.into(), *mac),
    ]
}

/// The gateway router's routes to pods and to the world, and the cluster router's to gateways.
fn routes(
    facts: &Facts<'_>,
    cluster_router: &str,
    router: &str,
    gateway: &GatewayRouter,
    hub: Ipv4Addr,
    join: Ipv4Addr,
) -> Vec<DesiredRow> {
    let everything = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0).into();
    let cluster: IpNet = gateway.cluster.trunc().into();
    let mut routes = vec![StaticRoute::to(router, cluster, hub.into())];
    routes.extend(gateway.next_hop.map(|next_hop| StaticRoute {
        port: Some(ovn::router_to_external(router)),
        ..StaticRoute::to(router, everything, next_hop.into())
    }));
    // Two default routes would each take half of the connections.
    if facts.default_routes(cluster_router).is_empty() {
        let first = facts.first_gateway().map(ovn::router_to_join);
        let via = first.and_then(|port| facts.network_v4(&port)).map_or(join, |net| net.addr());
        routes.push(StaticRoute::to(cluster_router, everything, via.into()));
    }
    let by_source = |source: &Ipv4Net| {
        StaticRoute::from(cluster_router, source.trunc().into(), IpAddr::from(join))
    };
    routes.extend(gateway.sources.iter().map(by_source));
    routes.into_iter().map(DesiredRow::from).collect()
}

/// Pods leave with the node's address. The older programs' row has no range of source ports.
fn translation(router: String, gateway: &GatewayRouter) -> DesiredRow {
    let GatewayRouter { cluster, address, .. } = gateway;
    let inside = cluster.trunc().into();
    let mut row = DesiredRow::from(SourceNat { router, inside, outside: address.addr().into() });
    row.columns.retain(|(column, _)| !["external_port_range", "options"].contains(column));
    row
}
